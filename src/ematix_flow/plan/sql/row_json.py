"""A row as one JSON text in each dialect's SQL, for rejects; values that JSON would alter are texts, bytes an object."""

from __future__ import annotations

import json
from functools import reduce
from typing import TYPE_CHECKING

from sqlglot import exp

from ematix_flow.connect.types.reject_rows import BYTES
from ematix_flow.plan.assumed_columns import FAMILIES
from ematix_flow.plan.columns import OURS
from ematix_flow.plan.sql.dialects import case, fill, not_null, sql_func
from ematix_flow.plan.sql.shape.value import SourceType as S

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ematix_flow.connect.base.stage import StageColumn

_EXACT = (S.TEXT, S.INTEGER, S.BOOLEAN)
_TEXTS_OF_POSTGRES = (S.TEXT, S.UUID, S.JSON, S.OTHER)
"""What PostgreSQL's JSON writes otherwise than it reads it: lists, padded texts, a document that is a text or a null."""


_WHOLE = "_flow_whole"
"""Name of the row itself, which is not the name of one of its columns."""


def raw_row(columns: Mapping[str, str], dialect: str) -> exp.Expr:
    """Return the expression for columns (name -> family) of the relation that is selected from."""
    pairs = [(name, _carried(name, S(family), dialect)) for name, family in columns.items()]
    if dialect == "sqlite":
        return _joined(pairs)
    if dialect == "postgres":
        # A function would take only so many arguments.
        values = [exp.alias_(value, name, quoted=True) for name, value in pairs]
        whole = exp.Anonymous(this="row_to_json", expressions=[exp.column(_WHOLE)])
        return exp.select(exp.cast(whole, "text")).from_(exp.select(*values).subquery(_WHOLE)).subquery()
    arguments = [part for name, value in pairs for part in (exp.Literal.string(name), value)]
    if dialect == "spark":
        options = [exp.Literal.string("ignoreNullFields"), exp.Literal.string("false")]
        struct = exp.Anonymous(this="named_struct", expressions=arguments)
        return exp.Anonymous(this="to_json", expressions=[struct, exp.Anonymous(this="map", expressions=options)])
    return exp.cast(exp.Anonymous(this="json_object", expressions=arguments), "text")


def staged_row(columns: Sequence[StageColumn], dialect: str) -> str:
    """Return the expression for a staged row, without the columns that only a load itself needs."""
    families = {column.name: S(FAMILIES[column.type.kind]) for column in columns if column.name not in OURS}
    # As text in every dialect: who reads the JSON could take a decimal for a float.
    texts = {name: S.OTHER if family is S.DECIMAL else family for name, family in families.items()}
    return raw_row(texts, dialect).sql(dialect=dialect)


def _carried(name: str, family: S, dialect: str) -> exp.Expr:
    column: exp.Expr = exp.column(exp.to_identifier(name, quoted=True))
    if dialect == "sqlite":
        return exp.Anonymous(this="flow_json", expressions=[column])
    if family is S.BINARY:
        return case((not_null(column), _bytes_object(column.copy(), dialect)))
    if family is S.FLOAT:
        # The text of a shorter float means another number when it is read as a double.
        column = exp.cast(column, "double")
    if dialect == "postgres":
        return exp.cast(column, "text") if family in _TEXTS_OF_POSTGRES else column
    # The columns of a table of MySQL may differ in their collations, which its function refuses; cast, all have one.
    exact = family in _EXACT and not (family is S.TEXT and dialect == "mysql")
    return column if exact else sql_func("text", dialect, x=column)


def _bytes_object(column: exp.Expr, dialect: str) -> exp.Expr:
    function = {"postgres": "json_build_object", "spark": "named_struct"}.get(dialect, "json_object")
    template = "UPPER(ENCODE(x, 'hex'))" if dialect == "postgres" else "HEX(x)"
    return exp.Anonymous(this=function, expressions=[exp.Literal.string(BYTES), fill(template, dialect, x=column)])


_AT_ONCE = 500
"""How many texts are put together at once: SQLite takes no expression that is a thousand deep."""


def _joined(pairs: list[tuple[str, exp.Expr]]) -> exp.Expr:
    """Return the text put together by hand, because a function of SQLite takes few arguments."""
    parts: list[exp.Expr] = [exp.Literal.string("{")]
    for index, (name, value) in enumerate(pairs):
        label = f"{', ' if index else ''}{json.dumps(name, ensure_ascii=False)}: "
        parts += [exp.Literal.string(label), value]
    parts.append(exp.Literal.string("}"))
    if len(parts) > _AT_ONCE:
        slices = [parts[begin : begin + _AT_ONCE] for begin in range(0, len(parts), _AT_ONCE)]
        parts = [exp.paren(_concatenated(some), copy=False) for some in slices]
    return _concatenated(parts)


def _concatenated(parts: Sequence[exp.Expr]) -> exp.Expr:
    return reduce(lambda text, part: exp.DPipe(this=text, expression=part), parts)

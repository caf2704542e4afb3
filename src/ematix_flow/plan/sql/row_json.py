"""A source row as one JSON text in each database's SQL, for rejects; values that JSON would alter are texts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sqlglot import exp

from ematix_flow.plan.sql.shape.value import SourceType

if TYPE_CHECKING:
    from collections.abc import Mapping

_EXACT = (SourceType.TEXT, SourceType.INTEGER, SourceType.BOOLEAN)


def raw_row(columns: Mapping[str, str], relation: str, dialect: str) -> exp.Expr:
    """Return the expression for the columns (name -> family) of a relation."""
    if dialect == "postgres":
        # Its JSON keeps every digit, and a function would take only so many arguments.
        return exp.cast(exp.Anonymous(this="row_to_json", expressions=[exp.column(relation)]), "text")
    pairs = [(name, _carried(name, family, dialect)) for name, family in columns.items()]
    if dialect == "sqlite":
        return _joined(pairs)
    arguments = [part for name, value in pairs for part in (exp.Literal.string(name), value)]
    return exp.cast(exp.Anonymous(this="json_object", expressions=arguments), "text")


def _carried(name: str, family: str, dialect: str) -> exp.Expr:
    column = exp.column(exp.to_identifier(name, quoted=True))
    if family == SourceType.BINARY:
        return exp.Anonymous(this="hex", expressions=[column])
    # The columns of a table of MySQL may differ in their collations, which its function refuses; cast, all have one.
    exact = family in _EXACT and not (family == SourceType.TEXT and dialect == "mysql")
    return column if exact or dialect == "sqlite" else exp.cast(column, "text")


def _joined(pairs: list[tuple[str, exp.Expr]]) -> exp.Expr:
    """Return the text put together by hand, because a function of SQLite takes few arguments."""
    text: exp.Expr = exp.Literal.string("{")
    for index, (name, value) in enumerate(pairs):
        label = f"{', ' if index else ''}{json.dumps(name, ensure_ascii=False)}: "
        quoted = exp.Anonymous(this="json_quote", expressions=[value])
        text = exp.DPipe(this=exp.DPipe(this=text, expression=exp.Literal.string(label)), expression=quoted)
    return exp.DPipe(this=text, expression=exp.Literal.string("}"))

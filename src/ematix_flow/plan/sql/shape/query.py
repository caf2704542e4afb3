"""The shape of a load as one query: user SQL, then one expression per declared column, then the pre-load transforms.

Layers are the CTEs `_src_user`, `_src_normalized`, `_src_pre_1`, ... Sessions are expected to speak UTC (MySQL
`time_zone`, Spark `spark.sql.session.timeZone`). Nothing here touches a database.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from ematix_flow.declare.pipeline.normalize import Default, Derive
from ematix_flow.declare.table.types import String
from ematix_flow.errors import PlanError, did_you_mean, nearest, usable
from ematix_flow.plan.sql.dialects import DIALECTS, case, is_null, not_null, number, sql_func
from ematix_flow.plan.sql.row_json import raw_row
from ematix_flow.plan.sql.shape.cast import source_value
from ematix_flow.plan.sql.shape.normalize import DialectPair, normalised
from ematix_flow.plan.sql.shape.transforms import Inner, column_of, transformed
from ematix_flow.plan.sql.shape.value import SourceType, Value
from ematix_flow.plan.sql.unsupported import UNSUPPORTED, reason_against
from ematix_flow.plan.sql.user.query import family_of, read_expression, read_query

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ematix_flow.declare.table.schema import Column, Table

__all__ = ["UNSUPPORTED", "RawRow", "Reading", "SourceType", "read_columns", "shape_query", "unsupported_on"]

USER = "_src_user"
READ = "_src_read"
NORMALIZED = "_src_normalized"

_WITHOUT_PARENTHESES = frozenset({
    "CURRENT_CATALOG", "CURRENT_DATABASE", "CURRENT_DATE", "CURRENT_ROLE", "CURRENT_SCHEMA", "CURRENT_TIME",
    "CURRENT_TIMESTAMP", "CURRENT_USER", "LOCALTIME", "LOCALTIMESTAMP", "SESSION_USER", "SYSTEM_USER", "USER",
    "UTC_DATE", "UTC_TIME", "UTC_TIMESTAMP",
})  # fmt: skip
"""Functions that SQL calls by their names alone."""


@dataclass(frozen=True, slots=True)
class _Source:
    """What the user's query returns and how its columns are read."""

    columns: Mapping[str, str]
    table: Table
    column_map: Mapping[str, str]
    dialects: DialectPair

    def find(self, name: str) -> str | None:
        """Return the source's spelling of a column name: exact, or the only one that differs in case."""
        if name in self.columns:
            return name
        alike = [c for c in self.columns if c.lower() == name.lower()]
        return alike[0] if len(alike) == 1 else None


@dataclass(frozen=True, slots=True)
class Reading:
    """How every declared column is read from the source; to build it takes most of the time of a plan."""

    inputs: _Source
    values: tuple[Value, ...]

    @property
    def can_fail(self) -> bool:
        """Return whether there are values of the source that could not be read."""
        return any(value.failures for value in self.values)

    def suspicious(self, required: Sequence[str], values: Sequence[exp.Expr]) -> list[exp.Expr]:
        """Return the conditions of rows that no expression here fails on, and that may be refused when they are staged."""
        dialect = self.inputs.dialects.dialect
        conditions: list[exp.Expr] = []
        for column, known, value in zip(self.inputs.table.columns, self.values, values, strict=True):
            if column.name in required:
                conditions.append(is_null(value.copy()))
            if isinstance(column.type, String) and known.type is SourceType.OTHER:
                length = sql_func("length", dialect, x=sql_func("text", dialect, x=value.copy()))
                conditions.append(exp.GT(this=length, expression=number(column.type.length)))
        return conditions


@dataclass(frozen=True, slots=True)
class RawRow:
    """The column for the source rows of those that do not fit."""

    name: str
    columns: Mapping[str, str]
    """All columns of the source with their families."""
    required: tuple[str, ...] | None = None
    """Columns of the table that may not be NULL, where rows that are refused when they are staged need it too."""


def read_columns(
    table: Table,
    dialect: str,
    source_columns: Mapping[str, str],
    *,
    column_map: Mapping[str, str] | None = None,
    user_dialect: str | None = None,
) -> Reading:
    """Return how the declared columns are read, or refuse a source that lacks one."""
    inputs = _source(source_columns, table, dialect, column_map, user_dialect)
    return Reading(inputs, tuple(_values(inputs)))


def shape_query(  # noqa: PLR0913 - the keywords are the parts of a shape
    source: exp.Expr | str,
    source_columns: Mapping[str, str],
    table: Table,
    dialect: str,
    *,
    column_map: Mapping[str, str] | None = None,
    transforms_pre: Sequence[object] = (),
    carry: Sequence[str] = (),
    own: Sequence[str] = (),
    corrupt: str | None = None,
    user_dialect: str | None = None,
    failure_column: str | None = None,
    raw: RawRow | None = None,
    reading: Reading | None = None,
) -> exp.Select:
    """Return the query of the declared columns in their order, then `carry`, then `own`, then `failure_column`.

    `failure_column` names an extra column: NULL, or the name of the first column whose value failed. Failed rows pass
    the pre-load transforms untouched, so that none of them is lost and none wins over a good row. `raw` is one more: the
    source row as JSON of a failed one, because the value that could not be read is NULL in its own column.
    `corrupt` is the source column with the text of a line that could not be split into fields; it is a failure too.
    `own` are the source's columns that are not the user's: like `failure_column` and `raw`, no SQL of a user sees them.
    `reading` is what `read_columns` returned for the same columns, and is consumed.
    """
    read = reading or read_columns(table, dialect, source_columns, column_map=column_map, user_dialect=user_dialect)
    inputs, values = read.inputs, list(read.values)
    read_once: list[exp.Expr] = []
    if inputs.dialects.dialect == "spark":
        values, read_once = _read_once(values)
    users = [*table.column_names, *(k for k in carry if k not in table.column_names)]
    names = [*users, *own]
    carried = [_carried_column(inputs, name) for name in names[len(values) :]]
    projections = [exp.alias_(v.sql, c.name, quoted=True) for c, v in zip(table.columns, values, strict=True)]
    if failure_column is not None:
        carried.append(exp.alias_(_failure_text(read, values, corrupt), failure_column, quoted=True))
        names.append(failure_column)
    if raw is not None:
        failing = [failure.copy() for value in values for failure in value.failures]
        if raw.required is not None:
            failing += read.suspicious(raw.required, [value.sql for value in values])
        row = case((exp.or_(*failing), raw_row(raw.columns, dialect))) if failing else exp.cast(exp.null(), "text")
        carried.append(exp.alias_(row, raw.name, quoted=True))
        names.append(raw.name)
    layers = [(USER, _user_query(source, inputs.dialects))]
    if read_once:
        layers.append((READ, exp.select("*", *read_once).from_(USER)))
    layers.append((NORMALIZED, exp.select(*projections, *carried).from_(layers[-1][0])))
    for index, transform in enumerate(transforms_pre, start=1):
        inner = Inner(layers[-1][0], tuple(users), tuple(names[len(users) :]), table, inputs.dialects, failure_column)
        layers += transformed(transform, inner, index)
    query = exp.select(*(column_of(name) for name in names)).from_(layers[-1][0])
    for name, layer in layers:
        query = query.with_(name, layer)
    return query


def unsupported_on(table: Table, dialect: str, transforms_pre: Sequence[object] = ()) -> str:
    """Return what the dialect cannot express and why, or an empty text."""
    for column in table.columns:
        for step in column.normalizers:
            reason = reason_against(step, dialect)
            if reason:
                return f"{type(step).__name__} on column {column.name!r}: {reason}"
    return next((r for t in transforms_pre if (r := reason_against(t, dialect))), "")


def _source(
    columns: Mapping[str, str],
    table: Table,
    dialect: str,
    column_map: Mapping[str, str] | None,
    user_dialect: str | None,
) -> _Source:
    if dialect not in DIALECTS:
        raise PlanError(f"no SQL is known for the dialect {dialect!r}", hint=did_you_mean(dialect, DIALECTS))
    for name in column_map or {}:
        if name not in table.column_names:
            hint = did_you_mean(name, table.column_names)
            raise PlanError(f"column_map names {name!r}, which {table.qualified_name} does not have", hint=hint)
    inputs = _Source(columns, table, column_map or {}, DialectPair(dialect, user_dialect or dialect))
    _refuse_missing(inputs)
    _refuse_mapped(inputs)
    reason = unsupported_on(table, dialect)
    if reason:
        raise PlanError(f"{dialect} cannot express {reason}", origin=table.origin)
    return inputs


def _values(inputs: _Source) -> list[Value]:
    values = []
    for column in inputs.table.columns:
        try:
            values.append(normalised(_input(inputs, column), column, inputs.dialects))
        except PlanError as error:
            what = f"column {column.name!r} of {inputs.table.qualified_name}: {error.what}"
            raise PlanError(what, hint=error.hint, origin=inputs.table.origin) from error
    return values


def _input(inputs: _Source, column: Column) -> Value:
    mapped = inputs.column_map.get(column.name)
    name = inputs.find(mapped if mapped is not None else column.name)
    if name is not None:
        return source_value(name, inputs.columns[name], inputs.dialects.dialect)
    if mapped is not None:
        tree = read_expression(mapped, inputs.dialects.user_dialect, inputs.dialects.dialect)
        return Value(tree, family_of(tree))
    return Value(exp.null(), SourceType.TEXT)


def _refuse_missing(inputs: _Source) -> None:
    missing = [c.name for c in inputs.table.columns if _requires_source(inputs, c)]
    if not missing:
        return
    near = {name: nearest(name, inputs.columns) for name in missing}
    listed = ", ".join(f"{name} (near: {like})" if like else name for name, like in near.items())
    raise PlanError(
        f"the source of {inputs.table.qualified_name} lacks {listed}",
        hint=f"it has: {', '.join(usable(inputs.columns)) or 'no column'}; rename with AS or column_map=, or use derive()",
        origin=inputs.table.origin,
    )


def _requires_source(inputs: _Source, column: Column) -> bool:
    is_computed = any(isinstance(step, Derive | Default) for step in column.normalizers)
    return not is_computed and column.name not in inputs.column_map and inputs.find(column.name) is None


def _refuse_mapped(inputs: _Source) -> None:
    """Refuse a plain name in a column map that the source has no column for; anything else may be an expression."""
    for name, mapped in inputs.column_map.items():
        there = any(column.lower() == mapped.lower() for column in inputs.columns)
        if there or not mapped.isidentifier() or mapped.upper() in _WITHOUT_PARENTHESES:
            continue
        if isinstance(read_expression(mapped, inputs.dialects.user_dialect, inputs.dialects.dialect), exp.Column):
            raise PlanError(
                f"column_map takes {name!r} from {mapped!r}, which the source of {inputs.table.qualified_name} lacks",
                hint=did_you_mean(mapped, usable(inputs.columns)),
                origin=inputs.table.origin,
            )


def _carried_column(inputs: _Source, name: str) -> exp.Expr:
    spelled = inputs.find(name)
    if spelled is None:
        hint = did_you_mean(name, inputs.columns)
        raise PlanError(f"the source of {inputs.table.qualified_name} lacks {name!r}", hint=hint)
    return exp.alias_(column_of(spelled), name, quoted=True)


def _read_once(values: list[Value]) -> tuple[list[Value], list[exp.Expr]]:
    """Return the values over columns of a layer below, and that layer's columns.

    A value that can fail is used twice, for itself and for the failure column. Spark evaluates every mention of an
    expression anew, but reuses a column that is mentioned twice.
    """
    read: list[exp.Expr] = []
    again = []
    for number_, value in enumerate(values):
        inner = value.sql.this if isinstance(value.sql, exp.Cast) else value.sql
        if not value.failures or isinstance(inner, exp.Column):
            again.append(value)
            continue
        name = f"_flow_read_{number_}"
        read.append(exp.alias_(inner.copy(), name, quoted=True))

        def known(node: exp.Expr, inner: exp.Expr = inner, name: str = name) -> exp.Expr:
            return column_of(name) if node == inner else node

        failures = tuple(failure.copy().transform(known) for failure in value.failures)
        again.append(replace(value, sql=value.sql.copy().transform(known), failures=failures))
    return again, read


def _failure_text(read: Reading, values: list[Value], corrupt: str | None) -> exp.Expr:
    """Return what is wrong with a row: the column alone, or with the reason after a colon where it is known here."""
    table, dialect = read.inputs.table, read.inputs.dialects.dialect
    failing: list[tuple[exp.Expr, exp.Expr]] = []
    if corrupt is not None:
        line = column_of(corrupt)
        failing.append((not_null(line), sql_func("join", dialect, x="line: malformed line ", y=line.copy())))
    for column, value in zip(table.columns, values, strict=True):
        if not value.failures:
            continue
        if isinstance(column.type, String):
            length = sql_func("length", dialect, x=value.sql.copy())
            long = exp.GT(this=length.copy(), expression=number(column.type.length))
            message = f"{column.name}: is longer than {column.type.length} characters ("
            begun = sql_func("join", dialect, x=message, y=sql_func("text", dialect, x=length))
            failing.append((long, sql_func("join", dialect, x=begun, y=")")))
        failing.append((exp.or_(*value.failures), exp.Literal.string(column.name)))
    return case(*failing) if failing else exp.cast(exp.null(), "text")


def _user_query(source: exp.Expr | str, dialects: DialectPair) -> exp.Query:
    if isinstance(source, str):
        return read_query(source, dialects.user_dialect, dialects.dialect)
    if isinstance(source, exp.Query):
        return source
    return exp.select("*").from_(source)

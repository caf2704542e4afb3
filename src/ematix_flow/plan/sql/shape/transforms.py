"""Pre-load transforms as layers of a shape; SQL of a user sees the user's columns, never those that travel with them.

A row that could not be read passes every transform: it is left out of what a user's SQL works on and put back after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from ematix_flow.declare.pipeline.transforms import DeduplicateBy, FilterWhere, Limit, SamplePct, SqlWrap
from ematix_flow.errors import PlanError, did_you_mean
from ematix_flow.plan.sql.dialects import case, is_null, not_null, number, sql_func
from ematix_flow.plan.sql.user.query import read_expression, read_order, read_query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.declare.table.schema import Table
    from ematix_flow.plan.sql.shape.normalize import DialectPair

_RANK = "_flow_rank"

Layer = tuple[str, exp.Query]


@dataclass(frozen=True, slots=True)
class Inner:
    """The layer that a transform works on."""

    relation: str
    users: tuple[str, ...]
    """The columns that are the user's."""
    own: tuple[str, ...]
    """The columns that are ours; all of them are text."""
    table: Table
    dialects: DialectPair
    failure_column: str | None

    @property
    def names(self) -> tuple[str, ...]:
        """Return all columns of the layer."""
        return (*self.users, *self.own)

    def rows(self) -> exp.Select:
        """Return all rows of the layer."""
        return exp.select(*(column_of(name) for name in self.names)).from_(self.relation)

    def spare_marked(self, condition: exp.Expr) -> exp.Expr:
        """Return the condition, true also for rows that could not be read."""
        return (
            condition if self.failure_column is None else exp.or_(condition, not_null(column_of(self.failure_column)))
        )


def wraps(transforms: Sequence[object]) -> bool:
    """Return whether one of the transforms is SQL of a user around the rows."""
    plain = DeduplicateBy | FilterWhere | Limit | SamplePct
    return any(isinstance(transform, SqlWrap) and not isinstance(transform, plain) for transform in transforms)


def transformed(transform: object, inner: Inner, index: int) -> list[Layer]:
    """Return the layers of a transform; the last one has the columns of the layer that it works on."""
    dialects, name = inner.dialects, f"_src_pre_{index}"
    match transform:
        case FilterWhere(text):
            condition = read_expression(text, dialects.user_dialect, dialects.dialect)
            return [(name, inner.rows().where(inner.spare_marked(condition)))]
        case Limit(n):
            return [(name, inner.rows().limit(n))]
        case SamplePct(p):
            chosen = exp.LT(this=sql_func("random", dialects.dialect), expression=exp.Literal.number(str(p)))
            return [(name, inner.rows().where(inner.spare_marked(chosen)))]
        case DeduplicateBy():
            return [(name, _deduplicated(transform, inner))]
        case SqlWrap():
            return _wrapped(transform, inner, name)
    raise PlanError(f"{transform!r} is not a pre-load transform")


def _wrapped(transform: SqlWrap, inner: Inner, name: str) -> list[Layer]:
    """Return what a user's SQL makes of the rows that could be read, and with it the rows that could not.

    What the SQL returns are new rows: they have no position in the source, and do not fit as they are or not at all.
    Its columns are named with their relation, because SQLite takes a lone `"name"` that is not there for a text.
    """
    readable, wrapped = f"{name}_rows", f"{name}_wrapped"
    query = read_query(transform.to_sql_wrap(readable), inner.dialects.user_dialect, inner.dialects.dialect)
    good = exp.select(*(column_of(user) for user in inner.users)).from_(inner.relation)
    projected = [exp.alias_(column_of(user, wrapped), user, quoted=True) for user in inner.users]
    nothing = [exp.alias_(exp.cast(exp.null(), "text"), own, quoted=True) for own in inner.own]
    rows: exp.Query = exp.select(*projected, *nothing).from_(wrapped)
    if inner.failure_column is not None:
        marked = column_of(inner.failure_column)
        good = good.where(is_null(marked))
        # Untyped, so that the column has the type that it has in the user's SQL.
        empty = [exp.alias_(exp.null(), user, quoted=True) for user in inner.users]
        failed_rows = exp.select(*empty, *(column_of(own) for own in inner.own)).from_(inner.relation)
        rows = exp.union(rows, failed_rows.where(not_null(marked.copy())), distinct=False)
    return [(readable, good), (wrapped, _as_subquery(query)), (name, rows)]


def _as_subquery(query: exp.Query) -> exp.Query:
    """Return the query with `(relation) AS q` spelled as a subquery, the only form that every dialect reads."""
    for bracket in list(query.find_all(exp.Subquery)):
        if isinstance(bracket.this, exp.Table):
            bracket.replace(exp.select("*").from_(bracket.this.copy()).subquery(bracket.alias or "_inner"))
    return query


def _deduplicated(transform: DeduplicateBy, inner: Inner) -> exp.Select:
    """Return one row per key; ties of the requested order go by the other columns, so a replay agrees."""
    for key in transform.keys:
        if key not in inner.users:
            raise PlanError(f"deduplicate_by() names {key!r}", hint=did_you_mean(key, inner.users))
    terms = (
        read_order(transform.order_by, inner.dialects.user_dialect, inner.dialects.dialect)
        if transform.order_by
        else []
    )
    sortable = [c.name for c in inner.table.columns if c.type.kind not in {"json", "jsonb", "bytes"}]
    terms += [exp.Ordered(this=column_of(name), nulls_first=False) for name in sortable if name not in transform.keys]
    terms = terms or [exp.Ordered(this=column_of(transform.keys[0]), nulls_first=False)]
    by: list[exp.Expr] = [column_of(key) for key in transform.keys]
    if inner.failure_column is not None:
        by.append(case((is_null(column_of(inner.failure_column)), number(0)), otherwise=number(1)))
    rank = exp.Window(this=exp.RowNumber(), partition_by=by, order=exp.Order(expressions=terms))
    ranked = inner.rows().select(exp.alias_(rank, _RANK, quoted=True)).subquery("_ranked")
    first = exp.EQ(this=column_of(_RANK), expression=number(1))
    return exp.select(*(column_of(name) for name in inner.names)).from_(ranked).where(inner.spare_marked(first))


def column_of(name: str, relation: str | None = None) -> exp.Column:
    """Return a column by its exact name."""
    return exp.column(exp.to_identifier(name, quoted=True), table=relation)

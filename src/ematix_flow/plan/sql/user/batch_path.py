"""The way of the batch's rows through the SQL of a stream: which relation of each query has them; it carries columns along it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from sqlglot import exp, parse_one
from sqlglot.optimizer.qualify import qualify

from ematix_flow.plan.sql.dialect.annotate import UNRESOLVED
from ematix_flow.plan.sql.user.stream import SOURCE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

Lookups: TypeAlias = "Mapping[str, Mapping[str, str]]"
"""The columns of each lookup with their types in Spark SQL."""

_PARTS = frozenset(("expressions", "from_", "joins", "laterals", "where", "with_"))
"""What a query may consist of whose rows are followed here."""

_JOINS = frozenset(("", "INNER", "LEFT", "CROSS"))


class NotSupportedError(Exception):
    """A query that is put together in another way."""


class Spine:
    """A query whose columns are all qualified with their relation, and where in it the rows of the batch are."""

    def __init__(self, sql: str, fields: Collection[str], lookups: Lookups) -> None:
        self.lookups = {name.lower(): {one.lower(): kind for one, kind in lookups[name].items()} for name in lookups}
        schema: dict[str, object] = {**self.lookups, SOURCE: dict.fromkeys((one.lower() for one in fields), "string")}
        try:
            tree = qualify(
                parse_one(sql, dialect="spark"), schema=schema, dialect="spark", validate_qualify_columns=False
            )
        except UNRESOLVED as error:
            raise NotSupportedError from error
        if not isinstance(tree, exp.Select):
            raise NotSupportedError
        self.tree = tree
        with_ = tree.args.get("with_")
        self.ctes = {cte.alias.lower(): cte for cte in (with_.expressions if with_ is not None else ())}
        self._followed = 0

    def reads(self, tree: exp.Expr) -> bool:
        """Return whether a part of the query reads the batch."""
        return any(self._is_batch(table) for table in tree.find_all(exp.Table))

    def of(self, select: exp.Expr) -> exp.Expr:
        """Return the one relation of a query that has the rows of the batch."""
        if not isinstance(select, exp.Select) or any(v for k, v in select.args.items() if k not in _PARTS):
            raise NotSupportedError
        sources = [one for one in relations(select) if self.reads(one)]
        if len(sources) != 1:
            raise NotSupportedError
        for join in select.args.get("joins") or ():
            side, kind = (str(join.args.get(name) or "").upper() for name in ("side", "kind"))
            if side not in _JOINS or kind not in _JOINS or join.args.get("method"):
                raise NotSupportedError
        return sources[0]

    def inner(self, relation: exp.Expr) -> exp.Expr | None:
        """Return the query that defines the rows of a relation; None for the batch itself."""
        if not isinstance(relation, exp.Table):
            query: exp.Expr = relation.this
            return query
        self._followed += 1
        cte = self.ctes.get(relation.name.lower())
        return None if cte is None else cte.this

    def refuse_other_reads(self) -> None:
        """Refuse a query that reads the batch in other relations than those that were followed."""
        if self._followed != sum(1 for table in self.tree.find_all(exp.Table) if self._is_batch(table)):
            raise NotSupportedError

    def _is_batch(self, table: exp.Table) -> bool:
        cte = self.ctes.get(table.name.lower())
        return self.reads(cte.this) if cte is not None else table.name.lower() == SOURCE


def carrying_query(sql: str, fields: Collection[str], lookups: Lookups, carried: Sequence[str]) -> str | None:
    """Return the SQL with further columns of the batch behind its own; None where they cannot be followed through it."""
    try:
        spine = Spine(sql, fields, lookups)
        _carry(spine, spine.tree, carried)
        spine.refuse_other_reads()
    except NotSupportedError:
        return None
    return spine.tree.sql(dialect="spark")


def _carry(spine: Spine, select: exp.Expr, carried: Sequence[str]) -> None:
    relation = spine.of(select)
    inner = spine.inner(relation)
    if inner is not None:
        _carry(spine, inner, carried)
    more = [exp.alias_(exp.column(name, table=relation.alias_or_name, quoted=True), name) for name in carried]
    select.set("expressions", [*select.expressions, *more])


def relations(select: exp.Select) -> Iterator[exp.Expr]:
    """Return what a query reads, without what it reads inside of conditions."""
    from_ = select.args.get("from_")
    if from_ is None:
        raise NotSupportedError
    yield from_.this
    for join in select.args.get("joins") or ():
        yield join.this

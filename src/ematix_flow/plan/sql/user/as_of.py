"""The SQL of a stream whose lookups have versions: a row of the batch is joined with those that are valid at its time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp, parse_one

from ematix_flow.errors import PlanError
from ematix_flow.plan.sql.user.stream import SOURCE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ematix_flow.declare.stream.options import Lookup

BOUNDS = ("valid_from", "valid_to")
"""Columns of a table of versions: a version is valid from the first until before the second, which is NULL while it is."""

_NO_TIME = "CAST(NULL AS TIMESTAMP)"
_JOINS = frozenset(("", "INNER", "LEFT", "LEFT OUTER", "LEFT SEMI", "LEFT ANTI", "SEMI", "ANTI"))


def times_of(lookups: Mapping[str, Lookup]) -> dict[str, str]:
    """Return the lookups of versions, each with the column of the batch at whose time they are joined."""
    return {name: lookup.as_of for name, lookup in lookups.items() if lookup.as_of is not None}


def as_of_sql(sql: str, times: Mapping[str, str]) -> str:
    """Return Spark SQL in which every join with a lookup of versions also asks for the version of the row's time."""
    if not times:
        return sql
    tree = parse_one(sql, dialect="spark")
    columns = {name.lower(): column for name, column in times.items()}
    batches = _batches(tree)
    joined: set[int] = set()
    for join in list(tree.find_all(exp.Join)):
        name = _lookup_of(join.this, columns, batches)
        if name:
            _refuse_join(join, name)
            joined.add(id(join.this))
            valid = _validity(join.this.alias_or_name, _joined_batch(join, name, batches), columns[name])
            join.set("on", exp.and_(join.args["on"], valid))
    for table in tree.find_all(exp.Table):
        name = _lookup_of(table, columns, batches)
        if name and id(table) not in joined:
            raise _not_joined(name, "is read by itself")
    return tree.sql(dialect="spark")


def is_as_of(expression: str, column: str) -> bool:
    """Return whether an expression, as Spark reports it without quotes, is the time at which a lookup is joined."""
    return f"coalesce({column}, {_NO_TIME})".lower() in expression.lower()


def _batches(tree: exp.Expr) -> frozenset[str]:
    """Return the names, in lower case, under which rows of the batch are read: its own, and those of CTEs over it."""
    names = {SOURCE}
    # A CTE can only read those before it.
    for cte in tree.find_all(exp.CTE):
        if _reads(cte.this, names):
            names.add(cte.alias.lower())
        else:
            names.discard(cte.alias.lower())
    return frozenset(names)


def _reads(tree: exp.Expr, batches: Collection[str]) -> bool:
    return any(table.name.lower() in batches for table in tree.find_all(exp.Table))


def _lookup_of(relation: exp.Expr, columns: Collection[str], batches: Collection[str]) -> str:
    """Return the lookup of versions that a relation is; empty where it is none."""
    if not isinstance(relation, exp.Table):
        return ""
    name = relation.name.lower()
    return name if name in columns and name not in batches else ""


def _refuse_join(join: exp.Join, name: str) -> None:
    how = " ".join(str(join.args[one]).upper() for one in ("method", "side", "kind") if join.args.get(one))
    if how not in _JOINS:
        raise _not_joined(name, f"is in a {how} JOIN")
    if join.args.get("on") is None:
        raise _not_joined(name, "is joined without ON")


def _not_joined(name: str, how: str) -> PlanError:
    message = f"lookup {name!r} has as_of=, and the SQL of the stream reads it in another way: it {how}"
    return PlanError(message, hint=f"join it to the batch: FROM source AS s [LEFT] JOIN {name} AS l ON l.key = s.key.")


def _joined_batch(join: exp.Join, name: str, batches: Collection[str]) -> str:
    """Return the name of the one relation with rows of the batch that a lookup is joined to."""
    select = join.parent
    assert isinstance(select, exp.Select)  # noqa: S101 - where else joins are
    relations = [select.args["from_"].this, *(one.this for one in select.args.get("joins") or ())]
    batch_names = [str(one.alias_or_name) for one in relations if one is not join.this and _reads(one, batches)]
    if len(batch_names) != 1:
        raise _not_joined(
            name, f"is joined to {'nothing of the batch' if not batch_names else ' and '.join(batch_names)}"
        )
    return batch_names[0]


def _validity(lookup: str, batch: str, column: str) -> exp.Expr:
    """Return the condition of a version that is valid at the time of a row."""
    begin, end = (f"CAST({_quoted(lookup)}.{name} AS TIMESTAMP)" for name in BOUNDS)
    # Spark reads text as a time then, and refuses a number.
    time = f"COALESCE({_quoted(batch)}.{_quoted(column)}, {_NO_TIME})"
    text = f"{begin} <= {time} AND ({_quoted(lookup)}.{BOUNDS[1]} IS NULL OR {time} < {end})"
    return exp.paren(exp.condition(text, dialect="spark"))


def _quoted(name: str) -> str:
    return exp.to_identifier(name, quoted=True).sql(dialect="spark")

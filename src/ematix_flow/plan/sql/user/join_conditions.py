"""Conditions of a user's query that one table alone decides, for its system to leave rows out; Spark tests them all again.

Only conditions that NULL does not fulfil are taken. A row that one of them leaves out can come back as NULLs of an outer join,
and the condition itself, which stays in the query, then drops it.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from sqlglot import exp

from ematix_flow.plan.sql.user.joins import nodes_of
from ematix_flow.plan.sql.user.pushdown import IN, NOT_NULL, Condition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ematix_flow.connect.base.columns import SourceColumn
    from ematix_flow.plan.sql.user.joins import JoinedQuery, JoinedTable

_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,6})?")

_OPERATORS: dict[type[exp.Expr], tuple[str, str]] = {
    exp.EQ: ("=", "="),
    exp.LT: ("<", ">"),
    exp.LTE: ("<=", ">="),
    exp.GT: (">", "<"),
    exp.GTE: (">=", "<="),
}
"""A comparison, and its equivalent with its sides swapped."""

_TIMES = (exp.DataType.Type.DATE, *exp.DataType.TEMPORAL_TYPES)


@dataclass(frozen=True, slots=True)
class TimestampLiteral:
    """A constant that the query calls a date or a timestamp."""

    text: str


def conditions_of(
    query: JoinedQuery, columns: Mapping[int, Sequence[SourceColumn]]
) -> dict[int, tuple[Condition, ...]]:
    """Return the conditions of each table whose columns are known."""
    by_table: dict[int, list[Condition]] = {number: [] for number in columns}
    for near, complete, column, condition in _candidates(query):
        owners = owners_of(near, column, columns, complete=complete)
        if len(owners) != 1:
            continue
        ((table, known),) = owners
        values = [fitted(value, known.family) for value in condition.values]
        if not table.sampled and None not in values:
            by_table[table.number].append(Condition(known.name, condition.operator, tuple(values)))
    return {number: tuple(conditions) for number, conditions in by_table.items()}


def owners_of(
    near: Sequence[JoinedTable],
    column: exp.Column,
    columns: Mapping[int, Sequence[SourceColumn]],
    *,
    complete: bool,
) -> list[tuple[JoinedTable, SourceColumn]]:
    """Return the tables that a column may belong to; none where an unknown relation may have it."""
    called = column.table.lower()
    if column.args.get("db"):
        return []  # a field of a column, or a table by its whole name
    known_tables = {table.number for table in near if table.number in columns and not table.renamed}
    if not called and (not complete or len(known_tables) < len(near)):
        return []
    chosen = [table for table in near if (not called or table.called == called) and table.number in known_tables]
    return [
        (table, known)
        for table in chosen
        for known in columns[table.number]
        if known.name.lower() == column.name.lower()
    ]


def _candidates(query: JoinedQuery) -> Iterator[tuple[Sequence[JoinedTable], bool, exp.Column, Condition]]:
    """Return every simple condition with the tables in its scope, and whether its columns can come from no other."""
    nodes = nodes_of(query.tree)
    for select in query.tree.find_all(exp.Select):
        near = [
            table for table, node in zip(query.tables, nodes, strict=True) if node.find_ancestor(exp.Select) is select
        ]
        joins = select.args.get("joins") or []
        sources = 1 + len(joins) + len(select.args.get("laterals") or [])
        for part in _required_conditions(select, joins):
            for column, condition in _simple(part):
                yield near, sources == len(near), column, condition


def _required_conditions(select: exp.Select, joins: Sequence[exp.Join]) -> Iterator[exp.Expr]:
    """Return what must hold for every row of a SELECT: its WHERE, and what inner joins alone are joined on."""
    where = select.args.get("where")
    inner = all(not join.side and join.kind in ("", "INNER", "CROSS") for join in joins)
    wholes = [where.this] if where is not None else []
    wholes += [join.args["on"] for join in joins if join.args.get("on") is not None] if inner else []
    for whole in wholes:
        yield from _conjuncts(whole)


def _conjuncts(tree: exp.Expr) -> Iterator[exp.Expr]:
    tree = tree.unnest()
    if not isinstance(tree, exp.And):
        yield tree
        return
    yield from _conjuncts(tree.this)
    yield from _conjuncts(tree.expression)


def _simple(part: exp.Expr) -> Iterator[tuple[exp.Column, Condition]]:
    """Return the conditions that a part of a WHERE is, each of a column and constants."""
    if type(part) in _OPERATORS:
        direct, turned = _OPERATORS[type(part)]
        one, other = part.this.unnest(), part.expression.unnest()
        for column, constant, operator in ((one, other, direct), (other, one, turned)):
            value = _constant(constant)
            if isinstance(column, exp.Column) and value is not None:
                yield column, Condition(column.name, operator, (value,))
    elif isinstance(part, exp.Between) and isinstance(part.this, exp.Column):
        low, high = _constant(part.args["low"]), _constant(part.args["high"])
        if low is not None and high is not None and not part.args.get("symmetric"):
            yield part.this, Condition(part.this.name, ">=", (low,))
            yield part.this, Condition(part.this.name, "<=", (high,))
    elif isinstance(part, exp.In) and isinstance(part.this, exp.Column) and part.expressions:
        values = tuple(_constant(one) for one in part.expressions)
        if None not in values:
            yield part.this, Condition(part.this.name, IN, values)
    elif isinstance(part, exp.Not) and isinstance(part.this, exp.Is) and isinstance(part.this.expression, exp.Null):
        column = part.this.this.unnest()
        if isinstance(column, exp.Column):
            yield column, Condition(column.name, NOT_NULL)


def _constant(tree: exp.Expr) -> object:
    """Return the value of a constant; None for everything else."""
    if isinstance(tree, exp.Neg):
        value = _constant(tree.this)
        return -value if isinstance(value, int | Decimal) and not isinstance(value, bool) else None
    if isinstance(tree, exp.Boolean):
        return bool(tree.this)
    if isinstance(tree, exp.Cast) and isinstance(tree.this, exp.Literal) and tree.this.is_string:
        return TimestampLiteral(tree.this.name) if tree.to.this in _TIMES else None
    if not isinstance(tree, exp.Literal):
        return None
    if tree.is_string:
        return tree.name
    return int(tree.name) if tree.name.isdecimal() else _decimal(tree.name)


def _decimal(text: str) -> Decimal | None:
    return Decimal(text) if re.fullmatch(r"\d*\.\d+|\d+\.", text) else None


def fitted(value: object, family: str) -> object:
    """Return a constant as Spark compares it with a column of this family; None where that is not plain."""
    if family not in ("date", "timestamp", "timestamp_tz"):
        return None if isinstance(value, TimestampLiteral) else value
    text = value.text if isinstance(value, TimestampLiteral) else value if isinstance(value, str) else ""
    with suppress(ValueError):
        if family == "date":
            return date.fromisoformat(text) if _DAY.fullmatch(text) else None
        if _DAY.fullmatch(text) or _TIMESTAMP.fullmatch(text):
            # Sessions compute in UTC.
            return datetime.fromisoformat(text).replace(tzinfo=UTC if family == "timestamp_tz" else None)
    return None

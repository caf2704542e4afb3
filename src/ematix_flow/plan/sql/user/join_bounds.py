"""The range of an incremental load as a condition of one table of a join, where that leaves out the same rows.

It does where the query returns the column as the table has it, and makes no row from several: the load's own condition
on the rows that the query returns stays as it is.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from sqlglot import exp

from ematix_flow.plan.assumed_columns import FAMILIES
from ematix_flow.plan.sql.user.join_conditions import fitted, owners_of
from ematix_flow.plan.sql.user.joins import nodes_of
from ematix_flow.plan.sql.user.pushdown import range_sql
from ematix_flow.plan.sql.watermark_values import number_before

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from ematix_flow.connect.base.columns import SourceColumn
    from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
    from ematix_flow.plan.sql.user.joins import JoinedQuery, JoinedTable

_TOGETHER = ("group", "having", "limit", "offset", "distinct", "qualify", "windows", "connect", "match")
"""Parts of a SELECT with which a row of its result is made of several, or depends on others."""

_CARRIED = ("big_int", "date", "timestamp", "timestamp_tz")
"""Declared kinds whose values are those of the source, whenever the source has the same kind."""


def bounding_column(
    query: JoinedQuery, columns: Mapping[int, Sequence[SourceColumn]], pipeline: Pipeline, target: TargetDeclaration
) -> tuple[JoinedTable, SourceColumn] | None:
    """Return the column of a table that the load is bounded by; None where only the result can be bounded."""
    name = target.write.incremental_column or ""
    declared = next((column for column in target.table.columns if column.name == name), None)
    if declared is None or declared.normalizers or pipeline.transforms_pre or declared.type.kind not in _CARRIED:
        return None
    candidate = _projected_column(query, columns, (target.column_map or {}).get(name, name))
    if candidate is None or candidate[1].family != FAMILIES[declared.type.kind]:
        return None
    return candidate


def bound_sql(column: SourceColumn, lo: str | None, hi: str | None, lookback: timedelta | None, dialect: str) -> str:
    """Return the condition on a table for what comes after `lo` up to `hi`; empty where there is none."""
    low, high = _value(lo, column, lookback), _value(hi, column, None)
    if (lo is not None and low is None) or (hi is not None and high is None):
        return ""
    return range_sql(column, low, high, dialect)


def _value(text: str | None, column: SourceColumn, lookback: timedelta | None) -> object:
    if text is None:
        return None
    if column.family == "integer":
        if not text.lstrip("-").isdecimal():
            return None
        return int(text if lookback is None else number_before(text, column, lookback))
    value = fitted(text, column.family)
    if lookback is None or value is None:
        return value
    return value - lookback if isinstance(value, datetime) else None


def _projected_column(
    query: JoinedQuery, columns: Mapping[int, Sequence[SourceColumn]], name: str
) -> tuple[JoinedTable, SourceColumn] | None:
    """Return the column that the query returns under a name, unchanged and row by row."""
    tree = query.tree
    if not isinstance(tree, exp.Select) or any(tree.args.get(part) for part in _TOGETHER):
        return None
    if any(one.find(exp.AggFunc, exp.Window, exp.UDTF) for one in tree.expressions):
        return None
    near = [
        table
        for table, node in zip(query.tables, nodes_of(tree), strict=True)
        if node.find_ancestor(exp.Select) is tree and _is_preserved(tree, node)
    ]
    joins = tree.args.get("joins") or []
    complete = len(near) == 1 + len(joins) and not tree.args.get("laterals")
    candidates: list[tuple[JoinedTable, SourceColumn] | None] = []
    for one in tree.expressions:
        column = one.unalias()
        star = isinstance(column, exp.Star) or (isinstance(column, exp.Column) and isinstance(column.this, exp.Star))
        if star:
            called = column.table if isinstance(column, exp.Column) else ""
            candidates += owners_of(near, exp.column(name, table=called or None), columns, complete=complete)
        elif one.alias_or_name.lower() == name.lower():
            owners = owners_of(near, column, columns, complete=complete) if isinstance(column, exp.Column) else []
            candidates += owners or [None]
    return candidates[0] if len(candidates) == 1 else None


def _is_preserved(tree: exp.Select, node: exp.Table) -> bool:
    """Return whether no join makes NULLs of a table's rows: they could not be distinguished from its own."""
    joins = tree.args.get("joins") or []
    if all(not join.side and join.kind in ("", "INNER", "CROSS") for join in joins):
        return True
    return isinstance(node.parent, exp.From) and all(join.side in ("", "LEFT") for join in joins)

"""Splits a PostgreSQL query into ranges of the pages of its table or of its partitions where the planner proves that this changes no row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ematix_flow.connect.postgres.session import PostgresSession

MIN_PAGES = 256
"""Pages (of 8 KiB) below which a split is not worth a task."""

SPLIT_PAGES = 32_768
"""Pages (256 MiB) above which a part is cut again: slots that are done early take parts from others, and a retry reads less."""

MAX_SPLITS = 1024

_ROWWISE = {"Subquery Scan", "CTE Scan", "Result", "ProjectSet", "Sort", "Gather", "Append"}
"""Plan nodes that treat every row on its own, so that the parts of the rows yield the parts of the result."""

_SCANS = {"Tid Range Scan", "Seq Scan"}
"""How ranges are read: by their pages, or by all of a partition that has hardly any."""

_FAMILY_SQL = """
WITH RECURSIVE family(oid) AS (
  SELECT to_regclass(?)::oid UNION SELECT i.inhrelid FROM pg_inherits i JOIN family f ON i.inhparent = f.oid)
SELECT c.oid::bigint, c.relpersistence <> 't' AND (c.relkind = 'p' OR c.relkind = 'r' AND a.amname = 'heap'),
  CASE c.relkind WHEN 'r' THEN pg_relation_size(c.oid) / current_setting('block_size')::int ELSE 0 END
FROM family f JOIN pg_class c ON c.oid = f.oid LEFT JOIN pg_am a ON a.oid = c.relam
"""
"""Lists a table and its partitions: whether its rows are in pages, and in how many."""


@dataclass(frozen=True, slots=True)
class _TableReference:
    """Where the only table of a query is in its text, and the alias it needs when it becomes a subquery."""

    start: int
    end: int
    alias: str


def split_query(session: PostgresSession, sql: str, parallel: int) -> tuple[str, ...]:
    """Return queries that together return each row of a query once, or the query alone where that is not certain.

    There are `parallel` of them, fewer for a small table and more for one whose parts would be large.
    """
    table = _one_table(sql) if parallel > 1 else None
    if table is None:
        return (sql,)
    family = _family(session, sql[table.start : table.end])
    longest, pages = max(family.values(), default=0), sum(family.values())
    count = min(max(parallel, -(-pages // SPLIT_PAGES)), pages // MIN_PAGES, longest, MAX_SPLITS)
    if count < 2:  # noqa: PLR2004 - one part is the query itself
        return (sql,)
    edges = [longest * number // count for number in range(count)]
    ranges = zip(edges, [*edges[1:], None], strict=True)
    splits = tuple(_within(sql, table, _bounds(low, high, list(family))) for low, high in ranges)
    return splits if _is_rowwise(session, splits[0]) else (sql,)


def _one_table(sql: str) -> _TableReference | None:
    from sqlglot import exp, parse_one
    from sqlglot.errors import SqlglotError

    try:
        tree = parse_one(sql, read="postgres")
    except SqlglotError:
        return None
    steps = {cte.alias for cte in tree.find_all(exp.CTE)}
    tables = [t for t in tree.find_all(exp.Table) if t.args.get("db") or t.name not in steps]
    if len(tables) != 1 or not isinstance(tables[0].this, exp.Identifier):
        return None
    names = [tables[0].args[part].meta for part in ("catalog", "db", "this") if tables[0].args.get(part)]
    if not all("start" in name for name in names):
        return None
    end = names[-1]["end"] + 1
    alias = "" if tables[0].alias else f" AS {sql[names[-1]['start'] : end]}"
    return _TableReference(names[0]["start"], end, alias)


def _family(session: PostgresSession, name: str) -> dict[int, int]:
    """Return an ordinary or partitioned table and its partitions, by their oid, with their pages; none for everything else.

    A range of pages is one of each partition, so that the ranges cover every row of all partitions once.
    """
    rows = session.query(_FAMILY_SQL, (name,))
    return {int(oid): int(pages) for oid, _, pages in rows} if all(fits for _, fits, _ in rows) else {}


def _within(sql: str, table: _TableReference, bounds: str) -> str:
    """Return the query over some of the rows of its table."""
    ranged = f"(SELECT * FROM {sql[table.start : table.end]} WHERE {bounds}){table.alias}"
    return sql[: table.start] + ranged + sql[table.end :]


def _bounds(low: int, high: int | None, family: list[int]) -> str:
    """Return the condition for a range of pages; the last one has no end, so that a growing table is whole.

    A partition that is attached later must not be seen by those parts only that are read after that.
    """
    bounds = f"ctid >= '({low},0)'::tid" + ("" if high is None else f" AND ctid < '({high},0)'::tid")
    if len(family) == 1:
        return bounds
    return f"{bounds} AND tableoid = ANY ('{{{','.join(map(str, family))}}}'::oid[])"


def _is_rowwise(session: PostgresSession, split: str) -> bool:
    """Check by the planner: scans of a page range, and above them nothing that reads more than one row."""
    try:
        plan = session.query(f"EXPLAIN (FORMAT JSON) {split}")[0][0][0]["Plan"]
    except psycopg.Error:
        return False
    kinds = [node["Node Type"] for node in _nodes(plan)]
    # The query names one table, so every scan is one of it or of its partitions; rows from nowhere would be in every part.
    return "Tid Range Scan" in kinds and set(kinds) <= _ROWWISE | _SCANS and not _adds_rows(plan)


def _adds_rows(plan: dict[str, Any]) -> bool:
    appends = (node for node in _nodes(plan) if node["Node Type"] == "Append")
    below = (node for append in appends for node in _nodes(append))
    return any(node["Node Type"] == "Result" and not node.get("Plans") for node in below)


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)

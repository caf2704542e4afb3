"""Splits a PostgreSQL query into ranges of its table's pages where the planner proves that this changes no row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ematix_flow.connect.postgres_session import PostgresSession

MIN_PAGES = 256
"""Pages (of 8 KiB) below which a split is not worth a task."""

PART_PAGES = 32_768
"""Pages (256 MiB) above which a part is cut again: slots that are done early take parts from others, and a retry reads less."""

MOST_PARTS = 1024

_ROWWISE = {"Subquery Scan", "CTE Scan", "Result", "ProjectSet", "Sort", "Gather"}
"""Plan nodes that treat every row on its own, so that the parts of the rows give the parts of the result."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the only table of a query stands in its text, and the alias it needs when it becomes a subquery."""

    start: int
    end: int
    alias: str


def split_query(session: PostgresSession, sql: str, parallel: int) -> tuple[str, ...]:
    """Return queries that together give each row of a query once, or the query alone where that is not certain.

    There are `parallel` of them, fewer for a small table and more for one whose parts would be large.
    """
    place = _one_table(sql) if parallel > 1 else None
    if place is None:
        return (sql,)
    pages = _pages(session, sql[place.start : place.end])
    count = min(max(parallel, -(-pages // PART_PAGES)), pages // MIN_PAGES, MOST_PARTS)
    if count < 2:  # noqa: PLR2004 - one part is the query itself
        return (sql,)
    edges = [pages * number // count for number in range(count)]
    parts = tuple(_within(sql, place, low, high) for low, high in zip(edges, [*edges[1:], None], strict=True))
    return parts if _is_rowwise(session, parts[0]) else (sql,)


def _one_table(sql: str) -> _Place | None:
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
    return _Place(names[0]["start"], end, alias)


def _pages(session: PostgresSession, name: str) -> int:
    """Give the pages of an ordinary table without children; 0 for everything else."""
    rows = session.query(
        "SELECT pg_relation_size(c.oid) / current_setting('block_size')::int FROM pg_class c "
        "JOIN pg_am a ON a.oid = c.relam WHERE c.oid = to_regclass(?) AND a.amname = 'heap' AND c.relkind = 'r' "
        "AND c.relpersistence <> 't' AND NOT c.relhassubclass",
        (name,),
    )
    return int(rows[0][0]) if rows else 0


def _within(sql: str, place: _Place, low: int, high: int | None) -> str:
    """Give the query over a range of pages; the last one has no end, so that a growing table is whole."""
    bounds = f"ctid >= '({low},0)'::tid" + ("" if high is None else f" AND ctid < '({high},0)'::tid")
    ranged = f"(SELECT * FROM {sql[place.start : place.end]} WHERE {bounds}){place.alias}"
    return sql[: place.start] + ranged + sql[place.end :]


def _is_rowwise(session: PostgresSession, part: str) -> bool:
    """Ask the planner: one scan of a page range, and above it nothing that looks at more than one row."""
    try:
        plan = session.query(f"EXPLAIN (FORMAT JSON) {part}")[0][0][0]["Plan"]
    except psycopg.Error:
        return False
    kinds = [node["Node Type"] for node in _nodes(plan)]
    return kinds.count("Tid Range Scan") == 1 and set(kinds) <= _ROWWISE | {"Tid Range Scan"}


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)

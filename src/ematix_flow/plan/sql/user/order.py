"""The order of a query's rows where the query becomes a part of another one."""

from __future__ import annotations

from sqlglot import ParseError, exp, parse_one

ALL_ROWS = 18_446_744_073_709_551_615
"""The limit that MySQL's manual gives for all rows."""


def with_lasting_order(sql: str, dialect: str) -> str:
    """Return the query so that its order outlives a query around it: MySQL forgets it there, unless there is a limit."""
    if dialect != "mysql":
        return sql
    try:
        query = parse_one(sql, read=dialect)
    except ParseError:
        return sql
    ordered = isinstance(query, exp.Query) and query.args.get("order") and not query.args.get("limit")
    return f"{sql}\nLIMIT {ALL_ROWS}" if ordered else sql

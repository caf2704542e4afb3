"""The zone of a source's timestamps without one: turns them into instants before anything else sees them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from ematix_flow.errors import PlanError
from ematix_flow.plan.sql.render import native_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.connect.base.columns import SourceColumn

UTC_NAMES = ("UTC", "Etc/UTC", "Z", "+00:00")
_OFFSET = re.compile(r"[+-]\d\d:\d\d")


def zoned(
    sql: str, columns: Sequence[SourceColumn], timezone: str | None, dialect: str
) -> tuple[str, tuple[SourceColumn, ...]]:
    """Return the query and its columns with every timestamp without a zone read in the connection's zone."""
    naive = [column for column in columns if column.family == "timestamp"]
    if timezone is None or timezone in UTC_NAMES or (not naive and dialect != "sqlite"):
        return sql, tuple(columns)
    _check(timezone, dialect)
    parts = []
    for column in columns:
        name = native_column(column.name, dialect)
        parts.append(f"{_instant(name, timezone, dialect)} AS {name}" if column in naive else name)
    families = {"mysql": "timestamp"}
    moved = tuple(
        replace(column, family=families.get(dialect, "timestamp_tz"), native="timestamptz")
        if column in naive
        else column
        for column in columns
    )
    return f"SELECT {', '.join(parts)} FROM ({sql}) AS _src_zoned", moved


def _instant(name: str, timezone: str, dialect: str) -> str:
    if dialect == "mysql":
        return f"CONVERT_TZ({name}, '{timezone}', '+00:00')"
    return f"timezone('{timezone}', {name})"


def _check(timezone: str, dialect: str) -> None:
    if dialect == "sqlite":
        message = "timezone= cannot be used with SQLite, whose timestamps are text"
        raise PlanError(message, hint="write the offset into the text, for example at || '+02:00' AS at.")
    if dialect == "mysql" and not _OFFSET.fullmatch(timezone):
        # CONVERT_TZ silently returns NULL when the server has no time zone tables.
        message = f"timezone={timezone!r} cannot be used with MySQL, which may not know the zone"
        raise PlanError(message, hint="give an offset such as +02:00, or convert in the query.")

"""Saved queries, charts, dashboards and alerts of the page: one SQLite file, rows with an owner and two instants."""

from __future__ import annotations

import json
import sqlite3
import uuid
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ematix_flow.errors import RunError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

VERSION = 5
"""The version of the tables; older files get what they lack."""
KINDS = ("saved_queries", "charts", "dashboards", "alerts")
_ROWS = (
    "id TEXT PRIMARY KEY, owner TEXT NOT NULL, created_at TEXT NOT NULL, updated_at TEXT NOT NULL, body TEXT NOT NULL"
)
_WAIT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class AnalyticsStore:
    """What people have saved on the page."""

    path: Path

    def all(self, kind: str) -> list[dict[str, Any]]:
        """Return everything of a kind, by its name."""
        with self._open() as connection:
            rows = connection.execute(f"SELECT id, owner, created_at, updated_at, body FROM {_table(kind)}").fetchall()
        return sorted(map(_entry, rows), key=lambda one: (str(one.get("name", "")), str(one["id"])))

    def get(self, kind: str, key: str) -> dict[str, Any]:
        """Return one by its id."""
        sql = f"SELECT id, owner, created_at, updated_at, body FROM {_table(kind)} WHERE id = ?"
        with self._open() as connection:
            row = connection.execute(sql, (key,)).fetchone()
        if row is None:
            raise UnknownNameError(f"there is no {_one(kind)} {key!r}")
        return _entry(row)

    def add(self, kind: str, owner: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Save a new one and return it."""
        key, now = uuid.uuid4().hex, datetime.now(UTC).isoformat()
        with self._open() as connection:
            connection.execute(
                f"INSERT INTO {_table(kind)} VALUES (?, ?, ?, ?, ?)", (key, owner, now, now, json.dumps(dict(body)))
            )
        return self.get(kind, key)

    def change(self, kind: str, key: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Replace one and return it; its owner stays."""
        sql = f"UPDATE {_table(kind)} SET body = ?, updated_at = ? WHERE id = ?"
        with self._open() as connection:
            changed = connection.execute(sql, (json.dumps(dict(body)), datetime.now(UTC).isoformat(), key)).rowcount
        if not changed:
            raise UnknownNameError(f"there is no {_one(kind)} {key!r}")
        return self.get(kind, key)

    def drop(self, kind: str, key: str) -> None:
        """Remove one."""
        with self._open() as connection:
            changed = connection.execute(f"DELETE FROM {_table(kind)} WHERE id = ?", (key,)).rowcount
        if not changed:
            raise UnknownNameError(f"there is no {_one(kind)} {key!r}")

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open the file, with its tables, for one change or one read."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=_WAIT_SECONDS)) as connection, connection:
                _prepare(connection)
                yield connection
        except (sqlite3.Error, OSError) as error:
            raise RunError(f"the file of saved queries {self.path} cannot be used: {error}") from None


def _prepare(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS analytics_schema_version (version INTEGER NOT NULL)")
    row = connection.execute("SELECT MAX(version) FROM analytics_schema_version").fetchone()
    if row[0] is not None and row[0] >= VERSION:
        return
    for kind in KINDS:
        connection.execute(f"CREATE TABLE IF NOT EXISTS {kind} ({_ROWS})")
    connection.execute("DELETE FROM analytics_schema_version")
    connection.execute("INSERT INTO analytics_schema_version VALUES (?)", (VERSION,))


def _table(kind: str) -> str:
    if kind not in KINDS:
        raise UnknownNameError(f"nothing is saved as {kind!r}")
    return kind


def _one(kind: str) -> str:
    return {"saved_queries": "saved query"}.get(kind, kind.removesuffix("s"))


def _entry(row: tuple[str, str, str, str, str]) -> dict[str, Any]:
    key, owner, created_at, updated_at, body = row
    return {**json.loads(body), "id": key, "owner": owner, "created_at": created_at, "updated_at": updated_at}

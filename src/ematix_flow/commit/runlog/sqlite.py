"""The run log in an SQLite file: requests that can be resumed, and the history of runs; derived, never the truth."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import uuid
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.errors import RunError
from ematix_flow.records import Request, RunRecord

if TYPE_CHECKING:
    from datetime import datetime

_RUN = {
    "run_id": "TEXT PRIMARY KEY",
    "pipeline": "TEXT NOT NULL",
    "target": "TEXT NOT NULL DEFAULT ''",
    "request_id": "TEXT",
    "status": "TEXT NOT NULL",
    "started_at": "TEXT NOT NULL",
    "finished_at": "TEXT",
    "attempt": "INTEGER NOT NULL DEFAULT 1",
    "failed_step": "TEXT",
    "failed_watermark": "TEXT",
    "error_summary": "TEXT",
    "kind": "TEXT NOT NULL DEFAULT 'batch'",
    "rows_inserted": "INTEGER",
    "rows_updated": "INTEGER",
    "rows_deleted": "INTEGER",
    "rows_rejected": "INTEGER",
    "extras": "TEXT NOT NULL DEFAULT '{}'",
}
"""Columns of a run; what an older file lacks is added, so every later one has a default or may be NULL."""

_COLUMNS = tuple(_RUN)

_SCHEMA = (
    (
        "CREATE TABLE IF NOT EXISTS requests (request_id TEXT PRIMARY KEY, pipeline TEXT NOT NULL, state TEXT NOT NULL, "
        "opened_at TEXT NOT NULL, closed_at TEXT, host TEXT, pid INTEGER, pid_started TEXT)"
    ),
    "CREATE INDEX IF NOT EXISTS requests_open ON requests (pipeline, state)",
    f"CREATE TABLE IF NOT EXISTS run_records ({', '.join(f'{name} {kind}' for name, kind in _RUN.items())})",
    "CREATE INDEX IF NOT EXISTS run_records_started ON run_records (started_at)",
)

_TABLES = {"requests", "run_records", "run_log", "attempt_state", "pipeline_claims"}
"""Tables by which a run log is known, those of earlier versions included."""


def is_run_log(path: Path) -> bool:
    """Say whether a file is a run log; nothing is created or changed."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            found = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.Error:
        return False
    return not _TABLES.isdisjoint(found)


class SqliteRunLog:
    """Requests and runs in one file; opened for each call, so that many processes can share it."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with closing(self._connect()) as connection, connection:
            for statement in _SCHEMA:
                connection.execute(statement)
            _add_missing(connection)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=30.0, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        return connection

    def open_request(self, pipeline: str, at: datetime, *, new: bool = False) -> Request:
        """Give the interrupted request of this pipeline, or a fresh one."""
        with closing(self._connect()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            row = connection.execute(
                "SELECT request_id, opened_at, host, pid, pid_started FROM requests "
                "WHERE pipeline = ? AND state = 'open' ORDER BY opened_at DESC LIMIT 1",
                (pipeline,),
            ).fetchone()
            if row is not None and _alive(*row[2:]):
                connection.execute("ROLLBACK")
                message = f"pipeline {pipeline!r} is running already, in process {row[3]}"
                raise RunError(
                    message, hint="wait for it, or stop it; running the pipeline again then resumes its work."
                )
            request = self._resume(connection, pipeline, row, at, new=new)
            connection.execute("COMMIT")
        return request

    def _resume(self, connection: sqlite3.Connection, pipeline: str, row: Any, at: datetime, *, new: bool) -> Request:
        owner = (socket.gethostname(), os.getpid(), _process_start(os.getpid()))
        if row is not None and not new:
            connection.execute(
                "UPDATE requests SET host = ?, pid = ?, pid_started = ? WHERE request_id = ?", (*owner, row[0])
            )
            return Request(row[0], pipeline, resumed=True, opened_at=row[1])
        connection.execute("UPDATE requests SET state = 'abandoned' WHERE pipeline = ? AND state = 'open'", (pipeline,))
        request = Request(f"req-{uuid.uuid4().hex}", pipeline, opened_at=at.isoformat())
        connection.execute(
            "INSERT INTO requests (request_id, pipeline, state, opened_at, host, pid, pid_started) "
            "VALUES (?, ?, 'open', ?, ?, ?, ?)",
            (request.id, pipeline, request.opened_at, *owner),
        )
        return request

    def close_request(self, request: Request, at: datetime) -> None:
        """Mark a request as done: the next run of the pipeline is a new one."""
        with closing(self._connect()) as connection:
            connection.execute(
                "UPDATE requests SET state = 'done', closed_at = ? WHERE request_id = ?", (at.isoformat(), request.id)
            )

    def release_request(self, request: Request) -> None:
        """Keep a failed request open for the next run, but owned by no process."""
        with closing(self._connect()) as connection:
            connection.execute("UPDATE requests SET pid = NULL WHERE request_id = ?", (request.id,))

    def next_attempt(self, request: Request, target: str) -> int:
        """Give the number of the attempt at one target of a request that comes next."""
        with closing(self._connect()) as connection:
            row = connection.execute(
                "SELECT COALESCE(MAX(attempt), 0) + 1 FROM run_records WHERE request_id = ? AND target = ?",
                (request.id, target),
            ).fetchone()
        return int(row[0])

    def record(self, run: RunRecord) -> None:
        """Write or replace one run."""
        values = [json.dumps(run.extras, default=str) if name == "extras" else getattr(run, name) for name in _COLUMNS]
        marks = ", ".join("?" for _ in _COLUMNS)
        with closing(self._connect()) as connection:
            connection.execute(f"INSERT OR REPLACE INTO run_records ({', '.join(_COLUMNS)}) VALUES ({marks})", values)

    def list_runs(
        self, *, pipeline: str | None = None, status: str | None = None, limit: int = 50, offset: int = 0
    ) -> tuple[list[RunRecord], int]:
        """Give the newest runs and how many there are in all."""
        conditions = [(name, value) for name, value in (("pipeline", pipeline), ("status", status)) if value]
        where = " WHERE " + " AND ".join(f"{name} = ?" for name, _ in conditions) if conditions else ""
        values = [value for _, value in conditions]
        with closing(self._connect()) as connection:
            total = int(connection.execute(f"SELECT COUNT(*) FROM run_records{where}", values).fetchone()[0])
            rows = connection.execute(
                f"SELECT {', '.join(_COLUMNS)} FROM run_records{where} ORDER BY started_at DESC, rowid DESC "
                "LIMIT ? OFFSET ?",
                [*values, limit, offset],
            ).fetchall()
        return [_record(row) for row in rows], total

    def get_run(self, run_id: str) -> RunRecord | None:
        """Give one run by its id or a unique beginning of it."""
        with closing(self._connect()) as connection:
            rows = connection.execute(
                f"SELECT {', '.join(_COLUMNS)} FROM run_records WHERE run_id LIKE ? || '%' LIMIT 2", (run_id,)
            ).fetchall()
        return _record(rows[0]) if len(rows) == 1 else None


def _record(row: tuple[Any, ...]) -> RunRecord:
    fields = dict(zip(_COLUMNS, row, strict=True))
    record = RunRecord(**{**fields, "extras": {}})
    return replace(record, extras=json.loads(fields["extras"] or "{}"))


def _add_missing(connection: sqlite3.Connection) -> None:
    """Give an older table of runs the columns that it lacks."""

    def missing() -> list[str]:
        found = {row[1] for row in connection.execute("PRAGMA table_info(run_records)")}
        return [name for name in _COLUMNS if name not in found]

    if missing():
        connection.execute("BEGIN IMMEDIATE")
        for name in missing():  # asked again: another process may have been quicker
            connection.execute(f"ALTER TABLE run_records ADD COLUMN {name} {_RUN[name]}")
        connection.execute("COMMIT")


def _alive(host: str | None, pid: int | None, started: str | None) -> bool:
    """Say whether the owner of a request still runs; a process of another host is left to the fence."""
    if pid is None or host != socket.gethostname() or pid == os.getpid():
        return False
    return _process_start(pid) == started and started != ""


def _process_start(pid: int) -> str:
    """Give what tells a process from a later one with the same number; empty when it is gone or unknown."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""

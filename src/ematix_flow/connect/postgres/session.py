"""The driver's control connection to PostgreSQL: settings, deadlines and explicit transactions; no rows pass here."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import TransactionStatus

from ematix_flow.connect.base.session import Session
from ematix_flow.connect.postgres.far_times import show_far_times

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

LOCK_WAIT = "60s"
WORK_KIB = 64 * 1024
"""Memory that one sort or join of a commit may take, where the server's setting is smaller."""

LIVENESS_SECONDS = 20.0
"""How often the state of a running statement is queried; two checks without an answer end the wait."""

TICK_SECONDS = 0.5
CANCEL_SECONDS = 5.0

SETTINGS = {
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "lock_timeout": LOCK_WAIT,
    "idle_in_transaction_session_timeout": "15min",
    # The server gives up a statement whose client is gone, and with it the locks that a restarted run waits for.
    "client_connection_check_interval": "10s",
    "tcp_keepalives_idle": "20",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "4",
}

PREPARE = (
    "SELECT count(set_config(name, value, false)) FROM pg_catalog.pg_settings JOIN (VALUES "
    + ", ".join(f"('{name}', '{value}')" for name, value in SETTINGS.items())
    + ") AS wanted(name, value) USING (name)"
    " WHERE name <> 'client_connection_check_interval' OR version() LIKE '%linux%'"
)
"""Sets everything above that the server's version has, in one statement that every driver can send."""

FREE_SQL = """
SELECT least(
  current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
    - (SELECT sum(numbackends) FROM pg_catalog.pg_stat_database),
  (SELECT nullif(d.datconnlimit, -1) - s.numbackends FROM pg_catalog.pg_database d
    JOIN pg_catalog.pg_stat_database s ON s.datid = d.oid WHERE d.datname = current_database()),
  (SELECT nullif(r.rolconnlimit, -1) - (SELECT count(*) FROM pg_catalog.pg_stat_activity a WHERE a.usesysid = r.oid)
    FROM pg_catalog.pg_roles r WHERE r.rolname = session_user))
"""
"""Queries how many connections can still be opened, from what every user may see."""

# A commit that is acknowledged must survive a crash, whatever the role's own setting.
DURABLE = (
    "SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit') "
    "WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false), "
    # The default of 4 MB makes joins of millions of rows spill into dozens of files: twice the time of a merge.
    f"set_config('work_mem', greatest(pg_size_bytes(current_setting('work_mem')) / 1024, {WORK_KIB})::text || 'kB', false), "
    # Which backend answers, so that its state can be queried.
    "pg_backend_pid(), pg_postmaster_start_time()::text"
)

_TRANSIENT_STATES = frozenset({"40001", "40P01", "55P03", "57P01", "57P02", "57P03", "57P05", "25P03", "25P04"})
_LINK_ERRORS = ("OperationalError", "OSError")
_NOT_NOW = ("starting up", "shutting down", "recovery mode", "too many", "connection slots", "terminating")
_CHANGES = ("INSERT", "UPDATE", "DELETE", "MERGE")
_STATE = (
    "SELECT pg_postmaster_start_time()::text, (SELECT coalesce(state, 'active') FROM pg_stat_activity WHERE pid = %s)"
)
_AT_WORK = ("active", "fastpath function call", "disabled")
_NO_ANSWER = ("FATAL", "Too many open files", "could not translate host name", "Name or service not known")
_PLACEHOLDER = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\?")


@dataclass(slots=True)
class _Statement:
    """A statement that runs now."""

    session: PostgresSession
    checked_at: float
    silent: int = 0


class _Watch:
    """Cuts the connection when the server stops working on a statement without having answered.

    A statement may run for hours, so time alone proves nothing, and a peer that goes silent behind a proxy never breaks
    the connection. A second connection queries whether the first one's statement is still running. One thread does so
    for all statements of the process, and ends when none runs.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[int, _Statement] = {}
        self._awake = False

    @contextmanager
    def over(self, session: PostgresSession) -> Iterator[None]:
        """Watch the statement that runs in this block."""
        key = id(session)
        with self._lock:
            self._running[key] = _Statement(session, time.monotonic())
            if not self._awake:
                threading.Thread(target=self._watch, name="flow-liveness", daemon=True).start()
                self._awake = True
        try:
            yield
        finally:
            self._running.pop(key, None)

    def _watch(self) -> None:
        while True:
            time.sleep(min(LIVENESS_SECONDS, TICK_SECONDS))
            with self._lock:
                if not self._running:
                    self._awake = False
                    return
                running = list(self._running.items())
            for key, statement in running:
                if time.monotonic() - statement.checked_at >= LIVENESS_SECONDS:
                    self._check(key, statement)

    def _check(self, key: int, statement: _Statement) -> None:
        statement.silent = 0 if is_running(statement.session) else statement.silent + 1
        statement.checked_at = time.monotonic()
        if statement.silent > 1 and self._running.get(key) is statement:
            _cut(statement.session.connection)


_WATCH = _Watch()

# A forked process has neither the thread nor the statements, and may have been made while the lock was held.
os.register_at_fork(after_in_child=_WATCH.__init__)  # type: ignore[misc]


class PostgresSession(Session):
    """A connection in autocommit mode, so that every transaction is one that we opened."""

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]], conninfo: str) -> None:
        self.connection = connection
        self.conninfo = conninfo
        self.backend: tuple[int, str] | None = None
        """The process behind this connection and the start of its server; None where a pooler is in between."""

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        """Run a statement and return the rows it changed."""
        cursor = self._run(sql, parameters)
        return max(cursor.rowcount, 0) if (cursor.statusmessage or "").startswith(_CHANGES) else 0

    def prepare(self) -> None:
        """Set what every session of ours has, and find out who answers it."""
        self.query(PREPARE)
        _, _, pid, start = self.query(DURABLE)[0]
        self.backend = (int(pid), str(start)) if int(pid) == self.connection.info.backend_pid else None

    def watched(self) -> AbstractContextManager[None]:
        """Cut the connection when the server stops working in this block without having answered."""
        return _WATCH.over(self)

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a query and return its rows."""
        return self._run(sql, parameters).fetchall()

    def show_all_values(self) -> None:
        """Have later queries give times that Python cannot hold as text."""
        show_far_times(self.connection)

    def free_connections(self) -> int:
        """Return what the server, the database and the role leave of their limits."""
        return max(0, int(self.query(FREE_SQL)[0][0]))

    def columns(self, sql: str) -> list[tuple[str, int, int]]:
        """Return name, type and type modifier of a query's columns; no row is read."""
        result = self._run(f"SELECT * FROM (\n{sql}\n) AS _described LIMIT 0").pgresult
        assert result is not None  # noqa: S101 - a query that did not raise has a result
        names = [(result.fname(i) or b"").decode() for i in range(result.nfields)]
        return [(name, result.ftype(i), result.fmod(i)) for i, name in enumerate(names)]

    def export_snapshot(self) -> str:
        """Return the name of an exported snapshot, which lives as long as this transaction."""
        return str(self.query("SELECT pg_export_snapshot()")[0][0])

    def join_snapshot(self, snapshot: str) -> None:
        """Begin a transaction that only reads, in an exported snapshot."""
        self._run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        self._run(f"SET TRANSACTION SNAPSHOT '{snapshot}'")

    def begin(self) -> None:
        """Open a transaction, whatever the server's defaults are."""
        self._run("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")

    def commit(self) -> None:
        """Commit; an answer that never comes ends as an error, and the caller queries the ledger."""
        self._run("COMMIT")

    def rollback(self) -> None:
        """Roll back; a connection that is broken has already lost its transaction."""
        with suppress(psycopg.Error):
            if self.connection.info.transaction_status != TransactionStatus.IDLE:
                self._run("ROLLBACK")

    def interrupt(self) -> None:
        """Request the server to cancel the statement."""
        self.connection.cancel_safe(timeout=CANCEL_SECONDS)

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _run(self, sql: str, parameters: Sequence[object] = ()) -> psycopg.Cursor[tuple[Any, ...]]:
        text = numbered(sql) if parameters else sql
        with self.watched():
            return self.connection.execute(text.encode(), list(parameters) or None)


@lru_cache(maxsize=256)
def numbered(sql: str) -> str:
    """Return a statement with `?` outside of quotes as `$1`, `$2` and so on."""
    count = 0

    def number(match: re.Match[str]) -> str:
        nonlocal count
        if match.group() != "?":
            return match.group()
        count += 1
        return f"${count}"

    return _PLACEHOLDER.sub(number, sql)


def is_transient(error: BaseException) -> bool:
    """Return whether the same work may succeed when it is tried again; works for both drivers."""
    state = getattr(error, "sqlstate", None)
    if state:
        return state[:2] in ("08", "53") or state in _TRANSIENT_STATES
    if not any(cls.__name__ in _LINK_ERRORS for cls in type(error).__mro__):
        return False
    # Without a state the connection broke or was never made, unless the text shows that the server answered.
    text = str(error)
    refused = "FATAL:" in text or "ERROR:" in text or is_unwritable(error)
    return not refused or any(fragment in text for fragment in _NOT_NOW)


def is_unwritable(error: BaseException) -> bool:
    """Return whether the driver had no form for a value that it was to send: the connection itself has no complaint."""
    return str(error).rstrip().endswith("writing COPY data:")


def is_running(session: PostgresSession) -> bool:
    """Return whether the server still works on the statement of a session, as far as that can be known."""
    if session.backend is None:
        return True
    pid, start = session.backend
    try:
        with psycopg.connect(session.conninfo, autocommit=True) as connection:
            row = connection.execute(_STATE, [pid]).fetchone()
    except psycopg.Error as error:
        # A server that refuses a second connection is there, and what fails on our side proves nothing about it.
        return any(fragment in str(error) for fragment in _NO_ANSWER)
    # Of several servers behind one name another one may have answered.
    return row is None or row[0] != start or row[1] in _AT_WORK


def _cut(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    with suppress(OSError, psycopg.Error):
        handle = socket.socket(fileno=os.dup(connection.fileno()))
        with handle:
            handle.shutdown(socket.SHUT_RDWR)

"""Connections to DuckDB: a process opens a file once, all its sessions share it, and the last one closes it."""

from __future__ import annotations

import os
import re
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import duckdb

from ematix_flow.connect.base.retry import DUCKDB_FILE, attempts
from ematix_flow.connect.base.session import Session
from ematix_flow.connect.types.identifiers import quoted, text
from ematix_flow.errors import TransientError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CATALOG = "flow_file"
"""Name under which a file is attached: its own would clash with a schema that is called like the file."""

IDLE_HOSTS = 8
"""Instances that stay ready for files which were open before: to make one takes fifteen times as long as to attach."""

_SETTINGS = ("TimeZone = 'UTC'", "preserve_insertion_order = false")
_CONFINED = ("python_enable_replacements = false", "enable_external_access = false", "lock_configuration = true")
"""What keeps queries from variables of this process, files and servers, in this order."""

_HELD = re.compile("Could not set lock|Unique file handle conflict")
_DETACHABLE = "SELECT database_name FROM duckdb_databases() WHERE NOT internal AND database_name <> 'memory'"


@dataclass(slots=True)
class _OpenFile:
    """A file that is attached to a DuckDB of this process."""

    host: duckdb.DuckDBPyConnection
    read_only: bool
    confined: bool
    """Whether its instance reaches nothing but this file; settings are an instance's, and cannot be taken back."""
    sessions: int = 0


_LOCK = threading.Lock()
_FILES: dict[str, _OpenFile] = {}
"""Open files by their real path."""

_IDLE: dict[str, duckdb.DuckDBPyConnection] = {}
"""Instances without a file, by the path of the file that they had; opening one would touch the others' files."""

_MEMORY: dict[str, duckdb.DuckDBPyConnection] = {}
"""Databases that live in this process only, by connection name."""

_INHERITED: list[object] = []


def _forget_the_parent() -> None:
    """Begin anew in a forked process: an instance's threads did not come along, and its files are the parent's."""
    global _LOCK  # noqa: PLW0603 - another thread of the parent may have held it
    _LOCK = threading.Lock()
    # Not closed, because that would write to the parent's files.
    _INHERITED.append((dict(_FILES), dict(_IDLE), dict(_MEMORY)))
    for known in (_FILES, _IDLE, _MEMORY):
        known.clear()


os.register_at_fork(after_in_child=_forget_the_parent)


class DuckDBSession(Session):
    """A connection; closed right after use, because an open file locks out every other process."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, release: Callable[[], None]) -> None:
        self.connection = connection
        self._release: Callable[[], None] | None = release

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        """Run a statement; DuckDB returns the number of changed rows as a one-row result."""
        result = self.connection.execute(sql, list(parameters))
        if result.description and result.description[0][0] == "Count":
            row = result.fetchone()
            return int(row[0]) if row else 0
        return 0

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a query and return its rows."""
        return self.connection.execute(sql, list(parameters)).fetchall()

    def begin(self) -> None:
        """Open a transaction."""
        self.connection.execute("BEGIN TRANSACTION")

    def commit(self) -> None:
        """Commit."""
        self.connection.execute("COMMIT")

    def rollback(self) -> None:
        """Roll back; without an open transaction there is nothing to do."""
        try:
            self.connection.execute("ROLLBACK")
        except duckdb.Error:
            return

    def interrupt(self) -> None:
        """End the statement."""
        self.connection.interrupt()

    def close(self) -> None:
        """Close the connection, which ends its temporary tables, and release the file if it was the last."""
        if self._release is not None:
            self.connection.close()
            self._release()
            self._release = None


def open_file(
    path: str, *, read_only: bool = False, confined: bool = False, wait: float | None = None
) -> DuckDBSession:
    """Open a file, waiting a while for another process to release it.

    Confined and other sessions of one process always wait for each other: two instances cannot have one file.
    """
    policy = DUCKDB_FILE if wait is None else replace(DUCKDB_FILE, seconds=wait)
    try:
        for alone in attempts(DUCKDB_FILE, on=(_OtherInstanceError,)):
            with alone:
                for attempt in attempts(policy, on=_is_held):
                    with attempt:
                        session = _shared(os.path.realpath(path), read_only=read_only, confined=confined)
    except (duckdb.Error, _InUseError) as error:
        if not _is_held(error) and not isinstance(error, _OtherInstanceError):
            raise
        raise _held(path, error) from None
    return session


def open_memory(name: str) -> DuckDBSession:
    """Open the database of this name in this process's memory."""
    with _LOCK:
        if name not in _MEMORY:
            _MEMORY[name] = duckdb.connect(":memory:")
        return DuckDBSession(_prepared(_MEMORY[name].cursor()), lambda: None)


class _InUseError(Exception):
    """A session of this process has the file open in a way that does not go together with another one."""


class _OpenForReadingError(_InUseError):
    """It is open for reading only."""


class _OtherInstanceError(_InUseError):
    """It is open in an instance that is confined, or in one that is not."""


def _is_held(error: Exception) -> bool:
    return isinstance(error, _OpenForReadingError) or bool(_HELD.search(str(error)))


def _shared(path: str, *, read_only: bool, confined: bool) -> DuckDBSession:
    with _LOCK:
        file = _FILES.get(path)
        if file is None:
            file = _FILES[path] = _attached(path, read_only=read_only, confined=confined)
        elif file.confined != confined:
            raise _OtherInstanceError
        elif file.read_only and not read_only:
            raise _OpenForReadingError
        file.sessions += 1
    try:
        cursor = file.host.cursor()
        cursor.execute(f"USE {CATALOG}")
        return DuckDBSession(cursor if confined else _prepared(cursor), lambda: _leave(path))
    except BaseException:
        _leave(path)
        raise


def _leave(path: str) -> None:
    with _LOCK:
        file = _FILES[path]
        file.sessions -= 1
        if file.sessions:
            return
        del _FILES[path]
        if file.confined:
            file.host.close()
            return
        try:
            for (name,) in file.host.execute(_DETACHABLE).fetchall():
                file.host.execute(f"DETACH {quoted(name)}")
        except duckdb.Error:
            # An instance that failed badly does nothing any more; what it holds is given back with it.
            file.host.close()
            return
        _IDLE[path] = file.host
        if len(_IDLE) > IDLE_HOSTS:
            _IDLE.pop(next(iter(_IDLE))).close()


def _attached(path: str, *, read_only: bool, confined: bool) -> _OpenFile:
    host = (None if confined else _IDLE.pop(path, None)) or duckdb.connect(":memory:")
    try:
        host.execute(f"ATTACH {text(path)} AS {CATALOG}{' (READ_ONLY)' if read_only else ''}")
        if confined:
            for setting in (*_SETTINGS, *_CONFINED):
                host.execute(f"SET GLOBAL {setting}")
    except duckdb.Error:
        host.close()
        raise
    return _OpenFile(host, read_only, confined)


def _prepared(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    for setting in _SETTINGS:
        connection.execute(f"SET {setting}")
    return connection


def _held(path: str, error: BaseException) -> TransientError:
    pid = re.search(r"PID (\d+)", str(error))
    holder = f"process {pid[1]}" if pid else "another process"
    if isinstance(error, _OtherInstanceError):
        message = f"the DuckDB file {path} is held by another session of this process"
        return TransientError(message, hint="queries of people and loads take turns: try again when it has ended.")
    message = f"the DuckDB file {path} is held by {holder}"
    return TransientError(message, hint="DuckDB lets one process write at a time: close the other one and run again.")

"""Connections to SQLite: how they are opened, and transactions that begin and end only where our code does so."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from ematix_flow.connect.base.retry import SQLITE_JOURNAL, attempts
from ematix_flow.connect.base.session import Session
from ematix_flow.connect.sqlite.functions import register
from ematix_flow.errors import TransientError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

LOCK_WAIT_SECONDS = 30.0
CACHE_KILOBYTES = 65_536

BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DUPLICATE = (
    sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY,
    sqlite3.SQLITE_CONSTRAINT_UNIQUE,
    sqlite3.SQLITE_CONSTRAINT_ROWID,
)

_MEMORY: dict[str, sqlite3.Connection] = {}
"""One connection per database in this process's memory, which keeps it there."""


DEFINE = "UPDATE main.sqlite_master"
"""How a statement begins that changes the definition of a table."""


class SQLiteSession(Session):
    """A connection in autocommit mode, so that transactions begin and end only where our code does so."""

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self.connection = connection
        self._path = path

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        """Run one statement and return the rows it changed."""
        if sql.startswith(DEFINE):
            return self._define(sql)
        before = self.connection.total_changes
        rows = self.connection.execute(sql, cast("Sequence[Any]", parameters)).rowcount
        # Python counts no rows for a statement that begins with WITH.
        return rows if rows >= 0 else self.connection.total_changes - before

    def _define(self, sql: str) -> int:
        """Change the definition of a table where only a condition changes; other connections read it again."""
        self.connection.execute("SAVEPOINT flow_define")
        try:
            self.connection.execute("PRAGMA writable_schema = ON")
            rows = self.connection.execute(sql).rowcount
            version = int(self.connection.execute("PRAGMA main.schema_version").fetchone()[0])
            self.connection.execute(f"PRAGMA main.schema_version = {version + 1}")
            self.connection.execute("RELEASE flow_define")
        except sqlite3.Error:
            self.connection.execute("ROLLBACK TO flow_define")
            self.connection.execute("RELEASE flow_define")
            raise
        finally:
            self.connection.execute("PRAGMA writable_schema = RESET")
        return rows

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a query and return its rows."""
        return self.connection.execute(sql, cast("Sequence[Any]", parameters)).fetchall()

    def fill(self, table: str, width: int, rows: Iterable[Sequence[object]]) -> int:
        """Insert many rows and return how many there were."""
        placeholders = ", ".join("?" * width)
        # Outside a transaction every row would be one of its own.
        self.connection.execute("SAVEPOINT flow_fill")
        count = self.connection.executemany(f"INSERT INTO {table} VALUES ({placeholders})", cast("Any", rows)).rowcount
        self.connection.execute("RELEASE flow_fill")
        return count

    def keep_write_ahead_log(self) -> None:
        """Switch the file to a write-ahead log, with which readers and a writer do not wait for each other.

        While others use the file all the time it stays as it is: then they do wait, and nothing else is different.
        """
        try:
            for attempt in attempts(SQLITE_JOURNAL, on=_is_busy):
                with attempt:
                    self.connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if not _is_busy(error):
                raise

    def begin(self) -> None:
        """Take the write lock now, waiting a while for another process to release it."""
        try:
            self.connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            raise _translate_error(error, self._path) from None

    def commit(self) -> None:
        """Commit; when readers keep SQLite from it, the locks are given back before the error is raised."""
        try:
            self.connection.execute("COMMIT")
        except sqlite3.Error:
            self.rollback()
            raise

    def rollback(self) -> None:
        """Roll back; without an open transaction there is nothing to do."""
        try:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
        except sqlite3.Error:
            return

    def interrupt(self) -> None:
        """End the statement; a wait for a lock goes on."""
        self.connection.interrupt()

    def close(self) -> None:
        """Close the connection, which also ends its temporary tables."""
        self.connection.close()


def open_file(path: Path, *, create: bool = True) -> SQLiteSession:
    """Open a file; a missing one is created or refused."""
    connection = _connect(f"{path.absolute().as_uri()}?mode={'rwc' if create else 'rw'}")
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KILOBYTES}")
    except sqlite3.Error as error:
        connection.close()
        raise _translate_error(error, str(path)) from None
    return SQLiteSession(connection, str(path))


def open_memory(name: str) -> SQLiteSession:
    """Open the database of this name in this process's memory."""
    address = f"file:/ematix-flow/{quote(name, safe='')}?vfs=memdb"
    if name not in _MEMORY:
        _MEMORY[name] = _connect(address)
    return SQLiteSession(_connect(address), f"{name} in memory")


def open_reader(path: Path) -> sqlite3.Connection:
    """Open a file for queries only."""
    # Not opened read-only: a journal that a killed writer left must be rolled back before anything can be read.
    connection = _connect(f"{path.absolute().as_uri()}?mode=rw")
    connection.execute("PRAGMA query_only = ON")
    return connection


def _connect(address: str) -> sqlite3.Connection:
    # Without an isolation level Python neither begins nor ends transactions by itself.
    connection = sqlite3.connect(
        address, uri=True, isolation_level=None, timeout=LOCK_WAIT_SECONDS, check_same_thread=False
    )
    # SQLite itself enforces foreign keys only when it is set to; every other target does.
    connection.execute("PRAGMA foreign_keys = ON")
    register(connection)
    return connection


def _translate_error(error: sqlite3.Error, path: str) -> Exception:
    """Return the error for people when it is about a lock."""
    if primary_code(error) not in BUSY:
        return error
    message = f"the SQLite file {path} is locked by another process"
    hint = "SQLite lets one process write at a time: end the other one's transaction and run again."
    return TransientError(message, hint=hint)


def _is_busy(error: Exception) -> bool:
    return isinstance(error, sqlite3.Error) and primary_code(error) in BUSY


def primary_code(error: sqlite3.Error) -> int:
    """Return the primary result code, without what SQLite adds to it in the higher bits."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_duplicate(error: BaseException) -> bool:
    """Return whether a unique constraint was violated."""
    return isinstance(error, sqlite3.IntegrityError) and error.sqlite_errorcode in _DUPLICATE

"""Passes rows from one PostgreSQL to another as the bytes of binary COPY; no value is inspected on the way.

Measured against Arrow: about a quarter of the client's work and half of the time, for types that need no conversion.
"""

from __future__ import annotations

import select
from contextlib import contextmanager
from typing import TYPE_CHECKING

from psycopg import Error, errors
from psycopg.pq import ExecStatus

from ematix_flow.connect.config.redact import safe_text
from ematix_flow.connect.postgres.session import is_transient
from ematix_flow.connect.postgres.types import stage_type, widening
from ematix_flow.connect.types.identifiers import quoted
from ematix_flow.errors import RunError, TransientError
from ematix_flow.failpoints import failpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from psycopg.pq.abc import PGconn

    from ematix_flow.connect.base.columns import SourceColumn
    from ematix_flow.connect.base.stage import StageColumn, StageSpec
    from ematix_flow.connect.postgres.session import PostgresSession

BLOCK_BYTES = 256 * 1024
TICK_SECONDS = 1.0


def relay_query(columns: Sequence[SourceColumn], spec: StageSpec, sql: str, attempt: int) -> str | None:
    """Return the query whose bytes are those of staged rows, or None where values have to be inspected."""
    if [column.name for column in columns] != [column.name for column in spec.columns]:
        return None
    terms = []
    for column, staged in zip(columns, spec.columns, strict=True):
        term = _term(column, staged)
        if term is None:
            return None
        terms.append(term)
    return f"SELECT {', '.join(terms)}, CAST({int(attempt)} AS BIGINT) FROM (\n{sql}\n) AS _relayed"


def _term(column: SourceColumn, staged: StageColumn) -> str | None:
    """Return the expression for one column whose bytes staging takes or refuses, never alters, or None."""
    target_type, name = stage_type(staged.type), quoted(column.name)
    if column.native == target_type:
        return name
    if widening(column.native, target_type):
        return f"CAST({name} AS {target_type})"
    if column.native.startswith(("TEXT", "VARCHAR")) and staged.type.kind == "string":
        # A text that is too long is refused, unless what is too much are spaces: those would be cut in silence.
        return f"CASE WHEN char_length({name}) > {getattr(staged.type, 'length', 0)} THEN {name} || '.' ELSE {name} END"
    return None


def relay_rows(
    source: PostgresSession, query: str, target: PostgresSession, table: str, count: Callable[[int], None]
) -> int:
    """Copy the rows of a query into a table and return how many there were; the caller commits.

    `count` is called with the rows, and while nothing happens too, so that it may end the wait by an error.
    """
    with source.watched(), target.watched():
        return _Relay(source.connection.pgconn, target.connection.pgconn, count).run(query, table)


@contextmanager
def relay_errors() -> Iterator[None]:
    """Turn errors in a task into ours, so that nothing but their redacted text leaves it."""
    try:
        yield
    except Error as error:
        gone = is_transient(error) or "invalid snapshot" in str(error)
        kind = TransientError if gone else RunError
        raise kind(f"passing rows between PostgreSQL servers failed: {safe_text(error)}") from None


class _Relay:
    """One copy, from the first byte to the last.

    The library's own waiting calls hold up all threads of the process; so it is set not to wait, and we do.
    """

    def __init__(self, reader: PGconn, writer: PGconn, count: Callable[[int], None]) -> None:
        self._reader = reader
        self._writer = writer
        self._count = count
        self._sent = 0

    def run(self, query: str, table: str) -> int:
        """Copy the rows of a query into a table."""
        _start(self._reader, f"COPY ({query}) TO STDOUT (FORMAT binary)", ExecStatus.COPY_OUT)
        _start(self._writer, f"COPY {table} FROM STDIN (FORMAT binary)", ExecStatus.COPY_IN)
        self._writer.nonblocking = 1
        try:
            for rows in self._blocks():
                if not self._writer.put_copy_data(b"".join(rows)):
                    raise RunError("there is no memory to pass rows on")
                self._flush()
                self._sent += len(rows)
                self._count(self._sent)
                failpoint("stage.mid_rows")
            read = self._end(self._reader)
            if not self._writer.put_copy_end():
                raise RunError("there is no memory to pass rows on")
            self._flush()
            written = self._end(self._writer)
        finally:
            self._writer.nonblocking = 0
        if read != written:
            raise RunError(f"rows read: {read}, but passed on: {written}")
        return written

    def _blocks(self) -> Iterator[list[memoryview]]:
        """Return the stream in large chunks; the server sends it row by row, each in memory of its own."""
        rows: list[memoryview] = []
        size = 0
        while True:
            length, row = self._reader.get_copy_data(1)
            if length > 0:
                rows.append(row)
                size += length
                if size >= BLOCK_BYTES:
                    yield rows
                    rows, size = [], 0
            elif length < 0:
                yield rows
                return
            else:
                self._wait(self._reader, select.POLLIN)

    def _flush(self) -> None:
        """Wait until the server has taken what was put; a message of its own must not keep it from reading."""
        while self._writer.flush():
            self._wait(self._writer, select.POLLIN | select.POLLOUT)

    def _end(self, connection: PGconn) -> int:
        """Return the rows that the server counted, once it reports that the copy is complete."""
        count = 0
        while True:
            while connection.is_busy():
                self._wait(connection, select.POLLIN)
            result = connection.get_result()
            if result is None:
                return count
            if result.status != ExecStatus.COMMAND_OK:
                raise errors.error_from_result(result)
            count = result.command_tuples or 0

    def _wait(self, connection: PGconn, events: int) -> None:
        poll = select.poll()
        poll.register(connection.socket, events)
        ready = poll.poll(TICK_SECONDS * 1000)
        if not ready:
            self._count(self._sent)
        elif ready[0][1] & ~select.POLLOUT:
            connection.consume_input()


def _start(connection: PGconn, sql: str, expected: ExecStatus) -> None:
    result = connection.exec_(sql.encode())
    if result.status != expected:
        raise errors.error_from_result(result)

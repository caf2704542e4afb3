"""The rows that tables have when a stream begins with them, as of one position in the log.

A temporary slot gives a snapshot that has exactly what was committed before a position. It ends with its connection, and
so a process that dies leaves nothing behind; docs/cdc-sources.md says why nothing is lost or doubled then.
"""

from __future__ import annotations

import uuid
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg.conninfo import make_conninfo
from pyarrow import csv

from ematix_flow.connect.base.stream_source import MessagePartition
from ematix_flow.connect.change_log.messages import (
    READ,
    TOGETHER,
    TRUNCATE,
    Change,
    Rows,
    as_tables,
    envelope,
    envelope_template,
    epoch_block,
    object_template,
    row_table,
    source_text,
)
from ematix_flow.connect.change_log.tables import table_named
from ematix_flow.connect.changes.debezium import WHOLE
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.connect.postgres.cdc.catalog import (
    logged_columns,
    primary_keys,
    read_types,
    rows_of,
    sql_name,
    table_number,
)
from ematix_flow.connect.postgres.cdc.changes import readable
from ematix_flow.connect.postgres.cdc.pgoutput import format_lsn, parse_lsn
from ematix_flow.connect.postgres.cdc.slot import PLUGIN
from ematix_flow.connect.postgres.session import is_transient
from ematix_flow.connect.types.identifiers import listed, quoted, text
from ematix_flow.errors import RunError, TransientError
from ematix_flow.failpoints import failpoint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ematix_flow.connect.postgres.cdc.changes import LogReader
    from ematix_flow.connect.postgres.session import PostgresSession

PAGES = 16_384
"""Pages of a table, of 8 KiB each, that are worth a task of their own."""

MOST_PARTITIONS = 8

_BLOCK_BYTES = 16 << 20
"""Bytes of rows that are turned into messages together, at most, unless one row has more."""

_NEW_SLOT = "SELECT restart_lsn::text, (extract(epoch FROM clock_timestamp()) * 1000)::bigint FROM pg_replication_slots WHERE slot_name = ?"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state of the database that any connection can read while its exporter lives."""

    name: str
    lsn: int
    """It has what was committed before this position, and nothing else."""
    low_lsn: int
    """No change that was committed from `lsn` on is at or before this position in the log."""
    at_ms: int


class SnapshotExporter:
    """A connection that holds a snapshot until it is closed."""

    def __init__(self, reader: LogReader, session: PostgresSession) -> None:
        self._connection = _replication_connection(reader)
        try:
            self.snapshot = self._export(reader, session)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give up the snapshot."""
        self._connection.close()

    @property
    def is_alive(self) -> bool:
        """Return whether the snapshot can still be read, as far as is known."""
        return not self._connection.closed

    def _export(self, reader: LogReader, session: PostgresSession) -> Snapshot:
        slot = f"flow_snapshot_{uuid.uuid4().hex}"
        with readable(reader):
            try:
                command = f"CREATE_REPLICATION_SLOT {quoted(slot)} TEMPORARY LOGICAL {PLUGIN} EXPORT_SNAPSHOT"
                _, point, name, _ = self._connection.execute(command.encode()).fetchone() or ("", "0/0", "", "")
            except psycopg.errors.ConfigurationLimitExceeded:
                message = "the server has no free replication slot for the snapshot that a stream begins with"
                raise RunError(message, hint="raise max_replication_slots by one, or drop a slot.") from None
            low, at_ms = session.query(_NEW_SLOT, (slot,))[0]
        failpoint("cdc.snapshot_exported")
        return Snapshot(str(name), parse_lsn(point), parse_lsn(low) - 1, int(at_ms))


def plan_snapshot(
    session: PostgresSession,
    reader: LogReader,
    snapshot: Snapshot,
    tables: Sequence[str],
    requested: Sequence[str],
    *,
    cleared: bool,
) -> tuple[MessagePartition, ...]:
    """Return the rows of tables in a snapshot, in partitions of which each is read by its own connection.

    With `cleared` the end of all earlier rows comes first, for targets that may have rows whose end was never read.
    """
    partitions = []
    for table in tables:
        if cleared:
            read = partial(read_end_of_rows, reader, snapshot, table, tuple(requested))
            partitions.append(MessagePartition(f"{table}/end", 1, read))
        for first, last in _page_ranges(session, table):
            label = f"{table}/{'rows' if first is None else f'{first}-{last}'}"
            read = partial(read_rows, reader, snapshot, table, (first, last), tuple(requested))
            partitions.append(MessagePartition(label, 0, read))
    return tuple(partitions)


def read_end_of_rows(reader: LogReader, snapshot: Snapshot, table: str, requested: Sequence[str]) -> Iterator[pa.Table]:
    """Return the message that a table has none of its earlier rows any more, right before those of a snapshot."""
    with readable(reader), closing(reader.database().session()) as session:
        source = source_text(_source(reader, session, replace(snapshot, low_lsn=snapshot.low_lsn - 1), table))
    location = f'"snapshot": "{format_lsn(snapshot.lsn)}", "number": -1'
    end = Change(envelope(TRUNCATE, None, None, source, snapshot.at_ms), None, snapshot.at_ms, table, location)
    yield from as_tables([end], requested)


def read_rows(
    reader: LogReader,
    snapshot: Snapshot,
    table: str,
    pages: tuple[int | None, int | None],
    requested: Sequence[str],
) -> Iterator[pa.Table]:
    """Return the rows of a table in a snapshot, in some of its pages or all of them; runs inside a task."""
    with closing(reader.database().session()) as session:
        with readable(reader):
            session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            _use(session, snapshot, table)
            session.execute(
                "SET LOCAL row_security = off"
            )  # a policy would hide rows, of which the log has all changes
        yield from _tables(session, reader, snapshot, table, pages, requested)


def _use(session: PostgresSession, snapshot: Snapshot, table: str) -> None:
    """Let a transaction see a snapshot; one whose exporter has lost its connection is gone, and another can be had."""
    try:
        session.execute(f"SET TRANSACTION SNAPSHOT {text(snapshot.name)}")
    except psycopg.Error as error:
        message = f"the snapshot in which {table} is read is gone: {safe_text(error)}"
        raise TransientError(
            message, hint="the connection that held it has ended; the stream begins with another one."
        ) from None


def _tables(
    session: PostgresSession,
    reader: LogReader,
    snapshot: Snapshot,
    table: str,
    pages: tuple[int | None, int | None],
    requested: Sequence[str],
) -> Iterator[pa.Table]:
    id_ = table_named(table)
    with readable(reader):
        columns, types = logged_columns(session, id_), read_types(session)
        key = primary_keys(session).get(table_number(session, id_), ())
        own_rows = rows_of(session, id_)
        source = source_text(_source(reader, session, snapshot, table))
    names = [name for name, _ in columns]
    envelopes, keys = envelope_template(READ, names, source, snapshot.at_ms), object_template(key)
    number = 0
    for rows in _blocks(session, reader, f"SELECT {listed(names)} FROM {own_rows}{_where(pages)}", len(names)):
        plain = [types.fragments(oid, column) for (_, oid), column in zip(columns, rows, strict=True)]
        fragments = [
            types.converted(oid, column) if one is None else one
            for one, (_, oid), column in zip(plain, columns, rows, strict=True)
        ]
        by_name = dict(zip(names, fragments, strict=True))
        fields = pa.StructArray.from_arrays(fragments, names) if all(one is not None for one in plain) else None
        size = len(rows[0])
        numbers = pa.array(range(number, number + size)).cast(pa.string())
        at = pc.binary_join_element_wise(f'{{"snapshot": "{format_lsn(snapshot.lsn)}", "number": ', numbers, "}", "")
        of_row = keys.filled([by_name[name] for name in key]) if key else pa.nulls(size, pa.string())
        yield row_table(Rows(envelopes.filled(fragments), of_row, at, fields, table, snapshot.at_ms), requested)
        number += size


def _blocks(session: PostgresSession, reader: LogReader, sql: str, width: int) -> Iterator[list[pa.Array]]:
    """Return the rows of a query, some thousands at a time: the texts of each column."""
    block: list[bytes] = []
    size = 0
    with (
        readable(reader),
        session.watched(),
        session.connection.cursor().copy(f"COPY ({sql}) TO STDOUT (FORMAT csv)".encode()) as copy,
    ):
        for line in copy:
            block.append(bytes(line))
            size += len(line)
            if len(block) >= TOGETHER or size >= _BLOCK_BYTES:
                yield _columns(b"".join(block), width)
                block, size = [], 0
    if block:
        yield _columns(b"".join(block), width)


def _columns(lines: bytes, width: int) -> list[pa.Array]:
    """Return the columns of lines of CSV as texts; what is empty and has no quotes is NULL."""
    names = [str(number) for number in range(width)]
    table = csv.read_csv(
        pa.BufferReader(lines),
        csv.ReadOptions(use_threads=False, block_size=len(lines) + 1, column_names=names),
        csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return [column.combine_chunks() for column in table.columns]


def _source(reader: LogReader, session: PostgresSession, snapshot: Snapshot, table: str) -> dict[str, Any]:
    """Return what the messages of a snapshot say about where they come from."""
    id_ = table_named(table)
    return {
        "connector": "postgresql",
        "name": reader.connection.name,
        "db": session.query("SELECT current_database()")[0][0],
        "schema": id_.schema,
        "table": id_.name,
        "lsn": snapshot.low_lsn,
        "sequence": f'["{snapshot.lsn}","{snapshot.low_lsn}"]',
        "txId": None,
        "ts_ms": snapshot.at_ms,
        "ts_us": snapshot.at_ms * 1000,
        "snapshot": "true",
        WHOLE: True,
        **epoch_block(reader.epoch),
    }


def _where(pages: tuple[int | None, int | None]) -> str:
    first, last = pages
    begin = [] if first is None else [f"ctid >= '({first},0)'::tid"]
    end = [] if last is None else [f"ctid < '({last},0)'::tid"]
    return f" WHERE {' AND '.join(begin + end)}" if begin or end else ""


def _page_ranges(session: PostgresSession, table: str) -> list[tuple[int | None, int | None]]:
    """Return ranges of pages; the last one is open, because a table grows."""
    sql = (
        "SELECT CASE WHEN relkind = 'r' THEN pg_relation_size(oid) / current_setting('block_size')::bigint ELSE 0 END "
        "FROM pg_class WHERE oid = to_regclass(?)"
    )
    rows = session.query(sql, (sql_name(table_named(table)),))
    count = min(MOST_PARTITIONS, int(rows[0][0]) // PAGES if rows else 0)
    if count < 2:  # noqa: PLR2004 - one range is the whole table
        return [(None, None)]
    edges = [int(rows[0][0]) * number // count for number in range(1, count)]
    return list(zip([None, *edges], [*edges, None], strict=True))


def _replication_connection(reader: LogReader) -> psycopg.Connection[tuple[Any, ...]]:
    """Return a connection that speaks the replication protocol and waits for as long as a snapshot is read."""
    conninfo = make_conninfo(
        reader.database().conninfo(), replication="database", options="-c idle_in_transaction_session_timeout=0"
    )
    try:
        return psycopg.connect(conninfo, autocommit=True, prepare_threshold=None)
    except psycopg.OperationalError as error:
        message = f"connection {reader.connection.name!r} does not take a replication connection: {safe_text(error)}"
        if is_transient(error):
            raise TransientError(message) from None
        hint = "the role needs REPLICATION, and pg_hba.conf has to let it in as for its database."
        raise RunError(message, hint=hint) from None

"""Rows of the binary log, and the rows that tables have when a stream begins with them, as messages."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pymysql.cursors import SSCursor
from pymysqlreplication.constants import FIELD_TYPE
from pymysqlreplication.row_event import DeleteRowsEvent, WriteRowsEvent

from ematix_flow.connect.base.retry import SNAPSHOT_BEHIND, attempts
from ematix_flow.connect.change_log.messages import (
    CREATE,
    DELETE,
    READ,
    TRUNCATE,
    UPDATE,
    Change,
    as_tables,
    envelope,
    epoch_block,
    json_object,
    source_text,
)
from ematix_flow.connect.change_log.tables import table_named
from ematix_flow.connect.changes.debezium import WHOLE
from ematix_flow.connect.mysql.cdc.binlog import read_log, readable
from ematix_flow.connect.mysql.cdc.entries import LoggedRows, LoggedTruncate, LogPosition, TransactionEnd
from ematix_flow.connect.mysql.cdc.logged_values import ColumnReader
from ematix_flow.connect.mysql.cdc.values import (
    BINARY,
    BIT,
    DATE,
    FIRST_YEAR,
    JSON,
    OTHER,
    SET,
    SINGLE,
    TIMESTAMP,
    YEAR,
    fragment,
)
from ematix_flow.connect.types.identifiers import backticked
from ematix_flow.errors import RunError, TransientError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from ematix_flow.connect.change_log.tables import TableId
    from ematix_flow.connect.mysql.cdc.binlog import LogReader
    from ematix_flow.connect.mysql.cdc.walk import ChangeTimes
    from ematix_flow.connect.mysql.session import MySQLSession

    Values = dict[str, str]
    _Read = Callable[[Mapping[str, Any], Mapping[str, Any]], Values]

_KINDS = {
    FIELD_TYPE.TIMESTAMP: TIMESTAMP, FIELD_TYPE.TIMESTAMP2: TIMESTAMP, FIELD_TYPE.FLOAT: SINGLE, FIELD_TYPE.BIT: BIT,
    FIELD_TYPE.STRING: BINARY, FIELD_TYPE.YEAR: YEAR, FIELD_TYPE.SET: SET, FIELD_TYPE.JSON: JSON,
}  # fmt: skip
_KINDS_OF_NAMES = {
    "timestamp": TIMESTAMP, "datetime": DATE, "date": DATE, "float": SINGLE, "bit": BIT, "binary": BINARY, "json": JSON,
}  # fmt: skip
_EMPTY_SET = "empty set"

_COLUMNS = """
SELECT column_name, data_type, column_key FROM information_schema.columns
WHERE table_schema = ? AND table_name = ? ORDER BY ordinal_position
"""


class _BehindError(TransientError):
    """A snapshot that lacks what the log has already."""


def read_changes(
    reader: LogReader,
    begin: TransactionEnd,
    end: LogPosition,
    tables: Sequence[str],
    requested: Sequence[str],
    times: ChangeTimes,
) -> Iterator[pa.Table]:
    """Return the changes of tables between two positions; runs inside a task.

    A change has the time at which its statement began, or that of a change of its table before it in the log, if that is later.
    """
    changes = _changes(reader, begin, end, [table_named(table) for table in tables], times)
    yield from as_tables(changes, requested)


def read_rows(
    reader: LogReader,
    at: LogPosition,
    table: str,
    requested: Sequence[str],
    *,
    cleared: bool,
    seconds: int | None = None,
) -> Iterator[pa.Table]:
    """Return the rows of a table; runs inside a task.

    They are of one moment at or after the position. What was changed in between comes again as changes, each of which has
    a later place in the log than these rows. Their time is given in seconds since 1970, or it is now.
    """
    yield from as_tables(_rows(reader, at, table_named(table), seconds, cleared=cleared), requested)


def _changes(
    reader: LogReader, begin: TransactionEnd, end: LogPosition, tables: Sequence[TableId], times: ChangeTimes
) -> Iterator[Change]:
    with closing(ColumnReader(reader)) as values:
        for entry in times.of(read_log(reader, begin, tables)):
            match entry:
                case TransactionEnd(position) if position >= end:
                    return
                case LoggedTruncate():
                    source = _Origin(entry.table, entry.at, entry.at_ms, entry.gtid).source(reader)
                    yield _change(TRUNCATE, None, None, (), source, entry.table)
                case LoggedRows():
                    yield from _of_event(reader, values, entry)
    message = f"the log of {reader.connection.name!r} ends before {end.file} {end.pos}, which was there before"
    raise RunError(
        message, hint="the server may have been restarted without its newest transactions; run the stream again."
    )


def _of_event(reader: LogReader, values: ColumnReader, entry: LoggedRows) -> Iterator[Change]:
    event = entry.event
    if not event.complete or any(not column.name for column in event.columns):
        message = f"the log does not name the columns of {entry.table}"
        raise RunError(
            message, hint="it was written before binlog_row_metadata = FULL; read the tables again: rewind to earliest."
        )
    key = _names(event.primary_key)
    origin = _Origin(entry.table, entry.at, entry.at_ms, entry.gtid)
    number = entry.first
    read = partial(_values, values, entry.table, event.columns)
    for row in event.rows:
        for operation, before, after in _events(event, row, key, read):
            source = origin.source(reader, number)
            yield _change(operation, before, after, key, source, entry.table)
        number += 1  # a row has one number, and its key may make two changes of it


def _events(
    event: Any, row: Mapping[str, Any], key: Sequence[str], read: _Read
) -> list[tuple[str, Values | None, Values | None]]:
    if isinstance(event, WriteRowsEvent):
        return [(CREATE, None, read(row["values"], row["none_sources"]))]
    if isinstance(event, DeleteRowsEvent):
        return [(DELETE, read(row["values"], row["none_sources"]), None)]
    before = read(row["before_values"], row["before_none_sources"])
    after = read(row["after_values"], row["after_none_sources"])
    if any(before[name] != after[name] for name in key):
        return [(DELETE, before, None), (CREATE, None, after)]
    return [(UPDATE, before, after)]


def _values(
    reader: ColumnReader, table: TableId, columns: Sequence[Any], row: Mapping[str, Any], absent: Mapping[str, Any]
) -> Values:
    values = {}
    for column in columns:
        value, kind = row[column.name], column.logged_type
        if kind == FIELD_TYPE.SET and value is None and str(absent.get(column.name)) == _EMPTY_SET:
            value = set()
        if value is not None:
            value = reader.value(table, column, value)
        width = FIRST_YEAR if kind == FIELD_TYPE.YEAR else int(getattr(column, "max_length", 0) or 0)
        members = reader.members(table, column) if kind == FIELD_TYPE.SET else ()
        values[column.name] = fragment(value, _KINDS.get(kind, OTHER), width, members)
    return values


def _rows(
    reader: LogReader, at: LogPosition, table: TableId, seconds: int | None, *, cleared: bool
) -> Iterator[Change]:
    with readable(reader), closing(reader.session()) as session:
        # In whole seconds, as the log has its times: a change that follows must not seem to be earlier.
        at_ms = 1000 * (seconds or int(session.query("SELECT UNIX_TIMESTAMP()")[0][0]))
        if cleared:
            source = _Origin(table, LogPosition(at.file, at.pos - 1), at_ms, snapshot=True).source(reader)
            yield _change(TRUNCATE, None, None, (), source, table)
        columns = session.query(_COLUMNS, (table.schema, table.name))
        key = [str(name) for name, _, column_key in columns if column_key == "PRI"]
        kinds = [(str(name), _KINDS_OF_NAMES.get(str(kind).lower(), OTHER)) for name, kind, _ in columns]
        listed = ", ".join(_expression(name, kind) for name, kind in kinds)
        session.wire.query("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        _begin_snapshot(session, reader, at, table)
        cursor = session.wire.cursor(SSCursor)
        cursor.execute(f"SELECT {listed} FROM {backticked(table.schema)}.{backticked(table.name)}")
        source = _Origin(table, at, at_ms, snapshot=True).source(reader)
        for row in cursor:
            after = {name: fragment(value, kind) for (name, kind), value in zip(kinds, row, strict=True)}
            yield _change(READ, None, after, key, source, table)


def _begin_snapshot(session: MySQLSession, reader: LogReader, at: LogPosition, table: TableId) -> None:
    """Begin a transaction that sees what the log has of a table before a position; a commit is in the log before it is seen."""
    for attempt in attempts(SNAPSHOT_BEHIND, on=(_BehindError,)):
        with attempt:
            session.wire.query("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
            if _lacks_changes(session, reader, at, table):
                session.wire.query("ROLLBACK")
                message = f"{table} does not show yet what {at.file} has of it before {at.pos}"
                raise _BehindError(message, hint="a commit waits, perhaps for a replica that has to confirm it.")


def _lacks_changes(session: MySQLSession, reader: LogReader, at: LogPosition, table: TableId) -> bool:
    """Return whether there are changes of a table between the place of a snapshot, which MariaDB knows, and a position."""
    shown = {str(name).lower(): value for name, value in session.query("SHOW STATUS LIKE 'binlog_snapshot_%'")}
    if not shown.get("binlog_snapshot_file"):
        return False
    place = LogPosition(str(shown["binlog_snapshot_file"]), int(shown["binlog_snapshot_position"]))
    if place >= at:
        return False
    for entry in read_log(reader, TransactionEnd(place), [table]):
        if not isinstance(entry, TransactionEnd):
            return True
        if entry.position >= at:
            return False
    return False


def _expression(name: str, kind: str) -> str:
    """Return a column so that a query gives it as exactly as the log does."""
    column = backticked(name)
    match kind:
        case "single":
            return f"CAST({column} AS DOUBLE)"
        case "bit":
            return f"CAST({column} AS UNSIGNED)"
    return column


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where a change comes from."""

    table: TableId
    at: LogPosition
    at_ms: int
    gtid: str | None = None
    snapshot: bool = False

    def source(self, reader: LogReader, row: int = 0) -> dict[str, object]:
        """Return it as envelopes say it."""
        return {
            "connector": "mysql",
            "name": reader.connection.name,
            "db": self.table.schema,
            "schema": None,
            "table": self.table.name,
            "file": self.at.file,
            "pos": self.at.pos,
            "row": row,
            "gtid": self.gtid,
            "ts_ms": self.at_ms,
            "snapshot": "true" if self.snapshot else "false",
            WHOLE: True,
            **epoch_block(reader.epoch),
        }


def _change(
    operation: str,
    before: Values | None,
    after: Values | None,
    key: Sequence[str],
    source: Mapping[str, object],
    table: TableId,
) -> Change:
    row = before if after is None else after
    row_key = json_object({name: row[name] for name in key}) if row is not None and key else None
    at_ms = int(str(source["ts_ms"]))
    location = f'"file": "{source["file"]}", "pos": {source["pos"]}, "row": {source["row"]}'
    return Change(envelope(operation, before, after, source_text(source), at_ms), row_key, at_ms, str(table), location)


def _names(key: Any) -> tuple[str, ...]:
    """Return the columns of a primary key, which the library gives as one name, several, or nothing."""
    if not key:
        return ()
    return (key,) if isinstance(key, str) else tuple(key)

"""Reads the binary log of a server from one position to another, by mysql-replication; nothing is moved by reading."""

from __future__ import annotations

import random
import re
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import total_ordering
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pymysql
from pymysql.cursors import Cursor, DictCursor
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import GtidEvent, MariadbGtidEvent, QueryEvent, RotateEvent, XidEvent
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from ematix_flow.connect.base.stream_source import REWIND
from ematix_flow.connect.change_log.tables import TableId
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.connect.mysql.session import MySQLSession, connect, is_transient, read_url
from ematix_flow.errors import RunError, StreamLostError, TransientError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ematix_flow.declare.connection.change_logs import MySQLCDCConnection

SETTINGS = {"log_bin": "ON", "binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_metadata": "FULL"}
"""What the server has to have, so that its log says all values of a row and the names of their columns."""

_REFUSED = {"binlog_row_value_options": "PARTIAL_JSON", "log_bin_compress": "ON"}
_FATAL_READ = 1236
"""The error of a server that cannot read its log where it was asked to."""

_FIRST_ID, _LAST_ID = 1 << 31, (1 << 32) - 2
_TRUNCATE = re.compile(
    r"\s*TRUNCATE\s+(?:TABLE\s+)?(?:(?P<schema>`(?:[^`]|``)+`|[\w$]+)\s*\.\s*)?(?P<table>`(?:[^`]|``)+`|[\w$]+)\s*"
    r"(?:WAIT\b.*|NOWAIT\b.*|/\*.*\*/\s*)?;?\s*$",
    re.IGNORECASE | re.DOTALL,
)
_SAVEPOINT = re.compile(r"(?P<back>ROLLBACK\s+TO\s+)?(?:SAVEPOINT\s+)?(?P<name>`(?:[^`]|``)+`)", re.IGNORECASE)
"""How the log says that a savepoint was set, or that what came after one was rolled back."""
_NUMBER = re.compile(r"(\d+)$")


@total_ordering
@dataclass(frozen=True, slots=True)
class LogPosition:
    """A position between two events of the log."""

    file: str
    pos: int

    @property
    def _order(self) -> tuple[int, int]:
        match = _NUMBER.search(self.file)
        return int(match[1]) if match else 0, self.pos

    def __lt__(self, other: LogPosition) -> bool:
        return self._order < other._order


@dataclass(frozen=True, slots=True)
class LoggedRows:
    """Rows that one event changed."""

    table: TableId
    event: Any
    """The event of the library."""
    at: LogPosition
    """Where the event begins."""
    gtid: str | None
    at_ms: int


@dataclass(frozen=True, slots=True)
class LoggedTruncate:
    """A table that was emptied."""

    table: TableId
    at: LogPosition
    gtid: str | None
    at_ms: int


@dataclass(frozen=True, slots=True)
class TransactionEnd:
    """The end of a transaction: a position at which a range can end."""

    position: LogPosition


LogEntry: TypeAlias = LoggedRows | LoggedTruncate | TransactionEnd


@dataclass(frozen=True, slots=True)
class LogReader:
    """How the log of a server is read; it goes to the tasks that read."""

    connection: MySQLCDCConnection

    def session(self) -> MySQLSession:
        """Open a control connection."""
        return MySQLSession(connect(read_url(self.connection.url, self.connection.name), self.connection.name))

    @property
    def default_schema(self) -> str:
        """Return the database of the URL."""
        return read_url(self.connection.url, self.connection.name).database

    def wire(self, **options: Any) -> Any:
        """Open a connection for the library, which wishes for a cursor and a database of its own now and then."""
        wire = cast("Any", connect(read_url(self.connection.url, self.connection.name), self.connection.name))
        wire.cursorclass = options.get("cursorclass", Cursor)
        if options.get("cursorclass") is DictCursor:
            wire.select_db("information_schema")
        return wire


@contextmanager
def readable(reader: LogReader) -> Iterator[None]:
    """Translate errors of the server."""
    try:
        yield
    except pymysql.Error as error:
        what = f"the log of {reader.connection.name!r} cannot be read: {safe_text(error)}"
        if error.args and error.args[0] == _FATAL_READ:
            raise StreamLostError(what, hint=f"what the stream has not read is gone; {REWIND}") from None
        raise (TransientError if is_transient(error) else RunError)(what) from None


def server_id(session: MySQLSession) -> str:
    """Return the id of the server; one whose log lacks what changes need is refused."""
    variables = {str(name).lower(): str(value) for name, value in session.query("SHOW GLOBAL VARIABLES")}
    wrong = [f"{name} = {value}" for name, value in SETTINGS.items() if variables.get(name, "").upper() != value]
    wrong += [f"without {name} = {value}" for name, value in _REFUSED.items() if variables.get(name) == value]
    if wrong:
        message = "the binary log of the server does not have whole rows with the names of their columns"
        raise RunError(message, hint=f"set {', '.join(wrong)}.")
    return variables.get("server_uuid") or f"server_id {variables.get('server_id', '?')}"


def log_end(session: MySQLSession) -> LogPosition:
    """Return the end of the log."""
    try:
        rows = session.query("SHOW MASTER STATUS")
    except pymysql.ProgrammingError:
        rows = session.query("SHOW BINARY LOG STATUS")
    if not rows:
        raise RunError("the server has no binary log", hint="set log_bin.")
    return LogPosition(str(rows[0][0]), int(rows[0][1]))


def bytes_after(position: LogPosition, file: str, size: int) -> int:
    """Return how many bytes of a file of the log lie behind a position."""
    if file == position.file:
        return max(0, size - position.pos)
    return size if LogPosition(file, 0) > position else 0


def refuse_purged(session: MySQLSession, position: LogPosition) -> None:
    """Refuse a position whose log the server has removed, or never had."""
    sizes = {str(row[0]): int(row[1]) for row in session.query("SHOW BINARY LOGS")}
    if position.file not in sizes:
        oldest = next(iter(sizes), "none")
        message = f"the server has removed its log {position.file}, and with it changes that were not read; its oldest is {oldest}"
        hint = f"binlogs expire sooner than the stream runs (expire_logs_days, binlog_expire_logs_seconds); {REWIND}"
        raise StreamLostError(message, hint=f"{hint} `earliest` reads the tables again.")
    if position.pos > sizes[position.file]:
        message = f"the log {position.file} ends at {sizes[position.file]}, and {position.pos} was read before"
        raise StreamLostError(message, hint=f"it is the log of another server, or was made again; {REWIND}")


def read_log(reader: LogReader, begin: LogPosition, tables: Collection[TableId]) -> Iterator[LogEntry]:
    """Return what follows a position up to the end of the log as it is now; of rows, those of tables.

    Changes come when their transaction has ended: the log may have some that were rolled back.
    """
    stream = BinLogStreamReader(
        connection_settings={},
        pymysql_wrapper=reader.wire,
        server_id=reader.connection.server_id or random.randint(_FIRST_ID, _LAST_ID),  # noqa: S311 - no secret
        resume_stream=True,
        blocking=False,
        log_file=begin.file,
        log_pos=begin.pos,
        only_events=[
            QueryEvent, XidEvent, RotateEvent, GtidEvent, MariadbGtidEvent, WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent,
        ],
        only_schemas=sorted({table.schema for table in tables}),
        only_tables=sorted({table.name for table in tables}),
        enable_logging=False,
    )  # fmt: skip
    chosen = frozenset(tables)
    with readable(reader), closing(stream):
        transaction, gtid = _Transaction(), None
        for event in stream:
            end = LogPosition(stream.log_file, stream.log_pos)
            if isinstance(event, GtidEvent | MariadbGtidEvent):
                gtid = str(event.gtid)
            elif isinstance(event, WriteRowsEvent | UpdateRowsEvent | DeleteRowsEvent):
                table = TableId(event.schema, event.table)
                if table in chosen:
                    change = LoggedRows(table, event, _start(event, end), gtid, event.timestamp * 1000)
                    transaction.changes.append(change)
            elif isinstance(event, QueryEvent):
                yield from _of_statement(event, end, gtid, chosen, transaction)
            elif isinstance(event, XidEvent | RotateEvent):
                yield from transaction.ended(end)


class _Transaction:
    """The changes of a transaction up to its end, as the log has them: their rows are not read yet."""

    def __init__(self) -> None:
        self.changes: list[LoggedRows | LoggedTruncate] = []
        self._savepoints: dict[str, int] = {}

    def ended(self, at: LogPosition) -> Iterator[LogEntry]:
        """Return the changes that were committed, and begin the next transaction."""
        changes, self.changes, self._savepoints = self.changes[::-1], [], {}
        while changes:
            yield changes.pop()  # with its rows, which the reader decodes and need not stay
        yield TransactionEnd(at)

    def set_savepoint(self, name: str) -> None:
        """Note how many changes there are now."""
        self._savepoints[name] = len(self.changes)

    def roll_back(self, name: str | None) -> None:
        """Forget the changes since a savepoint, or all."""
        del self.changes[self._savepoints.get(name, len(self.changes)) if name is not None else 0 :]


def _of_statement(
    event: Any, end: LogPosition, gtid: str | None, chosen: frozenset[TableId], transaction: _Transaction
) -> Iterator[LogEntry]:
    """Return what a statement in the log means: a table that it empties, and mostly the end of a transaction."""
    statement = str(event.query).strip()
    savepoint = _SAVEPOINT.fullmatch(statement)
    if savepoint is not None:
        if savepoint["back"]:
            transaction.roll_back(savepoint["name"])
        else:
            transaction.set_savepoint(savepoint["name"])
        return
    if statement.upper() == "BEGIN":
        return
    if statement.upper() == "ROLLBACK":
        transaction.roll_back(None)
    match = _TRUNCATE.match(statement)
    if match is not None:
        schema = event.schema.decode() if isinstance(event.schema, bytes) else str(event.schema)
        table = TableId(_unquoted(match["schema"] or schema), _unquoted(match["table"]))
        if table in chosen:
            transaction.changes.append(LoggedTruncate(table, _start(event, end), gtid, event.timestamp * 1000))
    yield from transaction.ended(end)


def _start(event: Any, end: LogPosition) -> LogPosition:
    return LogPosition(end.file, end.pos - int(event.packet.event_size))


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name

"""Reads the binary log of a server from one position to another, by mysql-replication; nothing is moved by reading."""

from __future__ import annotations

import re
import secrets
import struct
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pymysql
from pymysql.cursors import Cursor, DictCursor
from pymysqlreplication.event import (
    ExecuteLoadQueryEvent,
    GtidEvent,
    MariadbGtidEvent,
    NotImplementedEvent,
    QueryEvent,
    RotateEvent,
    XAPrepareEvent,
    XidEvent,
)
from pymysqlreplication.row_event import DeleteRowsEvent, PartialUpdateRowsEvent, UpdateRowsEvent, WriteRowsEvent

from ematix_flow.connect.change_log.source import REWIND
from ematix_flow.connect.change_log.tables import TableId
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.connect.mysql.cdc.columns import leave_bytes
from ematix_flow.connect.mysql.cdc.entries import EventHeader, LoggedRows, LoggedTruncate, LogPosition, Transactions
from ematix_flow.connect.mysql.cdc.log_stream import ROUND, PlacedStream
from ematix_flow.connect.mysql.cdc.statements import Emptied, Unlogged, changes_rows, effect_on, without_comments
from ematix_flow.connect.mysql.session import MySQLSession, connect, is_transient, read_url
from ematix_flow.errors import RunError, StreamLostError, TransientError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ematix_flow.connect.mysql.cdc.entries import LogEntry, TransactionEnd
    from ematix_flow.declare.connection.change_logs import MySQLCDCConnection

SETTINGS = {"log_bin": "ON", "binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_metadata": "FULL"}
"""What the server has to have, so that its log says all values of a row and the names of their columns."""

_REFUSED = {
    "binlog_row_value_options": "PARTIAL_JSON",
    "log_bin_compress": "ON",
    "binlog_transaction_compression": "ON",
}
_FATAL_READ = 1236
"""The error of a server that cannot read its log where it was asked to."""

_COMPRESSED = frozenset({40, *range(165, 172)})
"""Events that have others inside: those of a transaction of MySQL, statements and rows of MariaDB."""

_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, AssertionError, NotImplementedError, struct.error)
"""What the library raises for what it does not know."""

FIRST_POS = 4
"""Where the first event of a file begins."""

_FIRST_ID, _IDS = 1 << 31, (1 << 31) - 1
_SAVEPOINT = re.compile(r"(?P<back>ROLLBACK\s+TO\s+)?(?:SAVEPOINT\s+)?(?P<name>`(?:[^`]|``)+`)", re.IGNORECASE)
"""How the log says that a savepoint was set, or that what came after one was rolled back."""
_XA = re.compile(r"XA\s+(?P<verb>\w+)\s+(?P<xid>X'[0-9a-f]*',X'[0-9a-f]*',\d+)(?:\s+ONE\s+PHASE)?", re.IGNORECASE)
"""How the log says what became of a distributed transaction."""


@dataclass(frozen=True, slots=True)
class LogReader:
    """How the log of a server is read; it goes to the tasks that read."""

    connection: MySQLCDCConnection
    epoch: int = 0
    """In which epoch the messages are."""

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


def read_log(reader: LogReader, begin: TransactionEnd, tables: Collection[TableId]) -> Iterator[LogEntry]:
    """Return what follows the end of a transaction up to the end of the log as it is now; of rows, those of tables.

    Changes come when their transaction has ended: the log may have some that were rolled back.
    """
    place = begin.first if begin.first.pos < ROUND else LogPosition(begin.first.file, FIRST_POS)
    stream = PlacedStream(
        place,
        connection_settings={},
        pymysql_wrapper=reader.wire,
        server_id=reader.connection.server_id or _FIRST_ID + secrets.randbelow(_IDS),
        resume_stream=True,
        blocking=False,
        only_events=[
            QueryEvent, ExecuteLoadQueryEvent, XidEvent, XAPrepareEvent, RotateEvent, GtidEvent, MariadbGtidEvent,
            WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent, PartialUpdateRowsEvent, NotImplementedEvent,
        ],
        filter_non_implemented_events=False,
        only_schemas=sorted({table.schema for table in tables}),
        only_tables=sorted({table.name for table in tables}),
        enable_logging=False,
    )  # fmt: skip
    log = _Log(frozenset(tables), begin.first)
    with readable(reader), closing(stream):
        for event in _events(reader, stream):
            for entry in log.entries(event, stream.place):
                if stream.place > begin.position:  # before it only what is prepared matters
                    yield entry


def _events(reader: LogReader, stream: PlacedStream) -> Iterator[Any]:
    """Return the events of the log."""
    while True:
        try:
            event = stream.fetchone()
        except _UNREADABLE as error:
            message = f"the log of {reader.connection.name!r} cannot be read behind {stream.place.file} {stream.place.pos}: {error}"
            raise RunError(
                message, hint="a table may have a type that is not known, such as the COMPRESSED columns of MariaDB."
            ) from error
        if event is None:
            return
        if isinstance(event, RotateEvent) and stream.place.pos >= ROUND:  # only 32 bits can be asked for
            message = (
                f"the connection to {reader.connection.name!r} was lost behind {stream.place.file} {stream.place.pos}"
            )
            raise TransientError(message, hint="the log is read again from before.")
        yield event


class _Log:
    """The events of the log, one after the other, and what they come to."""

    def __init__(self, chosen: frozenset[TableId], begin: LogPosition) -> None:
        self._chosen = chosen
        self._transactions = Transactions(begin)
        self._file = begin.file
        self._gtid: str | None = None

    def entries(self, event: Any, end: LogPosition) -> Iterator[LogEntry]:
        """Return what an event that ends at a position comes to: mostly nothing before its transaction has ended."""
        header = EventHeader(
            LogPosition(end.file, end.pos - int(event.packet.event_size)), self._gtid, int(event.timestamp)
        )
        match event:
            case GtidEvent() | MariadbGtidEvent():
                self._gtid = str(event.gtid)
            case NotImplementedEvent() if event.event_type in _COMPRESSED:
                _refuse_packed("compressed changes", header.at)
            case WriteRowsEvent() | UpdateRowsEvent() | DeleteRowsEvent():
                self._keep(event, header)
            case QueryEvent():
                yield from self._of_statement(str(event.query), _text(event.schema), header, end)
            case ExecuteLoadQueryEvent():
                yield from self._of_statement(*_load_statement(event), header, end)
            case XAPrepareEvent() if not event.one_phase:
                xid = f"X'{event.xid_gtrid.hex()}',X'{event.xid_bqual.hex()}',{event.xid_format_id}"
                self._transactions.prepare(xid, header)
                yield from self._transactions.ended(end, header.seconds)
            case RotateEvent():
                yield from self._of_file(end, header)
            case XidEvent() | XAPrepareEvent():
                yield from self._transactions.ended(end, header.seconds)

    def _keep(self, event: Any, header: EventHeader) -> None:
        """Keep the rows of a table that is read until their transaction has ended."""
        table = TableId(event.schema, event.table)
        if table not in self._chosen:
            return
        if isinstance(event, PartialUpdateRowsEvent):
            _refuse_packed("changes of parts of documents", header.at)
        leave_bytes(event.columns, own_types=event.dbms == "mariadb")
        self._transactions.changes.append(LoggedRows(table, event, header.at, header.gtid, header.seconds * 1000))

    def _of_file(self, end: LogPosition, header: EventHeader) -> Iterator[LogEntry]:
        """Return what the beginning of a file means; a connection that was opened anew, and goes on in the same one, says it too."""
        if header.seconds or end.file != self._file:
            self._transactions.roll_back(None)  # a server that died has not committed what has no end
            yield from self._transactions.ended(end, header.seconds)
        self._file = end.file

    def _of_statement(self, statement: str, schema: str, header: EventHeader, end: LogPosition) -> Iterator[LogEntry]:
        """Return what a statement means: a table that it empties, and mostly the end of a transaction."""
        bare = without_comments(statement)
        if bare.upper() == "BEGIN" or self._is_savepoint(bare):
            return
        xa = _XA.fullmatch(bare)
        if xa is not None:
            yield from self._of_xa(xa["verb"].upper(), xa["xid"].lower().replace("x'", "X'"), header, end)
            return
        if bare.upper() == "ROLLBACK":
            self._transactions.roll_back(None)
        match effect_on(self._chosen, bare, schema):
            case Emptied(table):
                change = LoggedTruncate(table, header.at, header.gtid, header.seconds * 1000)
                self._transactions.changes.append(change)
            case Unlogged() as unlogged:
                _refuse_unlogged(unlogged, header.at)
        if not changes_rows(bare):
            yield from self._transactions.ended(end, header.seconds)

    def _is_savepoint(self, bare: str) -> bool:
        savepoint = _SAVEPOINT.fullmatch(bare)
        if savepoint is None:
            return False
        if savepoint["back"]:
            self._transactions.roll_back(savepoint["name"])
        else:
            self._transactions.set_savepoint(savepoint["name"])
        return True

    def _of_xa(self, verb: str, xid: str, header: EventHeader, end: LogPosition) -> Iterator[LogEntry]:
        """Return what becomes of a distributed transaction; until it is prepared it is one like others."""
        match verb:
            case "COMMIT":
                yield from self._transactions.commit(xid, header)
            case "ROLLBACK":
                self._transactions.forget(xid)
            case _:
                return
        yield from self._transactions.ended(end, header.seconds)


def prepared_transactions(session: MySQLSession) -> frozenset[tuple[str, ...]] | None:
    """Return the ids of the distributed transactions that are prepared; None where the role may not ask for them."""
    try:
        rows = session.query("XA RECOVER")
    except pymysql.Error as error:
        if is_transient(error):
            raise
        return None
    return frozenset(tuple(map(str, row)) for row in rows)


def _refuse_unlogged(unlogged: Unlogged, at: LogPosition) -> None:
    names = ", ".join(sorted(map(str, unlogged.tables))) or "tables that cannot be told"
    message = f"the log {at.file} has at {at.pos} a statement ({unlogged.kind}) that changed rows of {names}, and not the rows"
    hint = (
        "sessions may not have binlog_format = STATEMENT or MIXED, nor remove partitions, while a stream reads the tables; "
        f"{REWIND} `earliest` reads the tables again."
    )
    raise StreamLostError(message, hint=hint)


def _refuse_packed(what: str, at: LogPosition) -> None:
    message = f"the log {at.file} has at {at.pos} {what}, which are not read"
    settings = ", ".join(f"{name} = {value}" for name, value in _REFUSED.items())
    raise StreamLostError(message, hint=f"no session may have {settings}; {REWIND} `earliest` reads the tables again.")


def _load_statement(event: Any) -> tuple[str, str]:
    """Return the statement of an event of LOAD DATA, which the library leaves unread, and its database."""
    event.packet.advance(event.status_vars_length)
    schema = event.packet.read(event.schema_length)
    event.packet.advance(1)
    return event.packet.read_available().decode(errors="replace"), _text(schema)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)

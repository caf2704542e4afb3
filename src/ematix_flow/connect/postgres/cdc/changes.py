"""Reads changes behind a slot without moving it: which transactions there are, and their rows as messages.

A range holds the transactions whose commit record begins in it. They come whole and in the order of commits, so the same
range has the same messages at every read, by any process, until the slot is moved on.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

import psycopg

from ematix_flow.connect.base.retry import SLOT_BUSY, attempts
from ematix_flow.connect.change_log.messages import (
    CREATE,
    DELETE,
    TRUNCATE,
    UPDATE,
    Change,
    as_tables,
    envelope,
    epoch_block,
    json_object,
    source_text,
)
from ematix_flow.connect.change_log.source import REWIND
from ematix_flow.connect.change_log.tables import TableId
from ematix_flow.connect.changes.debezium import ABSENT, WHOLE
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.connect.postgres.cdc.catalog import primary_keys, read_types
from ematix_flow.connect.postgres.cdc.pgoutput import (
    FULL_IDENTITY,
    INDEX_IDENTITY,
    Begin,
    Commit,
    Relation,
    RowChange,
    Truncated,
    Unchanged,
    decode,
    format_lsn,
    parse_lsn,
)
from ematix_flow.connect.postgres.database import Postgres
from ematix_flow.connect.postgres.session import is_transient, numbered
from ematix_flow.connect.types.identifiers import quoted
from ematix_flow.errors import RunError, StreamLostError, TransientError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from ematix_flow.connect.postgres.cdc.pgoutput import Row
    from ematix_flow.connect.postgres.cdc.values import Types
    from ematix_flow.connect.postgres.session import PostgresSession
    from ematix_flow.declare.connection.change_logs import PostgresCDCConnection

_PEEK = (
    "pg_logical_slot_peek_binary_changes(?, ?::pg_lsn, ?::int, 'proto_version', '1', 'publication_names', ?)"
    " AS change(lsn, xid, data)"
)
_TRANSACTIONS = f"""
SELECT string_agg(data, ''::bytea) FILTER (WHERE get_byte(data, 0) = {ord("C")}),
  count(*) FILTER (WHERE get_byte(data, 0) IN ({ord("I")}, {ord("U")}, {ord("D")}, {ord("T")})), count(*)
FROM {_PEEK} GROUP BY xid ORDER BY max(lsn)
"""
_ROWS = f"SELECT lsn::text, data FROM {_PEEK}"

Event: TypeAlias = tuple[str, dict[str, str] | None, dict[str, str] | None]
"""Operation, old row and new row."""

_ABSENT = f'"{ABSENT}"'
"""What stands in a message for a value that the log does not have."""

_MOST_ROWS = 2_000_000_000
_TOGETHER = 1_000
"""Rows of the log that the server sends at a time."""

_UNDEFINED = "42704"
"""The state of an error of something that is not there, such as a publication at the time of the log that is decoded."""

_IN_USE = "55006"
"""The state of an error of a slot that another connection reads at this moment."""


@dataclass(frozen=True, slots=True)
class LogReader:
    """How the log of a database is read for a stream; it goes to the tasks that read."""

    connection: PostgresCDCConnection
    slot: str
    publication: str
    epoch: int = 0
    """In which epoch the messages are."""

    def database(self) -> Postgres:
        """Return the database."""
        from ematix_flow.declare.connection.databases import PostgresConnection

        given = self.connection
        return Postgres(PostgresConnection(given.name, origin=given.origin, url=given.url))


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction that was committed."""

    commit_lsn: int
    end_lsn: int
    messages: int
    at_us: int
    """When it was committed, in microseconds since 1970."""


def transactions(session: PostgresSession, reader: LogReader, begin: int, end: int, most: int) -> list[Transaction]:
    """Return the transactions whose commit begins from one position up to another, until they have so many messages."""
    limit = most
    while True:
        rows = _peek(session, reader, end, limit)
        result = []
        for data, messages, _ in rows:
            commit = decode(bytes(data)) if data is not None else None
            if isinstance(commit, Commit) and begin <= commit.commit_lsn < end:
                result.append(Transaction(commit.commit_lsn, commit.end_lsn, int(messages), commit.at_us))
        was_cut = sum(int(total) for _, _, total in rows) >= limit
        if not was_cut or sum(one.messages for one in result) >= most:
            return result
        # The server counts from where the slot is, which another target may hold back.
        limit *= 4


def _peek(session: PostgresSession, reader: LogReader, end: int, limit: int) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for attempt in attempts(SLOT_BUSY, on=is_in_use):
        with attempt, readable(reader):
            parameters = (reader.slot, format_lsn(end), min(limit, _MOST_ROWS), quoted(reader.publication))
            rows = session.query(_TRANSACTIONS, parameters)
    return rows


def read_changes(
    reader: LogReader, begin: int, end: int, tables: Sequence[str], requested: Sequence[str]
) -> Iterator[pa.Table]:
    """Return the changes of tables between two positions; runs inside a task."""
    with closing(reader.database().session()) as session:
        decoder = _ChangeDecoder(reader, _database_name(session), read_types(session), primary_keys(session), tables)
        yield from as_tables(decoder.changes(_rows(session, reader, end), begin, end), requested)


@contextmanager
def readable(reader: LogReader) -> Iterator[None]:
    """Translate errors of the server."""
    try:
        yield
    except psycopg.Error as error:
        if is_in_use(error):
            raise
        message = f"the changes of {reader.connection.name!r} cannot be read: {safe_text(error)}"
        if error.sqlstate == _UNDEFINED and "publication" in str(error):
            hint = "it was dropped, and the log from before it was made again cannot be decoded: drop the slot, and"
            raise StreamLostError(message, hint=f"{hint} {REWIND} `earliest` reads the tables again.") from None
        raise (TransientError if is_transient(error) else RunError)(message) from None


def is_in_use(error: Exception) -> bool:
    """Return whether a slot is read by another connection, which ends when it has read."""
    return getattr(error, "sqlstate", None) == _IN_USE


def _rows(session: PostgresSession, reader: LogReader, end: int) -> Iterator[tuple[int, bytes]]:
    parameters = [reader.slot, format_lsn(end), None, quoted(reader.publication)]
    for attempt in attempts(SLOT_BUSY, on=is_in_use):
        with attempt, readable(reader), session.watched():
            cursor = session.connection.cursor()
            # In parts: a transaction may be larger than the memory of a task.
            size = _TOGETHER if psycopg.capabilities.has_stream_chunked() else 1
            for lsn, data in cursor.stream(numbered(_ROWS).encode(), parameters, size=size):
                yield parse_lsn(lsn), bytes(data)


def _database_name(session: PostgresSession) -> str:
    return str(session.query("SELECT current_database()")[0][0])


class _ChangeDecoder:
    """Makes messages of the rows of the log."""

    def __init__(
        self,
        reader: LogReader,
        database: str,
        types: Types,
        keys: Mapping[int, tuple[str, ...]],
        tables: Sequence[str],
    ) -> None:
        known = {"connector": "postgresql", "name": reader.connection.name, "db": database}
        self._source = known | epoch_block(reader.epoch)
        self._types = types
        self._keys = keys
        self._tables = frozenset(tables)
        self._relations: dict[int, _Table] = {}
        self._head: tuple[tuple[Begin, str] | None, str] = (None, "")
        """What the changes of a table in one transaction say alike about where they come from."""

    def changes(self, rows: Iterator[tuple[int, bytes]], begin: int, end: int) -> Iterator[Change]:
        """Return the changes of transactions whose commit begins between two positions."""
        transaction: Begin | None = None
        numbers = count()
        for lsn, data in rows:
            message = decode(data)
            match message:
                case Begin():
                    transaction = message if begin <= message.commit_lsn < end else None
                    numbers = count()
                case Relation():
                    self._relations[message.oid] = _Table(message, self._types, self._keys.get(message.oid, ()))
                case RowChange() if transaction is not None:
                    table = self._relations[message.relation]
                    yield from self._built(table, table.events(message), transaction, lsn, numbers)
                case Truncated() if transaction is not None:
                    for oid in message.relations:
                        emptied: list[Event] = [(TRUNCATE, None, None)]
                        yield from self._built(self._relations[oid], emptied, transaction, lsn, numbers)

    def _built(
        self, table: _Table, events: Sequence[Event], transaction: Begin, lsn: int, numbers: Iterator[int]
    ) -> Iterator[Change]:
        if table.text not in self._tables:
            return
        at_ms = transaction.at_us // 1000
        if self._head[0] != (transaction, table.text):
            named = {"schema": table.id.schema, "table": table.id.name, "txId": transaction.xid, "ts_ms": at_ms}
            block = source_text({**self._source, **named, "ts_us": transaction.at_us, "snapshot": "false"})
            self._head = ((transaction, table.text), block[:-1])
        source = f'{self._head[1]},"lsn":{lsn},"sequence":"[\\"{transaction.commit_lsn}\\",\\"{lsn}\\"]"'
        location = f'"lsn": "{format_lsn(transaction.commit_lsn)}", "number": '
        for operation, before, after in events:
            key = table.key_of(before if after is None else after)
            origin = f'{source},"{WHOLE}":true}}' if table.is_whole(after) else f"{source}}}"
            payload = envelope(operation, before, after, origin, at_ms)
            yield Change(payload, key, at_ms, table.text, f"{location}{next(numbers)}")


class _Table:
    """A table as it was when rows of it were changed."""

    def __init__(self, relation: Relation, types: Types, primary_key: tuple[str, ...]) -> None:
        self.id = TableId(relation.schema, relation.name)
        self.text = str(self.id)
        self._columns = [(column.name, types.converter(column.type_oid)) for column in relation.columns]
        identity = tuple(column.name for column in relation.columns if column.in_identity)
        named = {column.name for column in relation.columns}
        known = primary_key if named.issuperset(primary_key) else ()
        self._key = known or (() if relation.identity == FULL_IDENTITY else identity)
        self._identity = frozenset(identity)
        self._is_known = relation.identity != INDEX_IDENTITY or self._identity.issuperset(known)

    def events(self, change: RowChange) -> list[Event]:
        """Return operation, old row and new row; a row that got another key is one that goes and one that comes."""
        if change.operation != "I" and not self._is_known:
            message = f"the replica identity of {self.text} was changed to an index without its primary key"
            hint = f"ALTER TABLE {self.text} REPLICA IDENTITY DEFAULT, and read the table again: rewind to earliest."
            raise RunError(message, hint=hint)
        old = None if change.old is None else self._old(change.old, whole=change.old_kind == "O")
        if change.operation == "D":
            return [(DELETE, old, None)]
        new = self._values(change.new or ())
        if change.operation == "I":
            return [(CREATE, None, new)]
        if old is not None and change.old_kind == "O":
            # What is not in the new row is what it was.
            new = {
                name: new.get(name, old.get(name, "null")) for name, _ in self._columns if name in new or name in old
            }
        if old is not None and any(old.get(name) != new.get(name, old.get(name)) for name in self._key):
            # A new row that lacks a value says so; an update that lacks one leaves it as it is.
            whole = {name: new.get(name, _ABSENT) for name, _ in self._columns}
            return [(DELETE, old, None), (CREATE, None, whole)]
        return [(UPDATE, old, new)]

    def is_whole(self, row: Mapping[str, str] | None) -> bool:
        """Return whether a row has every column: an update does not tell the large values that it leaves as they are."""
        return row is not None and len(row) == len(self._columns)

    def key_of(self, row: Mapping[str, str] | None) -> str | None:
        """Return the key of a row as JSON; None where there is none."""
        if row is None or not self._key or any(name not in row for name in self._key):
            return None
        return json_object({name: row[name] for name in self._key})

    def _old(self, row: Row, *, whole: bool) -> dict[str, str]:
        """Return the old row; of one that has only its key, the other columns are not NULL but unknown."""
        values = self._values(row)
        return values if whole else {name: value for name, value in values.items() if name in self._identity}

    def _values(self, row: Row) -> dict[str, str]:
        return {
            name: "null" if value is None else converter(value)
            for (name, converter), value in zip(self._columns, row, strict=True)
            if not isinstance(value, Unchanged)
        }

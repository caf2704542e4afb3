"""Changes of PostgreSQL tables as a source of streams: positions are positions in the log, at the ends of transactions.

A position is `{"server", "timeline", "lsn", "tables", "count"}`: which tables the target has, as of where in the log, and how
many messages led there. A table that is not among them is read whole: the target first comes to the position of a
snapshot, and then gets the rows of the table as of there, in one commit.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from ematix_flow.connect.base.stream_source import (
    EARLIEST,
    LATEST,
    TURN,
    MessagePartition,
    from_text,
)
from ematix_flow.connect.change_log.lag import LagLimits, LogLag
from ematix_flow.connect.change_log.source import REWIND, ChangeLogSource, epoch_of, in_epoch
from ematix_flow.connect.change_log.tables import matching, patterns_in
from ematix_flow.connect.config.project_name import current_project
from ematix_flow.connect.postgres.cdc.catalog import (
    generated_columns,
    list_tables,
    refuse_unidentified,
    unheard_changes,
)
from ematix_flow.connect.postgres.cdc.changes import LogReader, read_changes, readable, transactions
from ematix_flow.connect.postgres.cdc.pgoutput import format_lsn, parse_lsn
from ematix_flow.connect.postgres.cdc.slot import (
    advance,
    create_slot,
    publish,
    publish_missing,
    published_tables,
    refuse_lost,
    refuse_parts,
    refuse_unpublished,
    server_of,
    slot_name,
    slot_status,
)
from ematix_flow.connect.postgres.cdc.snapshot import SnapshotExporter, plan_snapshot
from ematix_flow.errors import RunError, StreamLostError, TransientError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ematix_flow.connect.base.stream_source import Position
    from ematix_flow.connect.change_log.tables import TableId
    from ematix_flow.connect.postgres.cdc.catalog import SourceTable
    from ematix_flow.connect.postgres.cdc.slot import (
        Server,
        SlotStatus,
    )
    from ematix_flow.connect.postgres.cdc.snapshot import Snapshot
    from ematix_flow.connect.postgres.database import Postgres
    from ematix_flow.connect.postgres.session import PostgresSession
    from ematix_flow.declare.connection.change_logs import PostgresCDCConnection

IDLE_BYTES = 16 * 1024 * 1024
"""Bytes of the log without a change of our tables, after which a position moves on all the same.

The server keeps the log from the position of the slowest target on, and other tables may be written to all the time."""

MOST_COUNTED = 100_000
"""Messages up to which those that wait are counted."""

_SERVER, _TIMELINE, _LSN, _TABLES, _COUNT = "server", "timeline", "lsn", "tables", "count"


class PostgresChanges(ChangeLogSource):
    """Tables of one database."""

    kind: ClassVar[str] = "postgres_cdc"

    def __init__(self, connection: PostgresCDCConnection, query: str) -> None:
        super().__init__(connection.name, query)
        self._connection = connection
        self._stream = f"{connection.name} {query}"
        self._patterns = patterns_in(query, "public")
        self.limits = LagLimits(connection.max_lag_bytes, connection.max_lag_seconds, connection.max_retained_bytes)
        self._session: PostgresSession | None = None
        self._exporter: SnapshotExporter | None = None
        self._begun = False
        self._chosen: tuple[SourceTable, ...] | None = None
        self._quiet: tuple[int, int] | None = None
        """A part of the log that has no change: it is not decoded again while nothing is written."""
        self._published_at: int | None = None
        """The end of the log at which all tables were published."""

    def catalog(self) -> Postgres:
        """Return the database whose log is read."""
        return LogReader(self._connection, "", "").database()

    def tables(self) -> tuple[TableId, ...]:
        """Return the tables that are read."""
        return tuple(table.id for table in self._tables())

    def unlogged_columns(self) -> Mapping[TableId, frozenset[str]]:
        """Return the columns that the server computes."""
        with readable(self.reader):
            return generated_columns(self._open_session())

    def read_for(self, stream: str) -> None:
        """Set the stream, from whose name those of slot and publication follow."""
        self._stream = stream

    @property
    def reader(self) -> LogReader:
        """Return how the log is read."""
        given = self._connection
        database = str(self.catalog().info()["dbname"])
        name = slot_name(self._stream, current_project().in_slots, database)
        return LogReader(given, given.slot or name, given.publication or name)

    def begin(self) -> None:
        """Create publication and slot where they are missing; the server keeps the log from now on."""
        reader, tables = self.reader, self._tables()
        if not tables:
            raise RunError(f"{self.query!r} names no table of {self.name!r}", hint="create one, or name others.")
        refuse_unidentified(tables)
        with readable(reader):
            session = self._open_session()
            server_of(session)
            refuse_parts(session, reader.publication, tables)
            # The log is decoded by the publications that there were at its time, so the slot comes second.
            if published_tables(session, reader.publication) is None:
                publish(session, reader.publication, [table.id for table in tables])
            if slot_status(session, reader.slot) is None:
                create_slot(session, reader.slot)
        self._begun = True

    def warnings(self) -> tuple[str, ...]:
        """Return what the log does not say of some tables."""
        return tuple(message for message in map(unheard_changes, self._tables()) if message)

    def start(self, where: str) -> Position:
        """Return the position before the rows of all tables, behind all changes, or one that is written out."""
        if where == EARLIEST:
            return {_LSN: None, _TABLES: [], _COUNT: 0}
        server = self._server()
        tables = [str(table.id) for table in self._tables()]
        if where == LATEST:
            return self._position(server, server.end_lsn, tables)
        if where.lstrip().startswith("{"):
            return self._requested(from_text(where), server, tables)
        message = f"{where!r} is no position in the log of a database, which is not ordered by time"
        raise RunError(message, hint='say earliest (the rows of the tables), latest, or {"lsn": "0/16B3748"}.')

    def first_position(self, where: str) -> Position:
        """Return the position at which a target begins; the end of the log only where that has all changes of the tables."""
        if where == LATEST:
            tables = self._tables()
            refuse_unidentified(tables)
            with readable(self.reader):
                publish_missing(self._open_session(), self.reader.publication, [table.id for table in tables])
        return self.start(where)

    def ahead(self, position: Position, most: int, end_offset: Position | None = None) -> Position:
        """Return the end of the transactions that follow, or the position with another table."""
        return in_epoch(position, self._ahead(position, most, end_offset))

    def _ahead(self, position: Position, most: int, end_offset: Position | None) -> Position:
        server, status = self._server(), self._status()
        self._refuse_other_log(position, server)
        if position[_LSN] is not None:
            refuse_lost(self.reader.slot, status, parse_lsn(position[_LSN]))
        if self._begun and self._published_at != server.end_lsn:
            self._publish(position)
            self._published_at = server.end_lsn
        pending = self._pending(position) if self._begun else []
        if not pending:
            if position[_LSN] is None:
                return position
            return self._behind_changes(position, most, server, _limit(server.end_lsn, end_offset))
        snapshot = self._snapshot(position, server)
        if position[_LSN] is None or parse_lsn(position[_LSN]) == snapshot.lsn:
            rows = next(table.rows for table in self._tables() if str(table.id) == pending[0])
            tables = sorted([*position[_TABLES], pending[0]])
            return self._position(server, snapshot.lsn, tables, position.get(_COUNT, 0) + max(1, rows))
        return self._behind_changes(position, most, server, snapshot.lsn, stop=True)

    def plan_partitions(
        self, begin: Position, end: Position, column_names: Sequence[str]
    ) -> tuple[MessagePartition, ...]:
        """Return the changes between two positions, or the rows of the table by which they differ."""
        reader = replace(self.reader, epoch=epoch_of(begin))
        added = [table for table in end[_TABLES] if table not in begin[_TABLES]]
        if not added:
            low, high = parse_lsn(begin[_LSN]), parse_lsn(end[_LSN])
            read = partial(read_changes, reader, low, high, tuple(begin[_TABLES]), tuple(column_names))
            return (MessagePartition(f"{begin[_LSN]}-{end[_LSN]}", self.distance(begin, end), read),)
        exporter = self._exporter
        if exporter is None or format_lsn(exporter.snapshot.lsn) != end[_LSN]:
            message = f"the snapshot of {', '.join(added)} as of {end[_LSN]} is gone"
            raise TransientError(message, hint="the stream begins with another one.")
        session, snapshot = self._open_session(), exporter.snapshot
        # A target that an operator has moved may have rows whose end was never read.
        return plan_snapshot(session, reader, snapshot, added, column_names, cleared=TURN in begin)

    def is_snapshot(self, begin: Position, end: Position) -> bool:
        """Return whether the positions differ by a table."""
        return bool(begin[_TABLES] != end[_TABLES])

    def distance(self, begin: Position, end: Position) -> int:
        """Return how many messages lie between two positions; those up to one that was not counted are counted now."""
        if end[_LSN] is None or (begin[_LSN] is not None and parse_lsn(begin[_LSN]) > parse_lsn(end[_LSN])):
            return 0
        if _COUNT in end:
            return max(0, int(end[_COUNT]) - int(begin.get(_COUNT, 0)))
        pending = self._pending(begin)
        rows = sum(max(1, table.rows) for table in self._tables() if str(table.id) in pending)
        return rows + (0 if begin[_LSN] is None else self._count(parse_lsn(begin[_LSN]), parse_lsn(end[_LSN])))

    def waiting(self, position: Position) -> Mapping[str, int]:
        """Return how many messages wait; beyond some number they are not counted further."""
        latest = {_LSN: format_lsn(self._server().end_lsn)}
        return {self.query: self.distance({name: position[name] for name in (_LSN, _TABLES)}, latest)}

    def details(self) -> Mapping[str, object]:
        """Return the slot, and what the server keeps for it."""
        reader, status = self.reader, self._status()
        names = {"slot": reader.slot, "publication": reader.publication}
        if status is None:
            return names | {"slot_status": "not created yet"}
        return names | {
            "slot_status": status.wal_status,
            "slot_position": format_lsn(status.confirmed_lsn),
            "retained_wal_bytes": status.retained_bytes,
            "safe_wal_bytes": status.safe_bytes,
        }

    def lag(self, position: Position | None) -> LogLag:
        """Return how far a position is behind the log, and what the server keeps for the slot."""
        status = self._status()
        retained = None if status is None else status.retained_bytes
        if position is None or position[_LSN] is None or status is None:
            return LogLag(retained_bytes=retained)
        begin, end = parse_lsn(position[_LSN]), self._server().end_lsn
        waiting = transactions(self._open_session(), self.reader, begin, end, 1) if begin < end else []
        oldest = next((one for one in waiting if one.messages), None)
        if oldest is None:
            return LogLag(0, 0.0, retained)
        now_us = int(
            self._open_session().query("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")[0][0]
        )
        return LogLag(end - begin, max(0, now_us - oldest.at_us) / 1_000_000, retained)

    def commit_offsets(self, positions: Sequence[Position]) -> None:
        """Let the server forget what every target has, and the snapshot that all of them have read."""
        if not positions or any(position[_LSN] is None for position in positions):
            return
        if not any(self._pending(position) for position in positions):
            self._release()
        with readable(self.reader):
            advance(self._open_session(), self.reader.slot, min(parse_lsn(position[_LSN]) for position in positions))

    def close(self) -> None:
        """Let go of the snapshot and the connection; publication and slot stay."""
        self._release()
        if self._session is not None:
            self._session.close()
        self._session = None

    def _behind_changes(
        self, position: Position, most: int, server: Server, end: int, *, stop: bool = False
    ) -> Position:
        """Return the end of the transactions that follow and begin before `end`; with `stop`, `end` itself where none does."""
        begin = parse_lsn(position[_LSN])
        if end <= begin or (self._quiet == (begin, end) and not stop):
            return position
        count = 0
        reached = begin
        for transaction in transactions(self._open_session(), self.reader, begin, end, most):
            if count and count + transaction.messages > most:
                break
            count, reached = count + transaction.messages, transaction.end_lsn
        if count:
            return self._position(server, reached, position[_TABLES], position.get(_COUNT, 0) + count)
        if stop or end - begin >= IDLE_BYTES:
            return self._position(server, end, position[_TABLES], position.get(_COUNT, 0) + 1)
        self._quiet = (begin, end)
        return position

    def _count(self, begin: int, end: int) -> int:
        if end <= begin or self._status() is None:
            return 0
        return sum(one.messages for one in transactions(self._open_session(), self.reader, begin, end, MOST_COUNTED))

    def _snapshot(self, position: Position, server: Server) -> Snapshot:
        """Return the snapshot that is held, or another one where a target is behind it already or it is gone."""
        held = self._exporter
        behind = position[_LSN] is not None and held is not None and parse_lsn(position[_LSN]) > held.snapshot.lsn
        if held is not None and (behind or not held.is_alive):
            self._release()
        if self._exporter is None:
            self._exporter = SnapshotExporter(self.reader, self._open_session())
        del server
        return self._exporter.snapshot

    def _release(self) -> None:
        if self._exporter is not None:
            self._exporter.close()
        self._exporter = None

    def _tables(self) -> tuple[SourceTable, ...]:
        """Return the tables that are read; which there are is known from the first question on."""
        if self._chosen is None:
            with readable(self.reader):
                there = list_tables(self._open_session())
            chosen: tuple[TableId, ...] = matching(self._patterns, there)
            self._chosen = tuple(there[table] for table in chosen)
        return self._chosen

    def _pending(self, position: Position) -> list[str]:
        return [str(table.id) for table in self._tables() if str(table.id) not in position[_TABLES]]

    def _server(self) -> Server:
        with readable(self.reader):
            return server_of(self._open_session())

    def _publish(self, position: Position) -> None:
        """Add tables to the publication that are new; one that a target has already was read without it for a while."""
        name, own = self.reader.publication, [table.id for table in self._tables()]
        with readable(self.reader):
            session = self._open_session()
            published = published_tables(session, name) or frozenset()
            missing = [table for table in own if table not in published]
            if missing:
                there = list_tables(session)
                known = [table for table in missing if table in there]
                refuse_unpublished(name, [table for table in known if str(table) in position[_TABLES]])
                publish(session, name, known)

    def _status(self) -> SlotStatus | None:
        with readable(self.reader):
            return slot_status(self._open_session(), self.reader.slot)

    def _open_session(self) -> PostgresSession:
        if self._session is None or self._session.connection.closed:
            self._session = self.reader.database().session()
        return self._session

    def _position(self, server: Server, lsn: int, tables: Sequence[str], count: int | None = None) -> Position:
        known: Position = {
            _SERVER: server.id,
            _TIMELINE: server.timeline,
            _LSN: format_lsn(lsn),
            _TABLES: list(tables),
        }
        return known if count is None else known | {_COUNT: count}

    def refuse_other_log(self, position: Position) -> None:
        """Refuse a position of another server, or of another history of it."""
        self._refuse_other_log(position, self._server())

    def _refuse_other_log(self, position: Position, server: Server) -> None:
        if position.get(_SERVER, server.id) != server.id:
            message = f"{self.name!r} is another server than the one that was read before"
            raise StreamLostError(message, hint=f"its positions mean nothing here; {REWIND}")
        if position.get(_TIMELINE, server.timeline) != server.timeline:
            message = (
                f"{self.name!r} is on timeline {server.timeline} now, and was read on {position[_TIMELINE]}: it was "
                "promoted or restored, and may lack changes that were read"
            )
            accept = f'to trust it: flow stream rewind NAME --to \'{{"lsn": "{position[_LSN]}"}}\''
            raise StreamLostError(message, hint=f"{accept}; --to earliest reads the tables again.")
        if position[_LSN] is not None and parse_lsn(position[_LSN]) > server.end_lsn:
            message = (
                f"the log of {self.name!r} ends at {format_lsn(server.end_lsn)}, and was read up to {position[_LSN]}: "
                "the server was restored from a copy, and lacks changes that were read"
            )
            raise StreamLostError(message, hint="flow stream rewind NAME --to earliest reads the tables again.")

    def _requested(self, requested: Position, server: Server, tables: list[str]) -> Position:
        lsn, chosen = requested.get(_LSN), requested.get(_TABLES, tables)
        try:
            number = parse_lsn(lsn) if isinstance(lsn, str) else -1
        except ValueError:
            number = -1
        if number < 0 or number > server.end_lsn or not isinstance(chosen, list):
            message = f"{lsn!r} is no position in the log of {self.name!r}, which ends at {format_lsn(server.end_lsn)}"
            raise RunError(message, hint='for example {"lsn": "0/16B3748"}.')
        return self._position(server, number, sorted(map(str, chosen)), 0)


def _limit(end: int, end_offset: Position | None) -> int:
    """Return a position that is not behind another."""
    return end if end_offset is None or end_offset[_LSN] is None else min(end, parse_lsn(end_offset[_LSN]))

"""Changes of MySQL tables as a source of streams: positions are ends of transactions in the binary log.

A position is `{"server", "file", "pos", "tables", "count"}`, as for PostgreSQL, and `since` where a distributed transaction is prepared
there: from there on the log is read again, and counts behind the position. `read` says when the rows of
tables were read, or changed last. A table that is not among its tables is read whole, and what was changed while it was read comes
again as changes: by the order of the log they lead to the same rows.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from ematix_flow.connect.base.retry import XA_PREPARED, attempts
from ematix_flow.connect.base.stream_source import EARLIEST, LATEST, TURN, MessagePartition, from_text
from ematix_flow.connect.change_log.lag import LagLimits, LogLag
from ematix_flow.connect.change_log.source import REWIND, ChangeLogSource, epoch_of, in_epoch
from ematix_flow.connect.change_log.tables import TableId, matching, patterns_in, table_named
from ematix_flow.connect.mysql.cdc.binlog import (
    FIRST_POS,
    LogReader,
    bytes_after,
    log_end,
    prepared_transactions,
    read_log,
    readable,
    refuse_purged,
    server_id,
)
from ematix_flow.connect.mysql.cdc.entries import LoggedRows, LoggedTruncate, LogPosition, TransactionEnd
from ematix_flow.connect.mysql.cdc.rows import read_changes, read_rows
from ematix_flow.connect.mysql.cdc.walk import ChangeTimes, later_times, walk
from ematix_flow.connect.mysql.database import MySQL
from ematix_flow.declare.connection.databases import MySQLConnection
from ematix_flow.errors import RunError, StreamLostError, TransientError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ematix_flow.connect.base.stream_source import Position
    from ematix_flow.connect.mysql.cdc.walk import Walk
    from ematix_flow.connect.mysql.session import MySQLSession
    from ematix_flow.declare.connection.change_logs import MySQLCDCConnection

IDLE_BYTES = 16 * 1024 * 1024
"""Bytes of the log without a change of our tables, after which a position moves on all the same, as it does into a new file."""

MOST_COUNTED = 10_000
"""Messages up to which those that wait are counted."""

_SERVER, _FILE, _POS, _TABLES, _COUNT, _SINCE = "server", "file", "pos", "tables", "count", "since"
_READ = "read"
"""When the rows of a table were read, or changed last: what the log has behind that is not earlier, though it may have begun before."""

_ALL_TABLES = """
SELECT table_schema, table_name, table_rows FROM information_schema.tables WHERE table_type = 'BASE TABLE'
AND table_schema NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')
AND table_name NOT LIKE 'ematix\\_flow\\_%'
"""


_CASCADES = """
SELECT constraint_schema, table_name, constraint_name, delete_rule, update_rule FROM information_schema.referential_constraints
WHERE delete_rule NOT IN ('RESTRICT', 'NO ACTION') OR update_rule NOT IN ('RESTRICT', 'NO ACTION')
ORDER BY 1, 2, 3
"""


_UNSEEN = (
    "the role may not see which distributed transactions (XA) are prepared: changes of one that is prepared when the stream begins, "
    "or when it finds another table, and committed later are lost without a word; where XA is used, GRANT XA_RECOVER_ADMIN"
)


class _PreparedError(TransientError):
    """Transactions are prepared, and neither committed nor rolled back."""


class MySQLChanges(ChangeLogSource):
    """Tables of one server."""

    kind: ClassVar[str] = "mysql_cdc"

    def __init__(self, connection: MySQLCDCConnection, query: str) -> None:
        super().__init__(connection.name, query)
        self.reader = LogReader(connection)
        self._patterns = patterns_in(query, self.reader.default_schema)
        self.limits = LagLimits(connection.max_lag_bytes, connection.max_lag_seconds)
        self._session: MySQLSession | None = None
        self._chosen: dict[str, int] | None = None
        self._server: str | None = None
        self._begun = False
        self._over_before: LogPosition | None = None
        """Before this no transaction is prepared any more."""
        self._quiet: tuple[LogPosition, TransactionEnd] | None = None
        """A part of the log that has no change of our tables, and is not read again."""

    def catalog(self) -> MySQL:
        """Return the database whose log is read."""
        given = self.reader.connection
        return MySQL(MySQLConnection(given.name, origin=given.origin, url=given.url))

    def tables(self) -> tuple[TableId, ...]:
        """Return the tables that are read."""
        return tuple(table_named(table) for table in self._tables())

    def begin(self) -> None:
        """Check the server and the tables."""
        if not self._tables():
            raise RunError(f"{self.query!r} names no table of {self.name!r}", hint="create one, or name others.")
        self._server_id()
        self._begun = True

    def warnings(self) -> tuple[str, ...]:
        """Return which changes the stream may not get: of foreign keys, which the server does not log, and of XA that is hidden."""
        with readable(self.reader):
            rows, prepared = self._open_session().query(_CASCADES), prepared_transactions(self._open_session())
        cascades = tuple(
            f"foreign key {name} of {table} (ON DELETE {on_delete}, ON UPDATE {on_update}) lets the server change rows of "
            "the table without a word in its log: a mirror does not get these changes until it is read again"
            for schema, own_name, name, on_delete, on_update in rows
            if (table := str(TableId(str(schema), str(own_name)))) in self._tables()
        )
        return cascades if prepared is not None else (*cascades, _UNSEEN)

    def start(self, where: str) -> Position:
        """Return the position before the rows of all tables, behind all changes, or one that is written out."""
        if where == EARLIEST:
            return {_FILE: None, _POS: 0, _TABLES: [], _COUNT: 0}
        if where == LATEST:
            return self._position(TransactionEnd(self._end()), list(self._tables()))
        if where.lstrip().startswith("{"):
            return self._requested(from_text(where))
        message = f"{where!r} is no position in the log of a database"
        raise RunError(
            message, hint='say earliest (the rows of the tables), latest, or {"file": "bin.000002", "pos": 4}.'
        )

    def first_position(self, where: str) -> Position:
        """Return the position at which a target begins; the end of the log only with all that is in doubt there."""
        return self._position(self._resolved_end(), list(self._tables())) if where == LATEST else self.start(where)

    def ahead(self, position: Position, most: int, end_offset: Position | None = None) -> Position:
        """Return the end of the transactions that follow, or the position with another table."""
        return self._since_read(position, in_epoch(position, self._ahead(position, most, end_offset)))

    def _ahead(self, position: Position, most: int, end_offset: Position | None) -> Position:
        self.refuse_other_log(position)
        pending = self._pending(position) if self._begun else []
        if pending:
            at = self._resolved(position)
            tables = sorted([*position[_TABLES], pending[0]])
            return self._position(at, tables, position.get(_COUNT, 0) + max(1, self._tables()[pending[0]]))
        if position[_FILE] is None:
            return position
        end = self._end() if end_offset is None or end_offset[_FILE] is None else min(self._end(), _at(end_offset))
        return self._behind_changes(position, most, end)

    def plan_partitions(
        self, begin: Position, end: Position, column_names: Sequence[str]
    ) -> tuple[MessagePartition, ...]:
        """Return the changes between two positions, or the rows of the table by which they differ."""
        added = [table for table in end[_TABLES] if table not in begin[_TABLES]]
        names, reader = tuple(column_names), replace(self.reader, epoch=epoch_of(begin))
        if added:
            times = {table: seconds for table, seconds in end.get(_READ, {}).items() if table in added}
            reads = [
                partial(read_rows, reader, _at(end), table, names, cleared=TURN in begin, seconds=times.get(table))
                for table in added
            ]
            return tuple(MessagePartition(table, 0, read) for table, read in zip(added, reads, strict=True))
        changed = ChangeTimes(begin.get(_READ, {}), end.get(_READ, {}))
        read = partial(read_changes, reader, _end_of(begin), _at(end), tuple(begin[_TABLES]), names, changed)
        label = f"{begin[_FILE]} {begin[_POS]}-{end[_FILE]} {end[_POS]}"
        return (MessagePartition(label, self.distance(begin, end), read),)

    def distance(self, begin: Position, end: Position) -> int:
        """Return how many messages lie between two positions; those up to one that was not counted are counted now."""
        if end[_FILE] is None:
            return 0
        if _COUNT in end:
            return max(0, int(end[_COUNT]) - int(begin.get(_COUNT, 0)))
        rows = sum(max(1, self._tables()[table]) for table in self._pending(begin))
        return rows + (0 if begin[_FILE] is None else self._walk(_end_of(begin), _at(end), begin, MOST_COUNTED).count)

    def waiting(self, position: Position) -> Mapping[str, int]:
        """Return how many messages wait; beyond some number they are not counted further."""
        latest = self._position(TransactionEnd(self._end()), [])
        uncounted = {name: value for name, value in position.items() if name != _COUNT}
        return {self.query: self.distance(uncounted, latest)}

    def details(self) -> Mapping[str, object]:
        """Return the logs that the server has."""
        with readable(self.reader):
            logs = self._open_session().query("SHOW BINARY LOGS")
        return {"oldest_log": logs[0][0] if logs else None, "log_bytes": sum(int(row[1]) for row in logs)}

    def lag(self, position: Position | None) -> LogLag:
        """Return how far a position is behind the log; the server keeps it for nobody."""
        if position is None or position[_FILE] is None:
            return LogLag()
        at_ms = self._oldest_change(position)
        if at_ms is None:
            return LogLag(0, 0.0)
        with readable(self.reader):
            session = self._open_session()
            now, logs = session.query("SELECT UNIX_TIMESTAMP(NOW(3))")[0][0], session.query("SHOW BINARY LOGS")
        behind = sum(bytes_after(_at(position), str(row[0]), int(row[1])) for row in logs)
        return LogLag(behind, max(0.0, float(now) - at_ms / 1000))

    def _oldest_change(self, position: Position) -> int | None:
        """Return when the first change behind a position was made, in milliseconds since 1970; None where there is none."""
        scanned = self._scanned(position)
        if self._end() <= scanned.position:
            return None
        tables = [table_named(table) for table in position[_TABLES]]
        with closing(read_log(self.reader, scanned, tables)) as entries:  # type: ignore[type-var]
            return next((entry.at_ms for entry in entries if isinstance(entry, LoggedRows | LoggedTruncate)), None)

    def close(self) -> None:
        """Let go of the connection."""
        if self._session is not None:
            self._session.close()
        self._session = None

    def _scanned(self, position: Position) -> TransactionEnd:
        """Return up to where behind a position there is no change of our tables, as far as is known."""
        if self._quiet is not None and self._quiet[0] == _at(position):
            return self._quiet[1]
        return _end_of(position)

    def _behind_changes(self, position: Position, most: int, end: LogPosition) -> Position:
        begin, scanned = _at(position), self._scanned(position)
        if end <= scanned.position:
            return position
        walked = self._walk(scanned, end, position, most)
        reached = walked.reached
        if walked.count:
            behind = self._position(reached, position[_TABLES], position.get(_COUNT, 0) + walked.count)
            return behind | {_READ: later_times(position.get(_READ, {}), walked.times, self._now())}
        if reached.position.file != begin.file or reached.position.pos - begin.pos >= IDLE_BYTES:
            return self._position(reached, position[_TABLES], position.get(_COUNT, 0) + 1)
        self._quiet = (begin, reached)
        return position

    def _walk(self, begin: TransactionEnd, end: LogPosition, position: Position, most: int) -> Walk:
        return walk(self.reader, begin, end, [table_named(table) for table in position[_TABLES]], most)

    def _resolved(self, position: Position) -> TransactionEnd:
        """Return where the log goes on behind rows that are read now; none of it may stand in the log alone that was before."""
        if position[_FILE] is None:
            return self._resolved_end()
        at = _end_of(position)
        if self._over_before is None or at.first > self._over_before:
            self._resolved_end()
        return at

    def _resolved_end(self) -> TransactionEnd:
        """Return the end of the log, which is read from where nothing before is prepared any more.

        A server may never be without a prepared transaction. So those of a first look are waited for: later ones are in
        the log behind it, where they are found.
        """
        begin, before = self._end(), self._prepared()
        for attempt in attempts(XA_PREPARED, on=(_PreparedError,)):
            with attempt:
                self._refuse_prepared(before)
        self._over_before = begin
        return TransactionEnd(self._end(), begin) if before else TransactionEnd(begin)

    def _refuse_prepared(self, before: frozenset[tuple[str, ...]]) -> None:
        left = before and before & self._prepared()
        if left:
            message = f"{self.name!r} has prepared transactions (XA: {len(left)}), which may change these tables"
            hint = "the stream can begin when they are committed or rolled back; XA RECOVER shows them."
            raise _PreparedError(message, hint=hint)

    def _prepared(self) -> frozenset[tuple[str, ...]]:
        with readable(self.reader):
            return prepared_transactions(self._open_session()) or frozenset()

    def refuse_other_log(self, position: Position) -> None:
        """Refuse a position of another server, or one whose log is gone."""
        if position[_FILE] is None:
            return
        if position.get(_SERVER, self._server_id()) != self._server_id():
            message = f"{self.name!r} is another server than the one that was read before"
            raise StreamLostError(message, hint=f"its positions mean nothing here; {REWIND}")
        with readable(self.reader):
            refuse_purged(self._open_session(), _end_of(position).first)
            refuse_purged(self._open_session(), _at(position))

    def _requested(self, requested: Position) -> Position:
        file, pos, tables = requested.get(_FILE), requested.get(_POS), requested.get(_TABLES, list(self._tables()))
        if not isinstance(file, str) or not isinstance(pos, int) or pos < FIRST_POS or not isinstance(tables, list):
            message = f"{requested!r:.200} is no position in the log of {self.name!r}"
            raise RunError(message, hint='for example {"file": "bin.000002", "pos": 4}.')
        position = self._position(TransactionEnd(LogPosition(file, pos)), sorted(map(str, tables)), 0)
        self.refuse_other_log(position)
        read = requested.get(_READ)
        times = {} if not isinstance(read, dict) else {name: at for name, at in read.items() if isinstance(at, int)}
        return position | ({_READ: times} if times else {})

    def _tables(self) -> dict[str, int]:
        """Return the tables that are read, with about how many rows they have; known from the first question on."""
        if self._chosen is None:
            with readable(self.reader):
                rows = self._open_session().query(_ALL_TABLES)
            there = {TableId(str(schema), str(name)): int(count or 0) for schema, name, count in rows}
            self._chosen = {str(table): there[table] for table in matching(self._patterns, there)}
        return self._chosen

    def _pending(self, position: Position) -> list[str]:
        return [table for table in self._tables() if table not in position[_TABLES]]

    def _server_id(self) -> str:
        if self._server is None:
            with readable(self.reader):
                self._server = server_id(self._open_session())
        return self._server

    def _end(self) -> LogPosition:
        with readable(self.reader):
            return log_end(self._open_session())

    def _open_session(self) -> MySQLSession:
        if self._session is None or not self._session.wire.open:
            self._session = self.reader.session()
        return self._session

    def _since_read(self, position: Position, end: Position) -> Position:
        """Return the end of a range with the times of its tables, in seconds since 1970: of their rows, or of what was changed last."""
        known = position.get(_READ, {}) | end.get(_READ, {})
        times = {table: seconds for table, seconds in known.items() if table in end[_TABLES]}
        added = [table for table in end[_TABLES] if table not in position[_TABLES]]
        if added:
            times |= dict.fromkeys(added, self._now())
        return end | {_READ: times} if times else end

    def _now(self) -> int:
        """Return the clock of the server, in seconds since 1970."""
        with readable(self.reader):
            return int(self._open_session().query("SELECT UNIX_TIMESTAMP()")[0][0])

    def _position(self, end: TransactionEnd, tables: Sequence[str], count: int | None = None) -> Position:
        at, since = end.position, end.since
        known: Position = {_SERVER: self._server_id(), _FILE: at.file, _POS: at.pos, _TABLES: list(tables)}
        known |= {} if since is None else {_SINCE: {_FILE: since.file, _POS: since.pos}}
        return known if count is None else known | {_COUNT: count}


def _at(position: Position) -> LogPosition:
    return LogPosition(position[_FILE], int(position[_POS]))


def _end_of(position: Position) -> TransactionEnd:
    """Return the end of a transaction that a position is."""
    since = position.get(_SINCE)
    return TransactionEnd(_at(position), None if since is None else _at(since))

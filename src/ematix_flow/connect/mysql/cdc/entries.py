"""What the binary log tells, transaction by transaction: changes come when theirs is committed, and not where they stand."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import total_ordering
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ematix_flow.connect.change_log.tables import TableId

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
    first: int = 0
    """The number of its first row among those that have this place."""


@dataclass(frozen=True, slots=True)
class LoggedTruncate:
    """A table that was emptied."""

    table: TableId
    at: LogPosition
    gtid: str | None
    at_ms: int


@dataclass(frozen=True, slots=True)
class InDoubt:
    """A transaction that is prepared, and neither committed nor rolled back."""

    xid: str
    at: LogPosition
    seconds: int
    """For how long, by the times in the log."""


@dataclass(frozen=True, slots=True)
class TransactionEnd:
    """The end of a transaction: a position at which a range can end."""

    position: LogPosition
    since: LogPosition | None = None
    """Where the oldest transaction begins that is prepared there: the log is read from there on when it goes on."""
    in_doubt: InDoubt | None = None
    """That transaction, where it was just read."""

    @property
    def first(self) -> LogPosition:
        """Return from where on the log is read that follows."""
        return self.since or self.position


LogEntry: TypeAlias = LoggedRows | LoggedTruncate | TransactionEnd


@dataclass(frozen=True, slots=True)
class EventHeader:
    """An event of the log: where it begins, its transaction and its time."""

    at: LogPosition
    gtid: str | None
    seconds: int
    """Since 1970."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The changes of a distributed transaction that is prepared."""

    changes: list[LoggedRows]
    first: LogPosition
    """Where the transaction begins."""
    header: EventHeader


class Transactions:
    """The changes of transactions up to their ends, as the log has them: their rows are not read yet.

    A distributed transaction (XA) stands in the log where it was prepared, and counts where it is committed.
    """

    def __init__(self, begin: LogPosition) -> None:
        self.changes: list[LoggedRows | LoggedTruncate] = []
        self._first = begin
        self._savepoints: dict[str, int] = {}
        self._prepared: dict[str, _Prepared] = {}

    def ended(self, at: LogPosition, seconds: int) -> Iterator[LogEntry]:
        """Return the changes that were committed, and begin the next transaction; `seconds` is the time of the end."""
        changes, self.changes, self._savepoints = self.changes[::-1], [], {}
        while changes:
            yield changes.pop()  # with its rows, which the reader decodes and need not stay
        self._first = at
        oldest = min(self._prepared.items(), key=lambda one: one[1].first, default=None)
        if oldest is None:
            yield TransactionEnd(at)
        else:
            xid, prepared = oldest
            in_doubt = InDoubt(xid, prepared.header.at, seconds - prepared.header.seconds)
            yield TransactionEnd(at, prepared.first, in_doubt)

    def prepare(self, xid: str, header: EventHeader) -> None:
        """Keep the changes of a transaction until it is committed, and begin the next one."""
        changes = [change for change in self.changes if isinstance(change, LoggedRows)]
        self.changes, self._savepoints = [], {}
        if changes:
            self._prepared[xid] = _Prepared(changes, self._first, header)

    def commit(self, xid: str, header: EventHeader) -> Iterator[LogEntry]:
        """Return the changes of a transaction that was prepared, at the place of its commit.

        One that is not known has none of the tables that are read, or was committed before their rows were read.
        """
        prepared = self._prepared.pop(xid, None)
        changes, number = prepared.changes[::-1] if prepared is not None else [], 0
        while changes:
            change = changes.pop()
            yield replace(change, at=header.at, gtid=header.gtid, at_ms=header.seconds * 1000, first=number)
            number += len(change.event.rows)

    def forget(self, xid: str) -> None:
        """Forget a transaction that was prepared and rolled back."""
        self._prepared.pop(xid, None)

    def set_savepoint(self, name: str) -> None:
        """Note how many changes there are now."""
        self._savepoints[name] = len(self.changes)

    def roll_back(self, name: str | None) -> None:
        """Forget the changes since a savepoint, or all."""
        del self.changes[self._savepoints.get(name, len(self.changes)) if name is not None else 0 :]

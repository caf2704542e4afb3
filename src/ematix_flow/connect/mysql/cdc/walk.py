"""A walk through the log from the end of a transaction on: how many changes it has, and up to when; their rows are not read."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ematix_flow.connect.mysql.cdc.binlog import read_log
from ematix_flow.connect.mysql.cdc.entries import LoggedRows, LoggedTruncate, TransactionEnd
from ematix_flow.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from ematix_flow.connect.change_log.tables import TableId
    from ematix_flow.connect.mysql.cdc.binlog import LogReader
    from ematix_flow.connect.mysql.cdc.entries import LogEntry, LogPosition

IN_DOUBT_SECONDS = 3600
"""For how long the log may go on behind a prepared transaction before that is an error: it is read again for every batch."""

AHEAD_SECONDS = 3600
"""How far before the clock of the server a change may be that holds back the times of later ones: sessions may set theirs."""


@dataclass(frozen=True, slots=True)
class Walk:
    """What lies between two ends of transactions."""

    reached: TransactionEnd
    count: int = 0
    """How many messages."""
    times: Mapping[str, int] = field(default_factory=dict)
    """When the latest change of each table was made by its own word, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class ChangeTimes:
    """The times of the changes of a range, in seconds since 1970.

    The log says when the statement of a change began, and that may have waited for rows that another one changed meanwhile.
    Commits have the order of the log, so no change of a table is earlier than those before it.
    """

    before: Mapping[str, int]
    """Those of tables before the range."""
    latest: Mapping[str, int]
    """Those at its end: for longer no change holds back others."""

    def of(self, entries: Iterable[LogEntry]) -> Iterator[LogEntry]:
        """Return what the log has, with these times."""
        reached = dict(self.before)
        for entry in entries:
            if isinstance(entry, TransactionEnd):
                yield entry
                continue
            table = str(entry.table)
            before = reached.get(table, 0)
            reached[table] = max(before, min(entry.at_ms // 1000, self.latest.get(table, 0)))
            yield replace(entry, at_ms=max(entry.at_ms, before * 1000))


def later_times(before: Mapping[str, int], changed: Mapping[str, int], now: int) -> dict[str, int]:
    """Return the times of tables behind some changes; what a clock would not show yet for long counts as little as that."""
    return dict(before) | {
        table: max(before.get(table, 0), min(seconds, now + AHEAD_SECONDS)) for table, seconds in changed.items()
    }


def walk(reader: LogReader, begin: TransactionEnd, end: LogPosition, tables: Collection[TableId], most: int) -> Walk:
    """Return what lies before the end of the last transaction up to which there are so many messages, or of the first one."""
    walked, open_count, times = Walk(begin), 0, dict[str, int]()
    with closing(read_log(reader, begin, tables)) as entries:  # type: ignore[type-var]
        for entry in entries:
            match entry:
                case TransactionEnd(at):
                    if at > end or (walked.count and walked.count + open_count > most):
                        break
                    walked = Walk(entry, walked.count + open_count, _latest(walked.times, times))
                    open_count, times = 0, {}
                    if at == end:
                        _refuse_forgotten(entry)
                    if walked.count >= most or at == end:
                        break
                case LoggedRows() | LoggedTruncate():
                    open_count += len(entry.event.rows) if isinstance(entry, LoggedRows) else 1
                    times = _latest(times, {str(entry.table): entry.at_ms // 1000})
    return walked


def _latest(known: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return dict(known) | {table: max(seconds, known.get(table, 0)) for table, seconds in more.items()}


def _refuse_forgotten(end: TransactionEnd) -> None:
    """Refuse to go on behind a transaction that has been prepared for long at the end of the log."""
    doubt = end.in_doubt
    if doubt is not None and doubt.seconds > IN_DOUBT_SECONDS:
        message = (
            f"transaction {doubt.xid} was prepared at {doubt.at.file} {doubt.at.pos}, and is neither committed nor rolled "
            f"back {doubt.seconds} seconds later; the log since then is read for every batch"
        )
        raise RunError(message, hint=f"XA RECOVER shows it: XA COMMIT {doubt.xid}, or XA ROLLBACK {doubt.xid}.")

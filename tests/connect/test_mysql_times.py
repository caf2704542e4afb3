"""Times of changes in the log of MySQL: never before those of earlier changes of their table, wherever a range begins."""

from __future__ import annotations

from ematix_flow.connect.change_log.tables import TableId
from ematix_flow.connect.mysql.cdc.entries import LoggedTruncate, LogPosition, TransactionEnd
from ematix_flow.connect.mysql.cdc.walk import AHEAD_SECONDS, ChangeTimes, later_times

NOW = 1_800_000_000


def change(table: str, seconds: int) -> LoggedTruncate:
    return LoggedTruncate(TableId("shop", table), LogPosition("bin.000001", seconds - NOW + 1000), None, seconds * 1000)


def times(entries: list[LoggedTruncate], cut: int) -> list[int]:
    """Return the times of changes, in seconds from now, that are read in two ranges."""
    known: dict[str, int] = {}
    read: list[int] = []
    for part in (entries[:cut], entries[cut:]):
        changed: dict[str, int] = {}
        for entry in part:
            changed[str(entry.table)] = max(entry.at_ms // 1000, changed.get(str(entry.table), 0))
        latest = later_times(known, changed, NOW)
        end = TransactionEnd(LogPosition("bin.000001", 1))
        changes = [one for one in ChangeTimes(known, latest).of([*part, end]) if not isinstance(one, TransactionEnd)]
        read += [one.at_ms // 1000 - NOW for one in changes]
        known = latest
    return read


def test_no_change_of_a_table_is_earlier_than_those_before_it() -> None:
    log = [change("a", NOW + 5), change("b", NOW + 1), change("a", NOW), change("a", NOW + 7), change("b", NOW)]
    for cut in range(len(log) + 1):
        assert times(log, cut) == [5, 1, 5, 7, 1]


def test_a_time_that_a_session_has_set_does_not_hold_back_others_for_long() -> None:
    log = [change("a", NOW), change("a", NOW + 10_000_000), change("a", NOW + 1), change("a", NOW + 2 * AHEAD_SECONDS)]
    for cut in range(len(log) + 1):
        assert times(log, cut) == [0, 10_000_000, AHEAD_SECONDS, 2 * AHEAD_SECONDS]

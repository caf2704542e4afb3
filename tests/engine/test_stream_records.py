from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ematix_flow.clock import Clock
from ematix_flow.engine.stream.run_records import EVERY, StreamRecord, new_run_id
from ematix_flow.errors import TransientError
from ematix_flow.events import BatchLoaded, StreamIdle, StreamStarted
from ematix_flow.observe.metrics.stream_stats import StreamStatsCollector
from ematix_flow.records import Counts
from ematix_flow.run_log import SqliteRunLog

if TYPE_CHECKING:
    from ematix_flow.records import RunRecord

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
BATCH = BatchLoaded("orders", "t", Counts(staged=9, rejected=1), 0.5, messages=10, new_messages=10)


class Running:
    """A stream whose run is remembered, at a time that the test chooses."""

    def __init__(self) -> None:
        self.now = START
        clock = Clock(now=lambda: self.now)
        self.log = SqliteRunLog(Path("runs.db"))
        self.collector = StreamStatsCollector(clock)
        self.record = StreamRecord(
            new_run_id("orders", clock.now()), "orders", self.collector.begin("orders"), self.log, clock
        )

    def hears(self, event: BatchLoaded | StreamIdle | StreamStarted, after: timedelta) -> RunRecord:
        self.now += after
        self.collector(event)
        self.record(event)
        return self.logged_record()

    def logged_record(self) -> RunRecord:
        ((record,), total) = self.log.list_runs(pipeline="orders")
        assert total == 1
        return record


def test_a_run_is_remembered_from_its_beginning() -> None:
    record = Running().logged_record()
    assert (record.status, record.kind, record.started_at) == ("running", "streaming", START.isoformat())
    prefix, _, suffix = record.run_id.rpartition("-")
    assert (prefix, len(suffix)) == ("orders-stream-20260102T030405Z", 8)


def test_a_run_says_who_moves_its_rows_as_soon_as_that_is_known() -> None:
    running = Running()
    running.hears(StreamStarted("another", "", "local", "so"), timedelta(0))
    assert "engine" not in running.logged_record().extras
    running.hears(StreamStarted("orders", "", "spark", "rows move"), timedelta(0))
    record = running.hears(BATCH, EVERY)
    assert (record.extras["engine"], record.extras["engine_reason"]) == ("spark", "rows move")
    assert running.hears(BATCH, EVERY).extras["rows_consumed_total"] == 20


def test_the_numbers_are_refreshed_every_thirty_seconds() -> None:
    running = Running()
    assert timedelta(seconds=30) == EVERY
    assert running.hears(BATCH, timedelta(seconds=10)).extras["rows_consumed_total"] == 0
    record = running.hears(StreamIdle("orders", ""), timedelta(seconds=20))
    assert (record.extras["rows_consumed_total"], record.rows_inserted, record.rows_rejected) == (10, 9, 1)
    assert record.extras["snapshot_at"] == running.now.isoformat()
    assert record.status == "running"


def test_events_of_other_streams_change_nothing() -> None:
    running = Running()
    record = running.hears(StreamIdle("copies", ""), timedelta(minutes=5))
    assert record.extras["snapshot_at"] == START.isoformat()


@pytest.mark.parametrize(
    ("error", "status"),
    [(None, "succeeded"), (TransientError("the broker is away"), "failed"), (KeyboardInterrupt(), "cancelled")],
)
def test_the_end_is_remembered(error: BaseException | None, status: str) -> None:
    running = Running()
    running.hears(BATCH, timedelta(seconds=1))
    running.record.end(error)
    record = running.logged_record()
    assert (record.status, record.rows_inserted, record.finished_at) == (status, 9, running.now.isoformat())
    assert ("the broker is away" in (record.error_summary or "")) == (status == "failed")


def test_a_log_that_cannot_be_written_stops_nothing_and_hears_of_it_later() -> None:
    running = Running()
    Path("runs.db").rename("away.db")
    Path("runs.db").mkdir()
    running.record(StreamIdle("orders", ""))
    with pytest.warns(UserWarning, match="the run log lacks"):
        running.record.end(None)
    Path("runs.db").rmdir()
    Path("away.db").rename("runs.db")
    assert running.log.reconcile() == 0
    assert running.logged_record().status == "succeeded"

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ematix_flow.clock import Clock
from ematix_flow.events import BatchLoaded, RowsStaged, StreamFailed, StreamIdle, StreamLag
from ematix_flow.observe.metrics.stream_stats import WINDOWS, StreamStatsCollector
from ematix_flow.records import Counts


class Hands:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.at = datetime(2026, 1, 1, tzinfo=UTC)

    def forward(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


def collector_and_hands() -> tuple[StreamStatsCollector, Hands]:
    hands = Hands()
    return StreamStatsCollector(Clock(now=lambda: hands.at)), hands


def batch(target: str, rows: int, *, new_messages: int | None = None, rejected: int = 0) -> BatchLoaded:
    counts = Counts(staged=rows - rejected, rejected=rejected)
    return BatchLoaded(
        "s", target, counts, 0.5, messages=rows, new_messages=rows if new_messages is None else new_messages
    )


def test_messages_count_once_and_rows_once_for_each_target() -> None:
    collector, _ = collector_and_hands()
    collector(batch("a", 10, rejected=2))
    collector(batch("b", 10, new_messages=0))
    stats = collector.streams["s"]
    assert (stats.consumed, stats.written, stats.rejected, stats.batches) == (10, 18, 2, 1)
    assert (stats.targets["a"].rows, stats.targets["b"].rows) == (8, 10)


def test_rates_are_those_of_the_last_minutes() -> None:
    collector, hands = collector_and_hands()
    stats = collector.begin("s")
    collector(batch("a", 600))
    hands.forward(120)
    collector(batch("a", 60))
    hands.forward(30)
    minute, five = (stats.rates(hands.at, span) for span in WINDOWS.values())
    assert minute == {
        "rows_consumed_per_sec": 1.0, "rows_written_per_sec": 1.0, "batches_per_sec": round(1 / 60, 3),
        "errors_per_sec": 0.0, "avg_batch_cycle_ms": 500.0, "span_seconds": 60.0,
    }  # fmt: skip
    assert (five["rows_consumed_per_sec"], five["span_seconds"]) == (4.4, 150.0)


def test_what_is_older_than_any_rate_is_forgotten() -> None:
    collector, hands = collector_and_hands()
    for _ in range(1000):
        collector(batch("a", 1))
        hands.forward(1)
    assert len(collector.streams["s"]._samples) <= 301
    assert collector.streams["s"].consumed == 1000


def test_a_target_that_failed_rests_until_its_next_batch() -> None:
    collector, _ = collector_and_hands()
    collector(StreamLag("s", "a", {"0": 3, "1": 4}))
    collector(StreamFailed("s", "a", "away", 1.0))
    collector(StreamIdle("s", ""))
    stats = collector.streams["s"]
    assert (stats.targets["a"].lag, stats.targets["a"].failure, stats.errors, stats.idle) == (7, "away", 1, True)
    collector(batch("a", 1))
    assert (stats.targets["a"].failure, stats.idle) == ("", False)


def test_events_of_batch_loads_are_no_streams() -> None:
    collector, _ = collector_and_hands()
    collector(RowsStaged("p", "t", 5, 0))
    assert collector.streams == {}

"""While a range of a stream with state is loaded, the next one is read, if it is full; what goes wrong there is told there."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow import Aggregation, Window
from ematix_flow.engine.stream import frames
from ematix_flow.errors import RunError
from ematix_flow.run.streams.read_ahead import ReadAhead
from ematix_flow.run.transform.frame_sql import Typed
from tests.crash.harness import wait_until
from tests.depth import STREAM_STATE
from tests.streams.feeds import at, drain, duckdb_at, rows_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ematix_flow.declare.stream.stream import Stream
    from tests.streams.feeds import Topic

pytestmark = [
    pytest.mark.service,
    pytest.mark.spark,
    pytest.mark.xdist_group(STREAM_STATE),
    pytest.mark.usefixtures("spark", "stateful"),
]

MOST = 3


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note whether a range that was read ahead was asked for or discarded."""
    noted: list[str] = []

    class Noting(ReadAhead):
        def result(self) -> Typed:
            noted.append("asked for")
            return super().result()

        def discard(self) -> None:
            noted.append("discarded")
            super().discard()

    monkeypatch.setattr(frames, "ReadAhead", Noting)
    return noted


def counting(topic: Topic, warehouse: Path) -> Stream:
    """Declare windows of ten seconds over ranges of three messages."""
    window = Window(
        kind="tumbling",
        duration_ms=10_000,
        event_time_column="at",
        aggregations=(Aggregation(agg="count", as_="n"),),
    )
    options: dict[str, Any] = {"target_table": ("shop", "w"), "create_table": True, "max_rows_per_batch": MOST}
    return topic.stream(duckdb_at(warehouse), window=window, **options)


def written(topic: Topic, count: int, first: int = 0) -> None:
    """Write a message every five seconds: two in each window."""
    topic.write([{"at": at(5 * (first + number))} for number in range(count)], partition=0)


def windows(warehouse: Path) -> list[tuple[Any, ...]]:
    """Return how many messages every window has that was closed."""
    return rows_in(warehouse, "SELECT n FROM shop.w ORDER BY window_start")


def test_full_ranges_are_read_while_the_one_before_them_is_loaded(
    topic: Topic, warehouse: Path, used: list[str]
) -> None:
    written(topic, 4 * MOST)
    drain(counting(topic, warehouse))
    assert windows(warehouse) == [(2,)] * 5
    assert used == ["asked for"] * 3


@pytest.mark.deep
def test_a_range_to_which_more_may_come_is_not_read_ahead(topic: Topic, warehouse: Path, used: list[str]) -> None:
    written(topic, 2 * MOST - 1)
    drain(counting(topic, warehouse))
    assert windows(warehouse) == [(2,)] * 2
    assert used == []


@pytest.mark.deep
def test_what_cannot_be_read_ahead_is_told_when_the_range_before_it_is_loaded(
    topic: Topic, warehouse: Path, used: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written(topic, 2 * MOST)
    monkeypatch.setattr(frames.StreamFrames, "_typed", _broken_at(2))
    stream = counting(topic, warehouse)
    with pytest.raises(RunError, match="torn"):
        drain(stream)
    assert used == ["asked for"]
    drain(stream)
    assert windows(warehouse) == [(2,)] * 2


def test_what_is_discarded_is_forgotten_by_spark(spark: SparkSession) -> None:
    read = _cached(spark)
    ahead = ReadAhead(spark, ("a", "b"), lambda: read)
    assert ahead.result() is read
    ahead.discard()
    assert not read.retained.is_cached


def test_a_source_that_does_not_answer_keeps_nobody_from_ending(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ematix_flow.run.streams.read_ahead._DEADLINE", 0.1)
    read, answered = _cached(spark), Event()

    def late() -> Typed:
        answered.wait(60)
        return read

    ahead = ReadAhead(spark, ("a", "b"), late)
    ahead.discard()
    assert read.retained.is_cached
    answered.set()
    ahead.result()
    wait_until(lambda: not read.retained.is_cached)


def _cached(spark: SparkSession) -> Typed:
    """Return messages that Spark keeps."""
    frame = spark.range(3).persist()
    frame.count()
    return Typed(frame, frame, {}, ())


def _broken_at(call: int) -> Callable[..., Any]:
    typed = frames.StreamFrames._typed
    calls = 0

    def read(*given: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            raise RunError("the messages are torn")
        return typed(*given)

    return read

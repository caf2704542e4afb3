"""Streams with windows that two processes run, or that are told to end: every window is in the table once."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.crash.windows import EventWriter, WindowFeed, complaints, windows_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.crash.journey import Place
    from tests.crash.nursery import Ending, Nursery
    from tests.services.kafka import KafkaBroker

pytestmark = [
    pytest.mark.crash,
    pytest.mark.service,
    pytest.mark.spark,
    pytest.mark.deep,
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("state_kills"),
]

PATIENCE = 400.0
"""Seconds after which a child that hangs is killed."""


@pytest.fixture
def place(place_of: Callable[[str], Place]) -> Place:
    """Give an empty place on PostgreSQL."""
    return place_of("postgres")


@pytest.fixture
def feed(kafka_broker: KafkaBroker, tmp_path: Path) -> WindowFeed:
    """Give an empty topic, and a folder for the state."""
    return WindowFeed(kafka_broker.address, kafka_broker.create_topic(3), str(tmp_path / "state"))


def run(
    nursery: Nursery, place: Place, feed: WindowFeed, failpoints: str = "", *, available_now: bool = True
) -> Ending:
    """Run the stream in a process of its own."""
    return nursery.run("window_stream", place, feed, available_now, failpoints=failpoints, kill_after=PATIENCE)


def finished(nursery: Nursery, place: Place, feed: WindowFeed, writer: EventWriter) -> list[str]:
    """Load the rest in peace, and give what is wrong with the table."""
    writer.end()
    ending = run(nursery, place, replace(feed, most=10_000))
    assert ending.error == ""
    return complaints(windows_in(place), writer.written)


@pytest.mark.parametrize("point", ["state.range_written", "state.computed", "stage.collected", "state.loaded"])
def test_a_process_that_slept_while_another_one_went_on_doubles_nothing(
    nursery: Nursery, place: Place, feed: WindowFeed, point: str
) -> None:
    writer = EventWriter(feed)
    writer.write(27)
    slow = run(nursery, place, feed, f"{point}=stop@3", available_now=False)
    assert slow.stopped, slow
    writer.write(18)
    assert run(nursery, place, feed).error == ""
    seen = windows_in(place)
    assert complaints(seen, writer.written, unfinished=True) == []
    slow = nursery.resume(slow)
    assert slow.error.startswith("PositionMovedError"), slow
    assert "another process runs this stream; nothing was changed" in slow.error
    assert windows_in(place) == seen
    assert finished(nursery, place, feed, writer) == []


@pytest.mark.parametrize("point", ["state.range_written", "commit.before_commit", "state.loaded"])
def test_a_polite_signal_lets_the_batch_finish(nursery: Nursery, place: Place, feed: WindowFeed, point: str) -> None:
    writer = EventWriter(feed)
    writer.write(36)
    stopped = run(nursery, place, feed, f"{point}=stop@2")
    assert stopped.stopped, stopped
    os.kill(stopped.stopped, signal.SIGTERM)
    ending = nursery.resume(stopped)
    assert ending.error == ""
    assert ending.answer["shutdown_triggered"] is True
    assert ending.answer["iterations"] < 4
    assert finished(nursery, place, feed, writer) == []

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

    from tests.crash.journey import CrashTarget
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

LIFE_SECONDS = 400.0
"""Seconds after which a child that hangs is killed."""


@pytest.fixture
def target(target_of: Callable[[str], CrashTarget]) -> CrashTarget:
    """Return an empty target on PostgreSQL."""
    return target_of("postgres")


@pytest.fixture
def feed(kafka_broker: KafkaBroker, tmp_path: Path) -> WindowFeed:
    """Return an empty topic, and a folder for the state."""
    return WindowFeed(kafka_broker.address, kafka_broker.create_topic(3), str(tmp_path / "state"))


def run(
    nursery: Nursery, target: CrashTarget, feed: WindowFeed, failpoints: str = "", *, available_now: bool = True
) -> Ending:
    """Run the stream in a process of its own."""
    return nursery.run("window_stream", target, feed, available_now, failpoints=failpoints, kill_after=LIFE_SECONDS)


def finished(nursery: Nursery, target: CrashTarget, feed: WindowFeed, writer: EventWriter) -> list[str]:
    """Load the rest in peace, and return what is wrong with the table."""
    writer.end()
    ending = run(nursery, target, replace(feed, most=10_000))
    assert ending.error == ""
    return complaints(windows_in(target), writer.written)


MOVED = ("PositionMovedError", "another process runs this stream; nothing was changed")
FENCED = ("FencedError", "a newer run of crash_windows has taken over, this one may not commit")


@pytest.mark.parametrize(
    ("point", "error", "text"),
    [
        ("state.range_written", *MOVED),
        ("state.computed", *MOVED),
        ("stage.collected", *FENCED),
        ("state.loaded", *MOVED),
    ],
)
def test_a_process_that_slept_while_another_one_went_on_doubles_nothing(
    nursery: Nursery, target: CrashTarget, feed: WindowFeed, point: str, error: str, text: str
) -> None:
    writer = EventWriter(feed)
    writer.write(27)
    slow = run(nursery, target, feed, f"{point}=stop@3", available_now=False)
    assert slow.stopped, slow
    writer.write(18)
    assert run(nursery, target, feed).error == ""
    windows_before = windows_in(target)
    assert complaints(windows_before, writer.written, unfinished=True) == []
    slow = nursery.resume(slow)
    assert slow.error.startswith(error), slow
    assert text in slow.error
    assert windows_in(target) == windows_before
    assert finished(nursery, target, feed, writer) == []


@pytest.mark.parametrize("point", ["state.range_written", "commit.before_commit", "state.loaded"])
def test_a_polite_signal_lets_the_batch_finish(
    nursery: Nursery, target: CrashTarget, feed: WindowFeed, point: str
) -> None:
    writer = EventWriter(feed)
    writer.write(36)
    stopped = run(nursery, target, feed, f"{point}=stop@2")
    assert stopped.stopped, stopped
    os.kill(stopped.stopped, signal.SIGTERM)
    ending = nursery.resume(stopped)
    assert ending.error == ""
    assert ending.answer["shutdown_triggered"] is True
    assert ending.answer["iterations"] < 4
    assert finished(nursery, target, feed, writer) == []

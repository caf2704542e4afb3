"""Sources that fall silent: they hold time back for as long as they may, and then no more."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow import Source, Watermark
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.run import run_stream
from ematix_flow.events import StateChanged, StreamIdle
from ematix_flow.observe.bus import Bus
from tests.depth import STREAM_STATE
from tests.streams.feeds import drain, duckdb_at, rows_in
from tests.streams.test_windows import CREATED, closed, events, tumbling

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.declare.stream.stream import Stream
    from ematix_flow.events import Event
    from tests.streams.feeds import Topic

pytestmark = [
    pytest.mark.service,
    pytest.mark.spark,
    pytest.mark.xdist_group(STREAM_STATE),
    pytest.mark.usefixtures("spark", "stateful"),
]


NEVER = 10**12
MANY = 2_000
TABLES = "SELECT 1 FROM duckdb_tables() WHERE table_name = 'w'"


def both(sides: tuple[Topic, Topic], warehouse: Path, idleness: int, **more: Any) -> Stream:
    """Declare a stream of windows over two topics."""
    sources = [Source(one.connection, one.name) for one in sides]
    given = {"name": "both", "sources": sources, "target": duckdb_at(warehouse), **CREATED, "window": tumbling()}
    held = {"watermark": Watermark(source_idleness_ms=idleness), "idle_pause_ms": 20}
    return stream_from_keywords({**given, **held, **more}, None)


@pytest.mark.deep
def test_a_topic_that_falls_silent_holds_windows_back_and_then_no_more(
    sides: tuple[Topic, Topic], warehouse: Path
) -> None:
    left, right = sides
    left.write(events((1, "a", 5), (12, "a", 1)))
    right.write(events((2, "b", 7)))
    drain(both(sides, warehouse, NEVER))
    left.write(events((25, "a", 2)))
    drain(both(sides, warehouse, NEVER))
    assert rows_in(warehouse, TABLES) == [] or closed(warehouse) == []

    bus, stop = Bus(), threading.Event()
    heard: list[Event] = []

    def steer(event: Event) -> None:
        """Let the left topic go on alone until a window is given out."""
        heard.append(event)
        pauses = sum(isinstance(one, StreamIdle) for one in heard)
        if isinstance(event, StreamIdle) and pauses % 10 == 1:
            left.write(events((25 + pauses / 1000, "a", 2)))
        if isinstance(event, StateChanged) or pauses > MANY:
            stop.set()

    bus.subscribe(steer)
    run_stream(both(sides, warehouse, 1_500), StreamOptions(bus=bus, stop=stop))
    assert closed(warehouse, "user, n") == [(0.0, "a", 1), (0.0, "b", 1), (10.0, "a", 1)]

    # It is heard again: what is behind the watermark is late, and it holds time back as before.
    bus, heard = Bus(), []
    bus.subscribe(heard.append)
    right.write(events((3, "b", 1), (28, "b", 9)))
    left.write(events((31, "a", 3)))
    drain(both(sides, warehouse, NEVER), bus=bus)
    assert len(closed(warehouse)) == 3
    assert sum(one.late for one in heard if isinstance(one, StateChanged)) == 1
    right.write(events((30, "b", 9)))
    drain(both(sides, warehouse, NEVER))
    assert closed(warehouse, "user")[3:] == [(20.0, "a"), (20.0, "b")]

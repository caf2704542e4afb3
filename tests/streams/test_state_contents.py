"""What a stream remembers is shown row by row, as it would be given out now, and nothing is changed by that."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow import Aggregation, Dedupe, StateStore, Watermark, Window
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.state.contents import state_contents
from ematix_flow.errors import PlanError, UnknownNameError
from ematix_flow.serve.cli.commands.streams import state as command
from tests.depth import STATE_CHANGES
from tests.streams.feeds import BEGIN, at, drain, duckdb_at, rows_in
from tests.streams.test_stream_joins import joined, pairs
from tests.streams.test_windows import COUNT, closed, events, into, tumbling

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.declare.stream.stream import Stream
    from ematix_flow.engine.stream.state.contents import StateContents
    from ematix_flow.run.streams.remembered import Oldest
    from tests.streams.feeds import Topic

pytestmark = [
    pytest.mark.service,
    pytest.mark.spark,
    pytest.mark.xdist_group(STATE_CHANGES),
    pytest.mark.usefixtures("spark", "stateful"),
    pytest.mark.filterwarnings("ignore:stream .* declares a state store in memory"),
]


def contents(stream: Stream, limit: int = 100, **keys: str) -> StateContents:
    """Return what the one target of a stream remembers."""
    (one,) = state_contents(stream, StreamOptions(), limit, keys)
    return one


def oldest(stream: Stream, limit: int = 100, **keys: str) -> Oldest:
    """Return the oldest things of it."""
    things = contents(stream, limit, **keys).oldest
    assert things is not None
    return things


def seconds(micros: int | None) -> float:
    """Return a time as seconds after the first event."""
    assert micros is not None
    return micros / 1e6 - BEGIN.timestamp()


def shown(stream: Stream, **keys: str) -> list[tuple[Any, ...]]:
    """Return kind, status, seconds of the beginning and end, rows, and values of everything that is remembered."""
    return [
        (one.kind, one.status, *(seconds(when) for when in (one.begin, one.end)), one.rows, one.columns)
        for one in oldest(stream, **keys).rows
    ]


def test_open_windows_are_shown_with_their_values_so_far(
    topic: Topic, warehouse: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = into(topic, warehouse, tumbling(), watermark=Watermark(lateness_ms=5_000))
    assert contents(stream).batch is None
    topic.write(events((1, "a", 5), (3, "b", 1), (2, "a", 7), (12, "a", 1)), partition=0)
    drain(stream)
    topic.write(events((13, "a", 2)), partition=0)
    drain(stream)
    first, second, third = shown(stream)
    assert first[:5] == ("window", "open", 0.0, 10.0, 2)
    assert first[5] == {"user": "a", "n": 2, "total": 12, "mean": 6.0, "first": 5, "last": 7}
    assert second[5] == {"user": "b", "n": 1, "total": 1, "mean": 1.0, "first": 1, "last": 1}
    assert third[2:] == (10.0, 20.0, 2, {"user": "a", "n": 2, "total": 3, "mean": 1.5, "first": 1, "last": 2})
    whole = oldest(stream, limit=1)
    assert (len(whole.rows), whole.total, seconds(contents(stream).watermark)) == (1, 3, 8)
    assert 0 < whole.rows[0].bytes < whole.bytes
    assert shown(stream, user="b") == [second]
    with pytest.raises(UnknownNameError, match="no column 'usr'"):
        shown(stream, usr="b")
    monkeypatch.setattr(command, "find_stream", lambda *_: stream)
    monkeypatch.setattr(command, "stop_spark_at_end", lambda: None)
    assert command.state.main([stream.name, "--limit", "2"], standalone_mode=False) == 0
    output = capsys.readouterr()
    assert "3 rows" in output.out
    assert "oldest 2 of 3" in output.err
    assert "0:00:08" in output.out
    # Looking changes nothing: what is open closes with the same values.
    topic.write(events((25, "a", 0)), partition=0)
    drain(stream)
    assert [row[1:4] for row in closed(warehouse)] == [("a", 2, 12), ("b", 1, 1), ("a", 2, 3)]


@pytest.mark.deep
def test_sessions_rows_of_joins_and_keys_are_shown(
    topic: Topic,
    sides: tuple[Topic, Topic],
    warehouse: Path,
) -> None:
    window = Window(
        kind="session", gap_ms=5_000, max_session_duration_ms=8_000, event_time_column="at", group_by=("user",),
        aggregations=(*COUNT, Aggregation(agg="sum", column="amount", as_="total")),
    )  # fmt: skip
    held = {"watermark": Watermark(lateness_ms=60_000), "state_store": StateStore(kind="postgres", url="x")}
    topic.write(events((1, "a", 5), (3, "b", 1), (5, "a", 7), (9, "a", 2), (12, "a", 1), (30, "a", 1)), partition=0)
    stream = into(topic, warehouse, window, **held)
    drain(stream)
    sessions = [(*row[2:5], row[5]["user"], row[5]["total"]) for row in shown(stream)]
    # The third event of a is the last one that is within the longest duration.
    assert sessions == [(1, 14, 3, "a", 14), (3, 8, 1, "b", 1), (12, 17, 1, "a", 1), (30, 35, 1, "a", 1)]
    left, right = sides
    both = joined(sides, warehouse, kind="left_outer")
    left.write([{"k": "a", "n": 1, "at": at(0)}, {"k": "b", "n": 2, "at": at(1)}])
    right.write([{"k": "a", "n": 10, "at": at(4)}])
    drain(both)
    assert pairs(warehouse) == [(1, 10)]
    rows = [(row[0], row[1], row[2], row[3], row[5]["n"]) for row in shown(both)]
    assert rows == [("left", "paired", 0, 5, 1), ("left", "waiting", 1, 6, 2), ("right", "paired", 4, 9, 10)]
    assert [row[5]["n"] for row in shown(both, k="b")] == [2]


@pytest.mark.deep
def test_keys_are_shown_and_streams_without_state_are_refused(topic: Topic, warehouse: Path) -> None:
    dedupe = Dedupe(keys=("user",), within=timedelta(seconds=30), event_time_column="at")
    plain: dict[str, Any] = {"target_table": ("shop", "w"), "create_table": True}
    stream = topic.stream(duckdb_at(warehouse), deduplicate=dedupe, **plain)
    topic.write(events((1, "a", 5), (2, "a", 6), (3, "b", 1)), partition=0)
    drain(stream)
    assert shown(stream) == [("key", "loaded", 1, 31, 1, {"user": "a"}), ("key", "loaded", 3, 33, 1, {"user": "b"})]
    assert len(rows_in(warehouse, "SELECT * FROM shop.w")) == 2
    with pytest.raises(PlanError, match="remembers nothing"):
        contents(topic.stream(duckdb_at(warehouse), **plain))

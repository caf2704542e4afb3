"""Joins of two topics: pairs by key and time, and rows without one at the moment when none can come any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow import Join, Source, StateStore
from ematix_flow.declare.stream.build import stream_from_keywords
from tests.depth import STREAM_STATE
from tests.streams.feeds import at, drain, duckdb_at, rows_in

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.declare.stream.stream import Stream
    from tests.streams.feeds import Topic

pytestmark = [
    pytest.mark.service,
    pytest.mark.spark,
    pytest.mark.xdist_group(STREAM_STATE),
    pytest.mark.usefixtures("spark", "stateful"),
]


def joined(sides: tuple[Topic, Topic], warehouse: Path, **more: Any) -> Stream:
    """Declare a join of both topics by their keys within five seconds."""
    left, right = sides
    join = {
        "left_source": left.name,
        "right_source": right.name,
        "left_keys": ("k",),
        "right_keys": ("k",),
        "time_window_ms": 5_000,
        "event_time_column": "at",
    }
    return stream_from_keywords(
        {
            "name": f"j_{left.name}",
            "sources": [Source(left.connection, left.name), Source(right.connection, right.name)],
            "target": duckdb_at(warehouse),
            "target_table": ("shop", "pairs"),
            "create_table": True,
            "join": Join(**{**join, **more}),
            "state_store": StateStore(kind="in_memory"),
        },
        None,
    )


def pairs(warehouse: Path) -> list[tuple[Any, ...]]:
    """Return the pairs of the table by the numbers of their rows."""
    return sorted(rows_in(warehouse, "SELECT left_n, right_n FROM shop.pairs"), key=repr)


@pytest.mark.filterwarnings("ignore:stream .* declares a state store in memory")
def test_pairs_are_loaded_once_and_rows_without_one_when_none_can_come(
    sides: tuple[Topic, Topic], warehouse: Path
) -> None:
    left, right = sides
    stream = joined(sides, warehouse, kind="left_outer")
    left.write([{"k": "a", "n": 1, "at": at(0)}, {"k": "b", "n": 2, "at": at(1)}, {"k": None, "n": 3, "at": at(2)}])
    right.write([{"k": "a", "n": 10, "at": at(5)}, {"k": "a", "n": 11, "at": at(6)}, {"k": None, "n": 12, "at": at(2)}])
    drain(stream)
    assert pairs(warehouse) == [(1, 10), (3, 12)]
    left.write([{"k": "z", "n": 4, "at": at(30)}])
    right.write([{"k": "a", "n": 13, "at": at(4)}, {"k": "y", "n": 14, "at": at(30)}])
    drain(stream)
    assert pairs(warehouse) == [(1, 10), (1, 13), (2, None), (3, 12)]


@pytest.mark.deep
@pytest.mark.filterwarnings("ignore:stream .* declares a state store in memory")
def test_rows_wait_by_times_that_have_grown_and_are_given_out_then(sides: tuple[Topic, Topic], warehouse: Path) -> None:
    left, right = sides
    left.write([{"k": "a", "n": 1, "at": at(10)}])
    right.write([{"k": "z", "n": 10, "at": at(10)}])
    drain(joined(sides, warehouse, kind="left_outer"))
    longer = joined(sides, warehouse, kind="left_outer", time_window_ms=10_000)
    # What woke the row by the times of before finds that it waits on.
    for second in (17, 100):
        left.write([{"k": f"at {second}", "n": second, "at": at(second)}])
        right.write([{"k": f"at {second}", "n": second, "at": at(second)}])
        drain(longer)
    assert pairs(warehouse) == [(1, None), (100, 100), (17, 17)]

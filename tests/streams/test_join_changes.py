"""Joins whose state is built anew, and whose past is computed again: the rows are those of a plain model."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ematix_flow import Join, Source, StateStore, Watermark
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.state.redeploy import redeploy_stream
from tests.depth import STATE_CHANGES
from tests.streams.feeds import at, drain, duckdb_at, rows_in
from tests.streams.join_model import LEFT, RIGHT, expected
from tests.streams.test_backfill import FIRST, LAST, backfilled
from tests.streams.test_join_model import BOUNDS, LATENESS, POLICIES, message, random_chunks
from tests.streams.test_stream_joins import joined, pairs

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.declare.stream.stream import Stream
    from tests.streams.feeds import Topic

pytestmark = [
    pytest.mark.service,
    pytest.mark.spark,
    pytest.mark.deep,
    pytest.mark.xdist_group(STATE_CHANGES),
    pytest.mark.usefixtures("spark", "stateful"),
    pytest.mark.filterwarnings("ignore:stream .* declares a state store in memory"),
]


def declared(sides: tuple[Topic, Topic], warehouse: Path, join: Join) -> Stream:
    """Declare a stream that joins both topics."""
    given = {
        "name": f"m_{sides[0].name}", "sources": [Source(one.connection, one.name) for one in sides],
        "target": duckdb_at(warehouse), "target_table": ("shop", "pairs"), "create_table": True, "join": join,
        "watermark": Watermark(lateness_ms=LATENESS), "state_store": StateStore(kind="in_memory"),
    }  # fmt: skip
    return stream_from_keywords(given, None)


@pytest.mark.parametrize(
    ("kind", "bounds", "policy", "seed"), [("full_outer", "after", "drop", 5), ("left_outer", "around", "reopen", 6)]
)
def test_a_join_over_redeployments_gives_what_the_model_gives(
    sides: tuple[Topic, Topic], warehouse: Path, kind: str, bounds: str, policy: str, seed: int
) -> None:
    names = (topic.name for topic in sides)
    more = {**BOUNDS[bounds], **POLICIES[policy]}
    join = Join(*names, ("k",), ("k",), kind=kind, event_time_column="at", **more)
    stream, chunks = declared(sides, warehouse, join), random_chunks(seed, 4, 90)
    for number, chunk in enumerate(chunks):
        for side, topic in zip((LEFT, RIGHT), sides, strict=True):
            topic.write([message(event) for event in chunk if event["side"] == side])
        drain(stream)
        if number in (1, 2):
            (one,) = redeploy_stream(stream, StreamOptions())
            assert one.done
    stored = rows_in(warehouse, "SELECT left_n, right_n FROM shop.pairs")
    assert Counter(stored) == expected(chunks, join, LATENESS).pairs


def test_rows_that_were_given_out_alone_have_the_partner_that_came_too_late_after_a_backfill(
    sides: tuple[Topic, Topic], warehouse: Path
) -> None:
    left, right = sides
    stream = joined(sides, warehouse, kind="left_outer")
    (target,) = stream.targets
    stream = replace(stream, targets=(replace(target, primary_key=("left_n",)),))
    left.write([{"k": n, "n": n, "at": at(n)} for n in range(0, 40, 2)])
    right.write([{"k": n, "n": 100 + n, "at": at(n)} for n in range(0, 40, 4)])
    drain(stream)
    left.write([{"k": -1, "n": 100, "at": at(100)}])
    right.write([{"k": -2, "n": 200, "at": at(100)}])
    drain(stream)
    late = range(2, 40, 12)
    right.write([{"k": n, "n": 100 + n, "at": at(n)} for n in late])
    drain(stream)
    assert (14, None) in pairs(warehouse)
    assert backfilled(stream) == (LAST - FIRST) // 2
    paired = {n for n in range(0, 40, 2) if n % 4 == 0 or (n in late and FIRST <= n < LAST)}
    assert pairs(warehouse) == sorted(((n, 100 + n if n in paired else None) for n in range(0, 40, 2)), key=repr)

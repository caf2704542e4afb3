"""Joins of random events give what a plain model of them gives, in whatever order and however late their rows come."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from ematix_flow import Join, Source, StateStore, Watermark
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.events import StateChanged
from ematix_flow.observe.bus import Bus
from tests.depth import STREAM_STATE, deep
from tests.streams.feeds import BEGIN, drain, duckdb_at, rows_in
from tests.streams.join_model import LEFT, RIGHT, expected

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.events import Event
    from tests.streams.feeds import Topic

pytestmark = [
    pytest.mark.service,
    pytest.mark.spark,
    pytest.mark.xdist_group(STREAM_STATE),
    pytest.mark.usefixtures("spark", "stateful"),
    pytest.mark.filterwarnings("ignore:stream .* declares a state store in memory"),
]

SECOND = 1_000
LATENESS = 10 * SECOND
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OFFSET = int((BEGIN - EPOCH).total_seconds() * SECOND)
BOUNDS: dict[str, dict[str, Any]] = {
    "around": {"time_window_ms": 6 * SECOND},
    "after": {"min_delta_ms": 2 * SECOND, "max_delta_ms": 12 * SECOND},
    "before": {"min_delta_ms": -12 * SECOND, "max_delta_ms": -2 * SECOND},
}
POLICIES: dict[str, dict[str, Any]] = {
    "drop": {"late_data": "drop"},
    "reopen": {"late_data": "reopen", "allowed_lateness_ms": 8 * SECOND},
}


def random_chunks(seed: int, chunks: int, size: int) -> list[list[dict[str, Any]]]:
    """Return chunks of events of both sides: time goes on, many are out of order, some are there twice.

    Whole seconds, so that bounds are met exactly.
    """
    random = Random(seed)  # noqa: S311 - the same events at every run
    chosen: list[list[dict[str, Any]]] = []
    for number in range(chunks):
        events: list[dict[str, Any]] = []
        for index in range(size):
            known = [event for chunk in (*chosen[-1:], events) for event in chunk]
            # Both sides are in every chunk, so that both say how far time has come.
            side = (LEFT, RIGHT)[index] if index < 2 else random.choice((LEFT, RIGHT))
            if index > 1 and random.random() < 0.05:
                events.append(dict(random.choice(known)))
                continue
            behind = random.choice((0, 0, random.randrange(8), random.randrange(60)))
            second = max(0, (number * size + index) * 15 // size - behind)
            key = random.choice((None, "a", 'b"\n', *"cdefghijklmno"))
            events.append({"side": side, "k": key, "n": number * size + index, "at": OFFSET + second * SECOND})
        chosen.append(events)
    return chosen


class Case(NamedTuple):
    """One variation of the test."""

    kind: str
    bounds: str
    policy: str
    seed: int

    def __repr__(self) -> str:
        return "-".join(map(str, self))


CASES = [Case("full_outer", "around", "drop", 1)]
MORE = [
    *(Case("full_outer", bounds, policy, seed) for bounds in BOUNDS for policy in POLICIES for seed in (2, 3)),
    *(Case(kind, "after", "drop", 4) for kind in ("inner", "left_outer", "right_outer")),
]


@pytest.mark.parametrize("case", [*CASES, *map(deep, MORE)], ids=repr)
def test_joins_give_what_the_model_gives(sides: tuple[Topic, Topic], warehouse: Path, case: Case) -> None:
    left, right = sides
    join = Join(
        left.name, right.name, ("k",), ("k",), kind=case.kind, event_time_column="at",
        **{**BOUNDS[case.bounds], **POLICIES[case.policy]},
    )  # fmt: skip
    stream = stream_from_keywords(
        {
            "name": f"m_{left.name}",
            "sources": [Source(one.connection, one.name) for one in sides],
            "target": duckdb_at(warehouse),
            "target_table": ("shop", "pairs"),
            "create_table": True,
            "join": join,
            "watermark": Watermark(lateness_ms=LATENESS),
            "state_store": StateStore(kind="in_memory"),
        },
        None,
    )
    heard: list[Event] = []
    bus = Bus()
    bus.subscribe(heard.append)
    chunks = random_chunks(case.seed, 4, 90)
    for chunk in chunks:
        for side, topic in ((LEFT, left), (RIGHT, right)):
            topic.write([message(event) for event in chunk if event["side"] == side])
        drain(stream, bus=bus)
    model = expected(chunks, join, LATENESS)
    # Lateness shows only where there is some, and rows behind the watermark that met another one.
    assert model.late
    assert model.behind
    assert Counter(rows_in(warehouse, "SELECT left_n, right_n FROM shop.pairs")) == model.pairs
    assert sum(event.late for event in heard if isinstance(event, StateChanged)) == model.late


def message(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event as a message."""
    time = EPOCH + timedelta(milliseconds=event["at"])
    return {"k": event["k"], "n": event["n"], "at": time.isoformat()}

"""Windows over random events give what a plain model of them gives, however the events are split into batches and runs."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from ematix_flow import Aggregation, StateStore, Watermark, Window
from ematix_flow.events import StateChanged
from ematix_flow.observe.bus import Bus
from tests.depth import STREAM_STATE, deep
from tests.streams.feeds import BEGIN, drain, duckdb_at, rows_in
from tests.streams.window_model import expected

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ematix_flow.events import Event
    from tests.streams.feeds import Topic
    from tests.streams.window_model import Expected

pytestmark = [
    pytest.mark.service,
    pytest.mark.spark,
    pytest.mark.xdist_group(STREAM_STATE),
    pytest.mark.usefixtures("spark", "stateful"),
]

MINUTE = 60_000
LATENESS = 30 * MINUTE
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OFFSET = int((BEGIN - EPOCH).total_seconds() * 1000)

KINDS: dict[str, dict[str, Any]] = {
    "tumbling": {"duration_ms": 20 * MINUTE},
    "hopping": {"duration_ms": 20 * MINUTE, "hop_ms": 8 * MINUTE},
    "session": {"gap_ms": 12 * MINUTE, "max_session_duration_ms": 40 * MINUTE},
}
POLICIES: dict[str, dict[str, Any]] = {
    "drop": {"late_data": "drop"},
    "reopen": {"late_data": "reopen", "allowed_lateness_ms": 45 * MINUTE},
    "dlq": {"late_data": "dlq"},
}
AGGREGATIONS = (
    Aggregation(agg="count", as_="n"),
    Aggregation(agg="count_col", column="amount", as_="there"),
    Aggregation(agg="sum", column="amount", as_="total"),
    Aggregation(agg="min", column="amount", as_="least"),
    Aggregation(agg="max", column="amount", as_="most"),
    Aggregation(agg="avg", column="amount", as_="mean"),
    Aggregation(agg="first", column="note", as_="opened"),
    Aggregation(agg="last", column="amount", as_="final"),
    Aggregation(agg="count_distinct", column="note", as_="notes", mode="exact", max_distinct_values_per_group=100),
    Aggregation(agg="count_distinct", column="amount", as_="about"),
)
COLUMNS = """
    window_start TIMESTAMPTZ, window_end TIMESTAMPTZ, shop DOUBLE, "user" VARCHAR, n BIGINT, there BIGINT, total DOUBLE,
    least DOUBLE, most DOUBLE, mean DOUBLE, opened VARCHAR, final DOUBLE, notes BIGINT, about BIGINT
"""
"""Of the table, because the types of numbers change in the middle."""


def window_of(kind: str, policy: str) -> Window:
    """Return a window by two columns with every aggregation."""
    # The state of a session takes no approximate numbers.
    aggregations = AGGREGATIONS[:-1] if kind == "session" else AGGREGATIONS
    more = {**KINDS[kind], **POLICIES[policy]}
    return Window(kind=kind, aggregations=aggregations, event_time_column="at", group_by=("shop", "user"), **more)


def random_events(seed: int, count: int, *, nulls: bool = True) -> list[dict[str, Any]]:
    """Return events: time goes on, many are out of order, some by hours; whole minutes, so that bounds are met exactly."""
    random = Random(seed)  # noqa: S311 - the same events at every run
    events: list[dict[str, Any]] = []
    for number in range(count):
        if events and random.random() < 0.05:
            events.append(dict(random.choice(events)))
            continue
        behind = random.choice((0, 0, 0, random.randrange(40), random.randrange(200)))
        minute = max(0, number * 300 // count - behind)
        # Numbers of shops and amounts become fractions in the middle; of multiples of a quarter every sum is exact.
        step = 0.25 if number > count // 2 else 1
        event: dict[str, Any] = {
            "at": None if random.random() < 0.03 else OFFSET + minute * MINUTE,
            "shop": random.choice((None if nulls else 3, 1, 2, 1 + step)),
            "user": random.choice((None if nulls else "c", "a", 'b"\n', "ü", "")),
            "amount": random.choice((None, random.randrange(-9, 9) * step, random.randrange(3))),
            "note": random.choice((None, "x", "y", "z z")),
        }
        events.append(
            {
                name: value
                for name, value in event.items()
                if name in ("at", *(() if nulls else ("shop", "user"))) or random.random() < 0.95
            }
        )
    return events


def message(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event as a message."""
    return event | {"at": None if event["at"] is None else (EPOCH + timedelta(milliseconds=event["at"])).isoformat()}


def split(events: Sequence[dict[str, Any]], size: int) -> list[Sequence[dict[str, Any]]]:
    """Return chunks of this size."""
    return [events[start : start + size] for start in range(0, len(events), size)]


def run(
    topic: Topic, warehouse: Path, window: Window, chunks: list[Sequence[dict[str, Any]]], *, restart: bool, mode: str
) -> list[StateChanged]:
    """Load chunks of one size in one run, or each in a run of its own; return what the state told."""
    events: list[Event] = []
    bus = Bus()
    bus.subscribe(events.append)
    rows_in(warehouse, "CREATE SCHEMA shop")
    key = "session_id" if window.kind == "session" else 'window_start, shop, "user"'
    columns = COLUMNS + (", session_id BIGINT" if window.kind == "session" else "")
    rows_in(warehouse, f"CREATE TABLE shop.w ({columns}{f', PRIMARY KEY ({key})' if mode == 'merge' else ''})")
    given = {"target_table": ("shop", "w"), "mode": mode, "watermark": Watermark(lateness_ms=LATENESS)}
    if window.kind == "session":
        given["state_store"] = StateStore(kind="postgres", url="postgresql://nowhere")
    stream = topic.stream(duckdb_at(warehouse), window=window, max_rows_per_batch=len(chunks[0]), **given)
    for chunk in chunks:
        topic.write([message(event) for event in chunk])
        if restart:
            drain(stream, bus=bus)
    drain(stream, bus=bus)
    return [event for event in events if isinstance(event, StateChanged)]


def stored(warehouse: Path, window: Window) -> Counter[tuple[Any, ...]]:
    """Return the rows of the table of windows, with their bounds in milliseconds."""
    names = [*window.group_by, *(one.as_ for one in window.aggregations)]
    columns = ", ".join(f'"{name}"' for name in names)
    return Counter(rows_in(warehouse, f"SELECT epoch_ms(window_start), epoch_ms(window_end), {columns} FROM shop.w"))


def assert_late(changes: Sequence[StateChanged], warehouse: Path, model: Expected, policy: str) -> None:
    """Expect late rows to be counted, and with `dlq` to be rejects; there are some."""
    assert model.late
    assert sum(event.late for event in changes) == len(model.late)
    if policy != "dlq":
        return
    counts = Counter()
    for reason, row in rows_in(warehouse, "SELECT reason, row_json FROM ematix_flow.rejects"):
        assert reason.startswith("late_data: ")
        counts[tuple(sorted(json.loads(row).items()))] += 1
    late = [
        sorted((name, value) for name, value in message(event).items() if value is not None) for _, event in model.late
    ]
    assert counts == Counter(map(tuple, late))


class Case(NamedTuple):
    """One variation of the test."""

    kind: str
    policy: str
    restart: bool
    """Whether every chunk is a run of its own."""
    seed: int
    mode: str = "append"

    def __repr__(self) -> str:
        return "-".join(map(str, self))


CASES = [Case("tumbling", "dlq", True, 1)]
MORE = [
    Case("hopping", "drop", False, 2),
    Case("session", "reopen", False, 3, "merge"),
    *(
        Case(kind, policy, restart, seed, mode)
        for kind in KINDS
        for policy in POLICIES
        for restart in (False, True)
        for seed, mode in ((11, "append"), (12, "append"), *(((13, "merge"),) if policy == "reopen" else ()))
    ),
]


@pytest.mark.parametrize("case", [*CASES, *map(deep, MORE)], ids=repr)
def test_windows_give_what_the_model_gives(line: Topic, warehouse: Path, case: Case) -> None:
    window = window_of(case.kind, case.policy)
    # A window is found again by its groups, a session by its id.
    nulls = case.mode == "append" or case.kind == "session"
    chunks = split(random_events(case.seed, 360, nulls=nulls), 120 + case.seed)
    model = expected(chunks, window, LATENESS)
    events = run(line, warehouse, window, chunks, restart=case.restart, mode=case.mode)
    rows = model.appended() if case.mode == "append" else model.merged(("window_start", "shop", "user"))
    assert stored(warehouse, window) == rows
    assert (len(model.emissions) > rows.total()) == (case.mode == "merge")
    assert_late(events, warehouse, model, case.policy)

"""Deduplication of random events lets through what a plain model of it lets through, over a restart behind every batch."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow import Dedupe, Watermark
from tests.depth import STREAM_STATE, deep
from tests.streams.feeds import at, drain, duckdb_at, rows_in

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.streams.feeds import Topic

    Event = dict[str, Any]

pytestmark = [
    pytest.mark.service,
    pytest.mark.spark,
    pytest.mark.xdist_group(STREAM_STATE),
    pytest.mark.usefixtures("spark", "stateful"),
]

WITHIN, LATENESS = 6, 10
"""Seconds."""
KEYS = [(name, number) for name in (None, "a", 'b"\n', "c") for number in (None, 1, 2)]


def random_chunks(seed: int, chunks: int, size: int) -> list[list[Event]]:
    """Return chunks of events: time goes on, many are out of order, some far behind, and some are there twice."""
    random = Random(seed)  # noqa: S311 - the same events at every run
    chosen: list[list[Event]] = []
    for chunk in range(chunks):
        events: list[Event] = []
        for index in range(size):
            known = [event for one in (*chosen, events) for event in one]
            if known and random.random() < 0.2:
                events.append(random.choice(known))
                continue
            behind = random.choice((0, 0, random.randrange(8), random.randrange(60)))
            name, number = random.choice(KEYS)
            second = max(0, (chunk * size + index) * 20 // size - behind)
            events.append({"word": name, "number": number, "second": second})
        chosen.append(events)
    return chosen


def expected(chunks: Sequence[Sequence[Event]]) -> tuple[Counter[tuple[Any, ...]], int]:
    """Return the events that are let through, and how many of them came again because their first ones were forgotten."""
    passed: Counter[tuple[Any, ...]] = Counter()
    remembered: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
    newest = 0
    for chunk in chunks:
        for event in sorted(chunk, key=lambda event: event["second"]):
            second, times = event["second"], remembered[event["word"], event["number"]]
            if all(abs(second - time) > WITHIN for time in times):
                times.append(second)
                passed[event["word"], event["number"], second] += 1
        newest = max(newest, *(event["second"] for event in chunk))
        for times in remembered.values():
            times[:] = [time for time in times if time >= newest - LATENESS - WITHIN]
    return passed, sum(passed.values()) - len(passed)


@pytest.mark.parametrize("seed", [1, *map(deep, range(2, 9))])
def test_deduplication_gives_what_the_model_gives(topic: Topic, warehouse: Path, seed: int) -> None:
    stream = topic.stream(
        duckdb_at(warehouse),
        target_table=("shop", "passed"),
        create_table=True,
        deduplicate=Dedupe(keys=("word", "number"), within=timedelta(seconds=WITHIN), event_time_column="at"),
        watermark=Watermark(lateness_ms=LATENESS * 1000),
    )
    chunks = random_chunks(seed, 5, 80)
    for chunk in chunks:
        topic.write([{**event, "at": at(event["second"])} for event in chunk], partition=0)
        drain(stream)
    passed, again = expected(chunks)
    # Both happen: events that are left out, and such that nobody remembers any more.
    assert again
    assert sum(passed.values()) < sum(map(len, chunks)) // 2
    rows = rows_in(warehouse, 'SELECT "word", "number", "second" FROM shop.passed')
    assert Counter(rows) == passed

"""scd2 by event time is order-proof: any order, repetition or splitting of the same events gives the same history."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text, TimestampTZ
from tests.depth import quick_or_deep

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.contracts.flows import Row
    from tests.contracts.system_tables import SystemTable

    Tables = Callable[[Table, bool], list[SystemTable]]

pytestmark = pytest.mark.slow

EPOCH = datetime(2025, 6, 1, tzinfo=UTC)
OPTIONS = {"mode": "scd2", "compare_columns": ("value",), "event_timestamp_column": "at"}
TABLE = Table(
    "hist",
    "prices",
    (
        Column(BigInt(), primary_key=True, name="key"),
        Column(Text(), name="value"),
        Column(Text(), name="note"),
        Column(TimestampTZ(), nullable=False, name="at"),
    ),
)

Event = tuple[int, int, str | None, str | None]
"""Key, time, compared value, other value."""

events = st.lists(
    st.tuples(
        st.integers(1, 2), st.integers(1, 6), st.sampled_from(["a", "B", None]), st.sampled_from(["x", "Y", None])
    ),
    min_size=1,
    max_size=9,
)


def row(event: Event) -> Row:
    key, at, value, note = event
    return {"key": key, "value": value, "note": note, "at": EPOCH + timedelta(days=at)}


def history(given_events: Sequence[Event]) -> list[tuple[Any, ...]]:
    """Return what the table must hold after all events, whatever their order: the plain model."""
    versions: list[tuple[Any, ...]] = []
    for key in sorted({event[0] for event in given_events}):
        mine = [event for event in given_events if event[0] == key]
        winners = [max((e for e in mine if e[1] == at), key=_rank) for at in sorted({e[1] for e in mine})]
        distinct = winners[:1] + [e for before, e in itertools.pairwise(winners) if before[2] != e[2]]
        ends = [event[1] for event in distinct[1:]] + [None]
        versions += [(key, e[1], end, e[2], e[3], end is None) for e, end in zip(distinct, ends, strict=True)]
    return versions


def _rank(event: Event) -> tuple[Any, ...]:
    """Two events at one instant: the greater values win, NULL last."""
    return tuple((value is not None, value or "") for value in event[2:])


def stored(table: SystemTable) -> list[tuple[Any, ...]]:
    return [
        (v["key"], day(v["valid_from"]), day(v["valid_to"]), v["value"], v["note"], v["is_current"])
        for v in table.flow.versions()
    ]


def day(at: datetime | None) -> int | None:
    return None if at is None else (at - EPOCH).days


@pytest.mark.service
@settings(
    max_examples=quick_or_deep(25, 200),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(given_events=events, data=st.data(), swap=st.booleans())
def test_any_order_repetition_and_splitting_gives_one_history(
    every_table: Tables, given_events: list[Event], data: st.DataObject, swap: bool
) -> None:
    shuffled = data.draw(st.permutations(given_events))
    again = data.draw(st.lists(st.sampled_from(given_events), max_size=3))
    everything = [*shuffled, *again]
    cuts = data.draw(st.lists(st.integers(1, len(everything)), max_size=2).map(sorted))
    parts = [everything[start:end] for start, end in itertools.pairwise([0, *cuts, len(everything)])]
    tables = every_table(TABLE, swap)
    for table in tables:
        for part in filter(None, parts):
            table.load([row(event) for event in part], **OPTIONS)
        assert stored(table) == history(given_events), table.name


@pytest.mark.service
@pytest.mark.parametrize("swap", [False, True])
def test_a_late_event_splits_a_folded_version(every_table: Tables, swap: bool) -> None:
    for table in every_table(TABLE, swap):
        table.load([row((1, 1, "a", "x")), row((1, 3, "a", "y"))], **OPTIONS)
        assert stored(table) == [(1, 1, None, "a", "x", True)]
        table.load([row((1, 2, "b", None))], **OPTIONS)
        split = [(1, 1, 2, "a", "x", False), (1, 2, 3, "b", None, False), (1, 3, None, "a", "y", True)]
        assert stored(table) == split, table.name


def test_the_model_tells_orders_apart() -> None:
    """The oracle itself is sensitive: another value in the middle is another history."""
    assert history([(1, 1, "a", None), (1, 2, "b", None), (1, 3, "a", None)]) != history([(1, 1, "a", None)])

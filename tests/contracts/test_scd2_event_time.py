"""scd2 by event time as pipelines: late events, ties, deletes and expiry; order is proven in test_scd2_order."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text, TimestampTZ
from ematix_flow.errors import BadRowsError
from tests.contracts.flows import START, in_and_out
from tests.contracts.test_scd2_load_time import check_invariants

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from tests.contracts.flows import Flow, Row

    Flows = Callable[..., Flow]

pytestmark = pytest.mark.slow

COLUMNS = (
    Column(BigInt(), primary_key=True, name="id"),
    Column(Text(), name="state"),
    Column(TimestampTZ(), name="at"),
)
ORDERS = Table("hist", "orders", COLUMNS)
BARE = Table("hist", "bare_orders", COLUMNS[:2])
OPTIONS: dict[str, Any] = {"mode": "scd2", "event_timestamp_column": "at"}
EPOCH = START - timedelta(days=20)


def order(key: int, state: str | None, day: float) -> Row:
    return {"id": key, "state": state, "at": EPOCH + timedelta(days=day)}


def versions_by_day(flow: Flow) -> list[tuple[Any, ...]]:
    """Return key, state, the days between which a version was valid, and whether it is current."""
    versions = flow.versions()
    check_invariants(versions)
    return [(v["id"], v["state"], day(v["valid_from"]), day(v["valid_to"]), v["is_current"]) for v in versions]


def day(at: datetime | None) -> float | None:
    return None if at is None else (at - EPOCH) / timedelta(days=1)


@pytest.mark.every_system
@in_and_out
def test_a_late_event_splits_the_version_that_covers_it(flows: Flows) -> None:
    flow = flows(ORDERS, **OPTIONS)
    flow.run([order(1, "new", 1), order(1, "paid", 5), order(1, "new", 2)])
    assert versions_by_day(flow) == [(1, "new", 1, 5, False), (1, "paid", 5, None, True)]
    flow.run([order(1, "held", 1.5), order(1, "sent", 9)])
    assert versions_by_day(flow) == [
        (1, "new", 1, 1.5, False),
        (1, "held", 1.5, 2, False),
        (1, "new", 2, 5, False),
        (1, "paid", 5, 9, False),
        (1, "sent", 9, None, True),
    ]


@in_and_out
def test_an_event_before_the_first_version_becomes_the_first(flows: Flows) -> None:
    flow = flows(ORDERS, **OPTIONS)
    flow.run([order(1, "paid", 5)])
    result = flow.run([order(1, "new", 2)])
    assert versions_by_day(flow) == [(1, "new", 2, 5, False), (1, "paid", 5, None, True)]
    assert (result["rows_inserted"], result["rows_closed"]) == (1, 0)
    flow.run([order(1, "paid", 3)])
    assert versions_by_day(flow) == [(1, "new", 2, 3, False), (1, "paid", 3, None, True)]


@in_and_out
def test_of_two_events_at_one_instant_the_greater_values_win(flows: Flows) -> None:
    flow = flows(ORDERS, **OPTIONS)
    flow.run([order(1, "a", 1), order(1, "B", 1), order(1, None, 1)])
    assert versions_by_day(flow) == [(1, "a", 1, None, True)]
    flow.run([order(1, "b", 1)])
    assert versions_by_day(flow) == [(1, "b", 1, None, True)]
    flow.run([order(1, "a", 1), order(1, "B", 1)])
    assert versions_by_day(flow) == [(1, "b", 1, None, True)]


@in_and_out
def test_repeated_events_change_nothing(flows: Flows) -> None:
    flow = flows(ORDERS, **OPTIONS)
    rows = [order(1, "new", 1), order(1, "paid", 2), order(2, None, 1), order(2, None, 4)]
    flow.run(rows)
    before = versions_by_day(flow), flow.stamps()
    result = flow.run(rows[::-1] + rows)
    assert (versions_by_day(flow), flow.stamps()) == before
    assert (result["rows_inserted"], result["rows_updated"], result["rows_closed"]) == (0, 0, 0)


@in_and_out
def test_the_event_column_need_not_be_declared(flows: Flows) -> None:
    flow = flows(BARE, source=COLUMNS, **OPTIONS)
    flow.run([order(1, "new", 1), order(1, "paid", 3)])
    flow.run([order(1, "held", 2)])
    assert [version[1:4] for version in versions_by_day(flow)] == [("new", 1, 2), ("held", 2, 3), ("paid", 3, None)]


@in_and_out
def test_an_event_without_a_time_is_a_bad_row(flows: Flows) -> None:
    flow = flows(BARE, source=COLUMNS, **OPTIONS)
    with pytest.raises(BadRowsError):
        flow.run([order(1, "new", 1), {"id": 2, "state": "x", "at": None}])
    assert flow.rows() == []


@in_and_out
def test_events_a_microsecond_apart_are_two(flows: Flows) -> None:
    flow = flows(ORDERS, **OPTIONS)
    later = order(1, "paid", 1)
    later["at"] += timedelta(microseconds=1)
    flow.run([later, order(1, "new", 1)])
    versions = flow.versions()
    assert [v["state"] for v in versions] == ["new", "paid"]
    assert versions[0]["valid_to"] - versions[0]["valid_from"] == timedelta(microseconds=1)


@in_and_out
def test_an_absent_key_is_closed_and_opened_again_by_a_later_event(flows: Flows) -> None:
    flow = flows(ORDERS, handle_deletes="soft", **OPTIONS)
    flow.run([order(1, "new", 1), order(2, "new", 1)])
    assert flow.run([order(2, "new", 1)])["rows_closed"] == 1
    closed = day(flow.now())
    assert versions_by_day(flow)[0] == (1, "new", 1, closed, False)
    flow.run([order(1, "new", 30), order(2, "new", 1)])
    assert versions_by_day(flow)[:2] == [(1, "new", 1, closed, False), (1, "new", 30, None, True)]
    flow.run([order(1, "held", 2), order(1, "new", 30), order(2, "new", 1)])
    assert versions_by_day(flow)[:3] == [
        (1, "new", 1, 2, False),
        (1, "held", 2, closed, False),
        (1, "new", 30, None, True),
    ]


@in_and_out
def test_versions_past_their_time_to_live_are_closed(flows: Flows) -> None:
    flow = flows(ORDERS, ttl=timedelta(days=10), **OPTIONS)
    flow.run([order(1, "old", 1), order(2, "fresh", 15)])
    assert versions_by_day(flow) == [(1, "old", 1, day(flow.now()), False), (2, "fresh", 15, None, True)]
    flow.run([order(2, "fresh", 15)])
    assert len(versions_by_day(flow)) == 2


@in_and_out
def test_folded_events_are_remembered_for_the_late_horizon_only(flows: Flows) -> None:
    flow = flows(ORDERS, late_horizon=timedelta(hours=2), **OPTIONS)
    flow.run([order(1, "a", 1), order(1, "a", 5), order(2, "a", 1), order(2, "a", 5)])
    flow.run([order(1, "b", 3)])
    assert [version[1:4] for version in versions_by_day(flow)[:3]] == [("a", 1, 3), ("b", 3, 5), ("a", 5, None)]
    flow.count += 10
    flow.run([order(3, "other", 1)])
    flow.run([order(2, "b", 3)])
    assert [version[1:4] for version in versions_by_day(flow) if version[0] == 2] == [("a", 1, 3), ("b", 3, None)]

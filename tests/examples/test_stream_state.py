"""The documented streams with windows, sessions and joins, unchanged, on the services they speak of."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from tests.depth import STREAMS_SQL, deep

if TYPE_CHECKING:
    from tests.examples.streaming import World

pytestmark = [
    pytest.mark.slow,
    pytest.mark.service,
    pytest.mark.spark,
    pytest.mark.xdist_group(STREAMS_SQL),
    pytest.mark.usefixtures("stateful"),
]

BEGIN = datetime(2026, 5, 1, 14, 30, tzinfo=UTC)


def send(world: World, topic: str, *messages: tuple[float, dict[str, Any]]) -> None:
    """Send messages with the times that brokers give them, in seconds behind the beginning."""
    producer = Producer({"bootstrap.servers": world.broker.address, "log_level": 0})
    for seconds, message in messages:
        milliseconds = round((BEGIN + timedelta(seconds=seconds)).timestamp() * 1000)
        producer.produce(topic, json.dumps(message).encode(), timestamp=milliseconds)
    assert producer.flush(20) == 0


def test_events_are_counted_by_the_minute(world: World) -> None:
    world.warehouse.run(
        "CREATE TABLE events_per_min (window_start TIMESTAMPTZ, window_end TIMESTAMPTZ, user_id BIGINT, n BIGINT)"
    )
    send(world, "events", (1, {"user_id": 7}), (59, {"user_id": 7}), (60, {"user_id": 8}), (200, {"user_id": 9}))
    world.run("events-per-min", lambda: world.warehouse.count("events_per_min") == 2)
    rows = world.warehouse.rows("SELECT window_start, window_end, user_id, n FROM events_per_min ORDER BY 1")
    minute = timedelta(minutes=1)
    assert rows == [(BEGIN, BEGIN + minute, 7, 2), (BEGIN + minute, BEGIN + 2 * minute, 8, 1)]


def test_visits_are_sessions(world: World) -> None:
    world.warehouse.run(
        "CREATE TABLE user_sessions (window_start TIMESTAMPTZ, window_end TIMESTAMPTZ, session_id BIGINT, "
        "user_id BIGINT, events BIGINT, entry_page TEXT, exit_page TEXT)"
    )
    pages = [(0, 1, "home"), (299, 1, "cart"), (250, 1, "tea"), (700, 1, "home"), (5000, 2, "home")]
    send(world, "events", *((at, {"user_id": user, "page": page}) for at, user, page in pages))
    world.run("user-sessions", lambda: world.warehouse.count("user_sessions") == 2)
    rows = world.warehouse.rows(
        "SELECT window_start, window_end, user_id, events, entry_page, exit_page FROM user_sessions ORDER BY 1"
    )
    ends = [BEGIN + timedelta(seconds=seconds) for seconds in (0, 599, 700, 1000)]
    assert rows == [(*ends[:2], 1, 3, "home", "cart"), (*ends[2:], 1, 1, "home", "home")]
    ids = world.warehouse.rows("SELECT COUNT(DISTINCT session_id), MIN(session_id) >= 0 FROM user_sessions")
    assert ids == [(2, True)]


@pytest.mark.parametrize("name", ["orders-payments", deep("orders-payments-typed")])
def test_orders_find_their_payments(world: World, name: str) -> None:
    world.warehouse.run(
        "CREATE TABLE orders_with_payments (left_order_id BIGINT, left_item TEXT, left__event_ts TIMESTAMPTZ, "
        "right_order_id BIGINT, right_paid DOUBLE PRECISION, right__event_ts TIMESTAMPTZ)"
    )
    send(world, "orders", *((at, {"order_id": n, "item": "tea"}) for at, n in ((0, 1), (10, 2), (20, 3))))
    send(world, "payments", *((at, {"order_id": n, "paid": 4.5}) for at, n in ((300, 1), (311, 2), (15, 3))))
    world.run(name, lambda: world.warehouse.count("orders_with_payments") == 2)
    rows = world.warehouse.rows(
        "SELECT left_order_id, left_item, right_paid, right__event_ts - left__event_ts FROM orders_with_payments ORDER BY 1"
    )
    assert rows == [(1, "tea", 4.5, timedelta(minutes=5)), (3, "tea", 4.5, timedelta(seconds=-5))]

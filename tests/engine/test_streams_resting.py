"""Streams with two targets of which one is away: the other goes on, and the one that was away catches up."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.stream.stream import Stream, StreamSourceDeclaration, StreamTarget
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.run import run_stream
from ematix_flow.errors import TransientError
from ematix_flow.events import BatchLoaded, StreamFailed
from tests.services.messages import send_orders

if TYPE_CHECKING:
    from ematix_flow.events import Event
    from tests.services.kafka import KafkaBroker
    from tests.services.postgres import PostgresServer

pytestmark = [pytest.mark.service, pytest.mark.crash]


ORDERS = Table("main", "orders", (Column(BigInt(), primary_key=True, name="id"), Column(Text(), name="name")))


@pytest.fixture
def fan_out(kafka_broker: KafkaBroker, postgres_url: str) -> Stream:
    broker = connection_from_fields("broker", {"kind": "kafka", "bootstrap_servers": kafka_broker.address})
    connections = ({"kind": "postgres", "url": postgres_url}, {"kind": "sqlite", "path": "lite.db"})
    targets = tuple(
        StreamTarget(connection_from_fields(fields["kind"], fields), write(mode="append"), ORDERS)
        for fields in connections
    )
    source = StreamSourceDeclaration(broker, kafka_broker.create_topic(), "orders")
    return Stream("orders", (source,), targets, idle_pause_ms=50, fan_out=True)


def in_lite() -> list[Any]:
    with closing(sqlite3.connect("lite.db")) as connection:
        return connection.execute("SELECT count(*), count(DISTINCT id) FROM orders").fetchall()


def in_postgres(url: str) -> list[Any]:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT count(*), count(DISTINCT id) FROM main.orders").fetchall()


def test_a_target_that_is_away_does_not_hold_up_the_other_and_catches_up(
    fan_out: Stream, kafka_broker: KafkaBroker, postgres_server: PostgresServer, postgres_url: str
) -> None:
    topic = fan_out.sources[0].query
    send_orders(kafka_broker, topic, range(10))
    postgres_server.crash()
    loaded = threading.Event()
    events: list[Event] = []

    def listen(event: Event) -> None:
        if isinstance(event, StreamFailed | BatchLoaded):
            events.append(event)
        if {StreamFailed, BatchLoaded} <= {type(one) for one in events}:
            loaded.set()

    options = StreamOptions(available_now=True, restart=True, max_backoff=0.2)
    options.bus.subscribe(listen)
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(run_stream(fan_out, options)))
    thread.start()
    assert loaded.wait(60)
    assert in_lite() == [(10, 10)]
    postgres_server.start()
    thread.join(60)
    assert results[0]["iterations"] == 1
    assert in_postgres(postgres_url) == in_lite() == [(10, 10)]
    assert {event.target for event in events if isinstance(event, StreamFailed)} == {"main.orders@postgres"}


def test_without_restart_the_other_target_is_loaded_and_the_error_is_raised(
    fan_out: Stream, kafka_broker: KafkaBroker, postgres_server: PostgresServer, postgres_url: str
) -> None:
    send_orders(kafka_broker, fan_out.sources[0].query, range(10))
    postgres_server.crash()
    with pytest.raises(TransientError):
        run_stream(fan_out, StreamOptions(available_now=True))
    assert in_lite() == [(10, 10)]
    postgres_server.start()
    again = run_stream(fan_out, StreamOptions(available_now=True))
    assert again["total_rows"] == 10
    assert in_postgres(postgres_url) == in_lite() == [(10, 10)]

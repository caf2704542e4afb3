"""A clock that somebody sets while a stream runs: pauses last as long as they were meant to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from ematix_flow import failpoints
from ematix_flow.clock import Clock
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.stream.stream import Stream, StreamSourceDeclaration, StreamTarget
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.run import run_stream
from ematix_flow.events import BatchLoaded, StreamFailed
from tests.services.messages import send_orders

if TYPE_CHECKING:
    from ematix_flow.events import Event
    from tests.services.kafka import KafkaBroker

pytestmark = [pytest.mark.service, pytest.mark.timeout(60)]

ORDERS = Table("main", "orders", (Column(BigInt(), primary_key=True, name="id"),))


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_target_that_rests_comes_back_when_the_clock_was_set(kafka_broker: KafkaBroker, hours: int) -> None:
    broker = connection_from_fields("broker", {"kind": "kafka", "bootstrap_servers": kafka_broker.address})
    targets = tuple(
        StreamTarget(
            connection_from_fields(name, {"kind": "sqlite", "path": f"{name}.db"}), write(mode="append"), ORDERS
        )
        for name in ("well", "ill")
    )
    topic = kafka_broker.create_topic()
    stream = Stream(
        "orders", (StreamSourceDeclaration(broker, topic, "orders"),), targets, idle_pause_ms=10, fan_out=True
    )
    send_orders(kafka_broker, topic, range(10))
    shift = timedelta(0)
    seconds: list[float] = []

    def listen(event: Event) -> None:
        """Set the clock when a target begins to rest."""
        nonlocal shift
        if isinstance(event, BatchLoaded):
            seconds.append(event.seconds)
        if isinstance(event, StreamFailed):
            shift = timedelta(hours=hours)

    options = StreamOptions(
        available_now=True, restart=True, max_backoff=0.2, clock=Clock(now=lambda: datetime.now(UTC) + shift)
    )
    options.bus.subscribe(listen)
    failpoints.arm("commit.before_commit=raise@2")
    try:
        assert run_stream(stream, options)["total_rows"] == 20
    finally:
        failpoints.arm("")
    assert shift, "no target rested"
    assert all(0 <= one < 60 for one in seconds)

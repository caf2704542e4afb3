"""What a stream leaves in the books of its target."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from ematix_flow.commit import metadata_cleanup
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.stream.stream import Stream, StreamSourceDeclaration, StreamTarget
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text
from ematix_flow.engine.stream import loop as stream_loop
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.run import run_stream
from tests.services.messages import send_orders

if TYPE_CHECKING:
    from tests.services.kafka import KafkaBroker

pytestmark = pytest.mark.service

ORDERS = Table("main", "orders", (Column(BigInt(), primary_key=True, name="id"), Column(Text(), name="name")))


def test_a_stream_tidies_its_books_now_and_then(kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_loop, "CLEAN_UP_AFTER", 4)
    monkeypatch.setattr(metadata_cleanup, "BATCHES", metadata_cleanup.LoadRetention(2, timedelta(0)))
    topic = kafka_broker.create_topic()
    send_orders(kafka_broker, topic, range(6))
    broker = connection_from_fields("broker", {"kind": "kafka", "bootstrap_servers": kafka_broker.address})
    lite = connection_from_fields("lite", {"kind": "sqlite", "path": "lite.db"})
    target = StreamTarget(lite, write(mode="append"), ORDERS)
    stream = Stream("orders", (StreamSourceDeclaration(broker, topic, "orders"),), (target,))
    done = run_stream(stream, StreamOptions(available_now=True, most=1))
    assert (done["total_rows"], done["iterations"]) == (6, 6)
    with closing(sqlite3.connect("lite.db")) as connection:
        counts = [connection.execute(f"SELECT count(*) FROM ematix_flow_{name}").fetchone()[0] for name in
                ("ledger", "run_history")]  # fmt: skip
        assert connection.execute("SELECT count(*) FROM orders").fetchone()[0] == 6
    # Two stay of the first four batches, and two more came after.
    assert counts == [4, 4]
    assert run_stream(stream, StreamOptions(available_now=True))["total_rows"] == 0

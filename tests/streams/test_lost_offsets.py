"""Positions that are gone, torn or another stream's: the stream refuses to guess, and goes on when the operator has spoken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.connect.kafka.offsets import TOPIC
from ematix_flow.engine.stream.control import move_stream, stream_status
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.errors import StreamLostError
from tests.services.topics import fill, payloads_of
from tests.streams.feeds import drain, duckdb_at, rows_in
from tests.streams.test_tables import Orders

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.declare.stream.stream import Stream
    from tests.streams.feeds import Topic

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("streams")]

LOSSES = {
    "gone": ("DELETE FROM ematix_flow.watermarks", "where it stood is gone"),
    "torn": ('UPDATE ematix_flow.watermarks SET last_value = \'{"offsets": {"0\'', "is not a position"),
    "no position": ("UPDATE ematix_flow.watermarks SET last_value = '2026-01-01'", "is not a position"),
    "foreign": ("UPDATE ematix_flow.watermarks SET column_name = 'kafka:other'", "read kafka:other before"),
}


def stream_into(topic: Topic, warehouse: Path, **keywords: Any) -> Stream:
    return topic.stream(duckdb_at(warehouse), target_table=Orders, mode="append", **keywords)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_lost_position_is_not_guessed(topic: Topic, warehouse: Path, loss: str) -> None:
    stream = stream_into(topic, warehouse)
    topic.write([{"id": number} for number in range(10)])
    drain(stream)
    sql, message = LOSSES[loss]
    rows_in(warehouse, sql)
    topic.write([{"id": number} for number in range(10, 15)])
    with pytest.raises(StreamLostError, match=message):
        drain(stream, restart=True)
    (status,) = stream_status(stream, StreamOptions())
    assert message in (status.problem or "")
    rows_in(warehouse, "DELETE FROM shop.stream_orders")
    move_stream(stream, "earliest", StreamOptions())
    assert drain(stream)["total_rows"] == 15, "the first ten are loaded again, though the ledger knows their load"
    assert rows_in(warehouse, "SELECT COUNT(*), COUNT(DISTINCT id) FROM shop.stream_orders") == [(15, 15)]


def test_a_position_that_was_torn_is_replaced_by_one_that_no_load_had(topic: Topic, warehouse: Path) -> None:
    stream = stream_into(topic, warehouse)
    topic.write([{"id": number} for number in range(10)])
    drain(stream)
    for _ in range(2):
        rows_in(warehouse, "DELETE FROM shop.stream_orders")
        move_stream(stream, "earliest", StreamOptions())
        rows_in(warehouse, "UPDATE ematix_flow.watermarks SET last_value = '{'")
        move_stream(stream, "earliest", StreamOptions())
        assert drain(stream)["total_rows"] == 10


def test_books_of_somebody_else_say_nothing_about_a_new_stream(topic: Topic, warehouse: Path) -> None:
    topic.write([{"id": number} for number in range(3)])
    drain(stream_into(topic, warehouse))
    rows_in(warehouse, "DELETE FROM shop.stream_orders")
    assert drain(stream_into(topic, warehouse, name="another"))["total_rows"] == 3


def test_a_torn_position_in_a_topic_is_refused_until_the_operator_speaks(topic: Topic) -> None:
    out = topic.broker.create_topic(1)
    stream = topic.stream(topic.connection, target_topic=out)
    topic.write([{"id": 1}])
    drain(stream)
    fill(topic.broker.address, TOPIC, [b'{"source": "kafka:'], [f"{stream.name}/{out}".encode()])
    topic.write([{"id": 2}])
    with pytest.raises(StreamLostError, match="is not a position"):
        drain(stream)
    move_stream(stream, "latest", StreamOptions())
    topic.write([{"id": 3}])
    assert drain(stream)["total_rows"] == 1
    assert payloads_of(topic.broker.address, out) == [b'{"id": 1}', b'{"id": 3}']

"""Kafka topics into tables: declared ones, ones that are there, and ones that begin with the first rows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import pytest

from ematix_flow import ematix, pk
from ematix_flow.connect.base.stream_source import payload_of
from ematix_flow.errors import BadRowsError, PlanError, RunError, StreamLostError
from ematix_flow.types import BigInt, Numeric, Text, TimestampTZ  # noqa: TC001 - read from the annotations
from tests.streams.feeds import Topic, drain, duckdb_at, rows_in

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = [pytest.mark.service, pytest.mark.xdist_group("streams")]


@ematix.table(schema="shop", name="stream_orders")
class Orders:
    """Orders as the topic has them, with the place they came from."""

    id: Annotated[BigInt, pk()]
    word: Text | None
    amount: Numeric[38, 20] | None
    _event_ts: TimestampTZ
    _key: Text | None
    _offset: BigInt


def test_rows_carry_what_their_messages_say(topic: Topic, warehouse: Path) -> None:
    topic.write([{"id": 1, "word": "a", "more": [1]}], key=b"k1", timestamp=1_700_000_000_000, headers=[("h", b"x")])
    assert drain(topic.stream(duckdb_at(warehouse), target_table=Orders))["total_rows"] == 1
    row = rows_in(warehouse, "SELECT id, word, _event_ts, _key, _offset FROM shop.stream_orders")[0]
    assert row == (1, "a", datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC), "k1", 0)


def test_every_digit_arrives(topic: Topic, warehouse: Path) -> None:
    topic.write([b'{"id": 1, "amount": 123456789012345678.12345678901234567890}'])
    drain(topic.stream(duckdb_at(warehouse), target_table=Orders))
    rows = rows_in(warehouse, "SELECT CAST(amount AS VARCHAR) FROM shop.stream_orders")
    assert rows == [("123456789012345678.12345678901234567890",)]


def test_the_next_run_goes_on_where_the_last_one_ended(topic: Topic, warehouse: Path) -> None:
    stream = topic.stream(duckdb_at(warehouse), target_table=Orders)
    for number in range(3):
        topic.write([{"id": number * 10 + n} for n in range(10)])
        assert drain(stream, most=4)["total_rows"] == 10
    assert drain(stream) == {"total_rows": 0, "iterations": 0, "shutdown_triggered": False}
    assert rows_in(warehouse, "SELECT COUNT(*), COUNT(DISTINCT id) FROM shop.stream_orders") == [(30, 30)]


def test_merge_keeps_the_newest_row_of_a_key(topic: Topic, warehouse: Path) -> None:
    stream = topic.stream(duckdb_at(warehouse), target_table=Orders, mode="merge", keys=["id"])
    for text in ("a", "b"):
        topic.write([{"id": 1, "word": text}])
        drain(stream)
    assert rows_in(warehouse, "SELECT id, word FROM shop.stream_orders") == [(1, "b")]


def test_a_tombstone_is_no_row_and_no_error(topic: Topic, warehouse: Path) -> None:
    topic.write([{"id": 1}, None, {"id": 2}], key=b"k")
    drain(topic.stream(duckdb_at(warehouse), target_table=Orders))
    assert rows_in(warehouse, "SELECT COUNT(*) FROM shop.stream_orders") == [(2,)]


@pytest.mark.parametrize("declared", [True, False])
def test_a_message_that_is_no_row_ends_the_stream_and_nothing_of_its_batch_is_loaded(
    topic: Topic, warehouse: Path, declared: bool
) -> None:
    topic.write([{"id": 1}, b"{oops", {"id": 2}])
    where = {"target_table": Orders} if declared else {"target_table": ("shop", "made"), "create_table": True}
    with pytest.raises(BadRowsError, match="1 of 3 rows do not fit"):
        drain(topic.stream(duckdb_at(warehouse), **where))
    table = "stream_orders" if declared else "made"
    assert rows_in(warehouse, f"SELECT COUNT(*) FROM shop.{table}") == [(0,)]


def test_a_table_that_is_there_gets_its_own_columns_and_defaults(topic: Topic, warehouse: Path) -> None:
    rows_in(warehouse, "CREATE TABLE main.things (id BIGINT, tags JSON, made INTEGER DEFAULT 7)")
    topic.write([{"id": 1, "tags": ["a", {"b": 2}], "unknown": 3}])
    drain(topic.stream(duckdb_at(warehouse), target_table=("main", "things")))
    assert rows_in(warehouse, "SELECT * FROM main.things") == [(1, '["a", {"b": 2}]', 7)]


def test_a_table_that_is_not_there_is_refused_unless_it_may_be_made(topic: Topic, warehouse: Path) -> None:
    topic.write([{"id": 1, "word": "a"}])
    with pytest.raises(PlanError, match=r"table main\.nowhere does not exist"):
        drain(topic.stream(duckdb_at(warehouse), target_table=("main", "nowhere")))
    stream = topic.stream(duckdb_at(warehouse), target_table=("main", "nowhere"), create_table=True)
    drain(stream)
    topic.write([{"id": 2, "word": "b", "new": 1.5}])
    drain(stream)
    assert rows_in(warehouse, "SELECT id, word, new FROM main.nowhere ORDER BY id") == [(1, "a", None), (2, "b", 1.5)]


def test_a_stream_may_begin_at_the_end(topic: Topic, warehouse: Path) -> None:
    topic.options["auto_offset_reset"] = "latest"
    topic.write([{"id": 1}])
    stream = topic.stream(duckdb_at(warehouse), target_table=Orders)
    assert drain(stream)["total_rows"] == 0
    topic.write([{"id": 2}])
    drain(stream)
    assert rows_in(warehouse, "SELECT id FROM shop.stream_orders") == [(2,)]


def test_a_range_is_loaded_beside_the_stream(topic: Topic, warehouse: Path) -> None:
    topic.write([{"id": number} for number in range(10)], partition=0)
    stream = topic.stream(duckdb_at(warehouse), target_table=("main", "all_ids"), create_table=True)
    drain(stream)
    position = '{"0": 2, "1": 0, "2": 0}', '{"0": 5, "1": 0, "2": 0}'
    ranged = topic.stream(duckdb_at(warehouse), target_table=("main", "some_ids"), create_table=True)
    for _ in range(2):
        drain(ranged, begin=position[0], end=position[1])
    assert rows_in(warehouse, "SELECT id FROM main.some_ids ORDER BY id") == [(2,), (3,), (4,)]
    assert drain(stream)["total_rows"] == 0


def test_a_topic_that_was_made_again_is_refused(topic: Topic, warehouse: Path) -> None:
    stream = topic.stream(duckdb_at(warehouse), target_table=Orders)
    topic.write([{"id": 1}])
    drain(stream)
    topic.broker.drop_topic(topic.name)
    _recreated(topic)
    topic.write([{"id": 2}])
    with pytest.raises(StreamLostError, match="deleted and made again"):
        drain(stream)


def _recreated(topic: Topic) -> None:
    from confluent_kafka import KafkaException

    for _ in range(100):
        try:
            topic.broker.create_topic(3, topic.name)
        except KafkaException:
            continue
        return


def test_messages_that_the_topic_dropped_are_missed(topic: Topic, warehouse: Path) -> None:
    from confluent_kafka import TopicPartition

    stream = topic.stream(duckdb_at(warehouse), target_table=Orders)
    topic.write([{"id": 1}], partition=0)
    drain(stream)
    topic.write([{"id": 2}, {"id": 3}], partition=0)
    admin = topic.broker.admin()
    for future in admin.delete_records([TopicPartition(topic.name, 0, 2)]).values():
        future.result(20)
    with pytest.raises(StreamLostError, match="records 1 to 1 of partition 0"):
        drain(stream)


def test_records_that_vanish_while_they_are_read_are_missed(topic: Topic) -> None:
    from confluent_kafka import TopicPartition

    from ematix_flow.connect.kafka.reader import read_records

    topic.write([{"id": number} for number in range(4)], partition=0)
    admin = topic.broker.admin()
    for future in admin.delete_records([TopicPartition(topic.name, 0, 2)]).values():
        future.result(20)
    with pytest.raises(StreamLostError, match="are gone"):
        list(read_records(topic.connection, topic.name, ((0, 0, 4),), ()))  # type: ignore[arg-type]


def test_a_topic_that_is_not_there_is_named(topic: Topic, warehouse: Path) -> None:
    missing = Topic(topic.broker, f"{topic.name}x")
    with pytest.raises(RunError, match="there is no topic"):
        drain(missing.stream(duckdb_at(warehouse), target_table=Orders))


def test_what_a_transaction_took_back_is_not_loaded(topic: Topic, warehouse: Path) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": topic.broker.address, "transactional.id": f"tx-{topic.name}", "log_level": 0}
    )
    producer.init_transactions()
    for number, keep in ((1, True), (2, False), (3, True)):
        producer.begin_transaction()
        producer.produce(topic.name, b'{"id": %d}' % number, partition=0)
        producer.flush()
        if keep:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    drain(topic.stream(duckdb_at(warehouse), target_table=Orders))
    assert rows_in(warehouse, "SELECT id FROM shop.stream_orders ORDER BY id") == [(1,), (3,)]


def test_raw_bytes_are_one_column(topic: Topic, warehouse: Path) -> None:
    topic.options["payload_format"] = "raw_bytes"
    topic.write([b"\x00\xff", b"text"], partition=1)
    drain(topic.stream(duckdb_at(warehouse), target_table=("main", "raw"), create_table=True))
    assert rows_in(warehouse, "SELECT value FROM main.raw") == [(b"\x00\xff",), (b"text",)]


def test_every_target_goes_its_own_way(topic: Topic, tmp_path: Path) -> None:
    from ematix_flow import Target
    from ematix_flow.declare.connection.registry import connection_from_fields

    first, lake = tmp_path / "a.duckdb", tmp_path / "lake"
    files = connection_from_fields("lake", {"kind": "object_store_local", "path": str(lake), "format": "json_lines"})
    targets = [Target(connection=duckdb_at(first), table=("main", "a")), Target(connection=files, prefix="events/raw")]
    stream = topic.stream(None, targets=targets)
    topic.write([{"id": 1}])
    with pytest.raises(PlanError, match=r"table main\.a does not exist"):
        drain(stream)
    rows_in(first, "CREATE TABLE main.a (id BIGINT)")
    topic.write([{"id": 2}])
    drain(stream)
    written = sorted(line for file in lake.rglob("*.jsonl") for line in file.read_text().splitlines())
    assert rows_in(first, "SELECT id FROM main.a ORDER BY id") == [(1,), (2,)]
    assert written == ['{"id":1}', '{"id":2}']


@ematix.table(schema="shop", name="own_names")
class OwnNames:
    """A table whose columns are called like things that messages have inside."""

    id: Annotated[BigInt, pk()]
    _payload: Text | None
    _place: Text | None
    value: Text | None


def test_fields_may_be_called_like_what_messages_have_inside(topic: Topic, warehouse: Path) -> None:
    topic.write([{"id": 1, "_payload": "p", "_place": "q", "value": "v"}, {"id": "x", "_payload": "r"}, b"{torn"])
    stream = topic.stream(duckdb_at(warehouse), target_table=OwnNames, transform_on_error="dlq")
    drain(stream)
    assert rows_in(warehouse, "SELECT id, _payload, _place, value FROM shop.own_names") == [(1, "p", "q", "v")]
    payloads = [payload_of(row) for (row,) in rows_in(warehouse, "SELECT row_json FROM ematix_flow.rejects")]
    assert sorted(payloads) == [b'{"id":"x","_payload":"r"}', b"{torn"]

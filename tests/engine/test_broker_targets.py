from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.engine.stream.control import move_stream, stream_status
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.run import run_stream
from ematix_flow.errors import BadRowsError, PlanError
from tests.engine.topic_flows import TopicFlow
from tests.services.kinesis import create_stream
from tests.services.s3 import KEY, REGION, SECRET
from tests.services.topics import committed, fill, payloads_of

if TYPE_CHECKING:
    from tests.services.kafka import KafkaBroker
    from tests.services.registry import RegistryServer
    from tests.services.s3 import S3Server

pytestmark = pytest.mark.service


def flow_of(
    broker: KafkaBroker, *payloads: bytes | None, keys: list[bytes] | None = None, **keywords: Any
) -> TopicFlow:
    source, target = broker.create_topic(2), broker.create_topic(2)
    fill(broker.address, source, payloads, keys)
    fields = keywords.pop("fields", {})
    return TopicFlow(broker.address, source, target, keywords, fields)


def test_objects_go_from_topic_to_topic_once(kafka_broker: KafkaBroker) -> None:
    rows = [{"id": n, "name": None if n % 2 else "even"} for n in range(25)]
    payloads = [json.dumps(row).encode() for row in rows]
    flow = flow_of(kafka_broker, *payloads, target_message_key_column="id")
    assert flow.run(most=10)["total_rows"] == 25
    assert flow.run()["total_rows"] == 0
    fill(kafka_broker.address, flow.source, [b'{"id": 25}'])
    assert flow.run()["total_rows"] == 1
    expected = [(str(n).encode(), {"id": n} if n % 2 else {"id": n, "name": "even"}) for n in range(26)]
    expected[25] = (b"25", {"id": 25})
    assert sorted(flow.arrived(), key=lambda pair: pair[1]["id"]) == expected


def test_a_stream_that_begins_at_the_end_sends_what_comes_later(kafka_broker: KafkaBroker) -> None:
    flow = flow_of(kafka_broker, b'{"id":1}', fields={"auto_offset_reset": "latest"})
    assert flow.run()["total_rows"] == 0
    fill(kafka_broker.address, flow.source, [b'{"id":2}'])
    assert flow.run()["total_rows"] == 1
    assert flow.arrived() == [(None, {"id": 2})]


def test_bytes_are_passed_on_with_their_keys_and_deletions(kafka_broker: KafkaBroker) -> None:
    flow = flow_of(
        kafka_broker, b"\xff\x00", None, keys=[b"a", b"b"],
        target_message_key_column="_key", fields={"payload_format": "raw_bytes"},
    )  # fmt: skip
    flow.run()
    messages = committed(kafka_broker.address, flow.target)
    assert sorted((one.key(), one.value()) for one in messages) == [(b"a", b"\xff\x00"), (b"b", None)]


def test_a_key_of_payloads_that_nobody_reads_is_refused(kafka_broker: KafkaBroker) -> None:
    flow = flow_of(kafka_broker, target_message_key_column="id", fields={"payload_format": "raw_bytes"})
    with pytest.raises(PlanError, match="passed on unread"):
        flow.run()


def test_a_message_that_cannot_be_read_fails_its_batch_or_is_dropped(kafka_broker: KafkaBroker) -> None:
    failing = flow_of(kafka_broker, b'{"id":1}', b"{broken")
    with pytest.raises(BadRowsError, match="1 message cannot be read"):
        failing.run()
    assert payloads_of(kafka_broker.address, failing.target) == []
    dropping = TopicFlow(failing.address, failing.source, failing.target, {"transform_on_error": "drop"})
    assert dropping.run()["total_rows"] == 2
    assert dropping.arrived() == [(None, {"id": 1})]


def test_a_stream_fills_two_topics(kafka_broker: KafkaBroker) -> None:
    from ematix_flow.declare.pipeline.targets import Target

    source, first, second = (kafka_broker.create_topic() for _ in range(3))
    fill(kafka_broker.address, source, [b'{"id":1}', b'{"id":2}'])
    events = connection_from_fields("events", {"kind": "kafka", "bootstrap_servers": kafka_broker.address})
    targets = [Target(connection=events, topic=first), Target(connection=events, topic=second)]
    given = {"name": f"fan-{source}", "source": events, "source_query": source, "targets": targets}
    run_stream(stream_from_keywords(given, None), StreamOptions(available_now=True))
    assert (
        payloads_of(kafka_broker.address, first)
        == payloads_of(kafka_broker.address, second)
        == [b'{"id":1}', b'{"id":2}']
    )


def test_exactly_once_into_a_queue_is_refused_before_anything_is_opened() -> None:
    events = connection_from_fields("events", {"kind": "kafka", "bootstrap_servers": "127.0.0.1:1"})
    queue = connection_from_fields("jobs", {"kind": "rabbitmq", "amqp_url": "amqp://127.0.0.1:1"})
    given = {"name": "s", "source": events, "source_query": "t", "target": queue, "target_queue": "q"}
    stream = stream_from_keywords({**given, "delivery": "exactly_once"}, None)
    with pytest.raises(PlanError, match="cannot be kept from kafka to rabbitmq"):
        run_stream(stream, StreamOptions(available_now=True))


def test_a_topic_is_asked_where_it_stands_and_goes_on_from_elsewhere(kafka_broker: KafkaBroker) -> None:
    flow = flow_of(kafka_broker, b'{"id":1}', b'{"id":2}')
    options = StreamOptions()
    (before,) = stream_status(flow.stream, options)
    assert (before.position, before.lag) == (None, 2)
    flow.run()
    (after,) = stream_status(flow.stream, options)
    assert (after.target, after.lag, after.problem) == (flow.target, 0, None)
    (moved,) = move_stream(flow.stream, "earliest", options)
    assert moved.before == after.position
    assert flow.run()["total_rows"] == 2
    assert sorted(row["id"] for _, row in flow.arrived()) == [1, 1, 2, 2]


def test_a_stream_into_kinesis_sends_each_message_under_its_id(kafka_broker: KafkaBroker, s3_server: S3Server) -> None:
    topic, name = kafka_broker.create_topic(), create_stream(s3_server)
    fill(kafka_broker.address, topic, [b'{"id":1}', b'{"id":2,"n":null}'])
    events = connection_from_fields("events", {"kind": "kafka", "bootstrap_servers": kafka_broker.address})
    fields = {"stream_name": name, "region": REGION, "endpoint": s3_server.endpoint}
    keys = {"access_key_id": KEY, "secret_access_key": SECRET}
    shards = connection_from_fields("shards", {"kind": "kinesis", **fields, **keys})
    given = {"name": f"to-{name}", "source": events, "source_query": topic, "target": shards}
    stream = stream_from_keywords({**given, "target_partition_key_prefix": "orders-"}, None)
    totals = [run_stream(stream, StreamOptions(available_now=True))["total_rows"] for _ in range(2)]
    assert totals == [2, 0]
    client = s3_server.client("kinesis")
    shard = {"StreamName": name, "ShardId": client.list_shards(StreamName=name)["Shards"][0]["ShardId"]}
    start = client.get_shard_iterator(**shard, ShardIteratorType="TRIM_HORIZON")["ShardIterator"]
    messages = client.get_records(ShardIterator=start)["Records"]
    assert [record["Data"] for record in messages] == [b'{"id":1}', b'{"id":2}']
    assert len({record["PartitionKey"] for record in messages}) == 2
    assert all(record["PartitionKey"].startswith("orders-") for record in messages)


def test_objects_become_messages_of_avro(kafka_broker: KafkaBroker, registry_server: RegistryServer) -> None:
    avro = {"payload_format": "avro", "schema_registry_url": registry_server.url}
    first = flow_of(kafka_broker, b'{"id":1,"name":"a"}', b'{"id":2,"name":null}')
    connection = {"kind": "kafka", "bootstrap_servers": kafka_broker.address, **avro}
    with_schema = connection_from_fields("with_schema", connection)
    key = {"target_message_key_column": "id", "target": with_schema}
    assert TopicFlow(first.address, first.source, first.target, key).run()["total_rows"] == 2
    assert all(message.value()[0] == 0 for message in committed(first.address, first.target))
    back = kafka_broker.create_topic()
    options = {"source": with_schema, "target_message_key_column": "_key"}
    assert TopicFlow(first.address, first.target, back, options).run()["total_rows"] == 2
    messages = [(message.key(), json.loads(message.value())) for message in committed(first.address, back)]
    assert sorted(messages) == [(b"1", {"id": 1, "name": "a"}), (b"2", {"id": 2})]

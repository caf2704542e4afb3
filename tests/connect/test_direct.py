from __future__ import annotations

import gc
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition

from ematix_flow import _core
from ematix_flow.errors import MissingExtraError, TransientError
from tests.connect.direct_cases import CASES
from tests.services.kinesis import create_stream
from tests.services.s3 import KEY, REGION, SECRET

if TYPE_CHECKING:
    from tests.connect.direct_cases import Case
    from tests.services.kafka import KafkaBroker
    from tests.services.rabbitmq import RabbitMQServer
    from tests.services.s3 import S3Server

pytestmark = pytest.mark.xdist_group("brokers")

ROWS = [{"n": 1, "name": "a"}, {"n": 2, "name": "b \n c"}, {"n": 3, "name": "ä"}]


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param](request)  # type: ignore[no-any-return]


def rows(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    stored_rows = [row for batch in batches for row in batch.to_pylist()]
    return sorted(stored_rows, key=lambda row: row["n"])


@pytest.mark.service
def test_rows_that_are_written_are_read_until_they_are_committed(case: Case) -> None:
    backend = case.open()
    backend.ping()
    assert backend.write_arrow_stream(case.dest, [pa.RecordBatch.from_pylist(ROWS)]) == 3
    assert rows(backend.read_arrow_stream(case.source)) == ROWS
    backend = case.again(backend)
    assert rows(backend.read_arrow_stream(case.source)) == ROWS
    backend.commit_offsets()
    backend.commit_offsets()
    backend = case.again(backend)
    assert backend.read_arrow_stream(case.source) == []


@pytest.mark.service
def test_batches_are_as_large_as_asked_and_come_once(case: Case) -> None:
    backend = case.open(batch_size=2)
    backend.write_arrow_stream(case.dest, [pa.RecordBatch.from_pylist([{"n": n}]) for n in range(5)])
    batches = backend.iter_arrow_stream(case.source)
    listed = list(batches)
    assert all(batch.num_rows <= 2 for batch in listed)
    assert rows(listed) == [{"n": n} for n in range(5)]
    assert list(batches) == []


@pytest.mark.service
def test_a_message_that_cannot_be_read_is_told_and_not_lost(case: Case) -> None:
    backend = case.open()
    case.send(b'{"n": ')
    for _ in range(2):
        with pytest.raises(ValueError, match="no JSON"):
            backend.read_arrow_stream(case.source)
        backend.commit_offsets()


@pytest.mark.service
def test_rabbitmq_counts_what_is_out_and_drops_what_it_is_told_to(rabbitmq_server: RabbitMQServer) -> None:
    backend = _core.RabbitMQBackend.open(rabbitmq_server.url, idle_timeout_ms=100)
    queue = rabbitmq_server.create_queue()
    backend.write_arrow_stream(queue, [pa.RecordBatch.from_pylist(ROWS)])
    backend.read_arrow_stream(queue)
    assert backend.pending_delivery_count() == 3
    backend.nack_pending(requeue=False)
    assert backend.pending_delivery_count() == 0
    assert backend.read_arrow_stream(queue) == []
    with pytest.raises(ValueError, match="no queue of that name"):
        backend.write_arrow_stream("none-such", [pa.RecordBatch.from_pylist(ROWS)])


@pytest.mark.service
def test_rabbitmq_sends_what_is_refused_to_the_dead_letters_of_the_queue(rabbitmq_server: RabbitMQServer) -> None:
    dead = rabbitmq_server.create_queue()
    queue = rabbitmq_server.create_queue(**{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    backend = _core.RabbitMQBackend.open(rabbitmq_server.url, idle_timeout_ms=1000)
    backend.write_arrow_stream(queue, [pa.RecordBatch.from_pylist(ROWS)])
    assert rows(backend.read_arrow_stream(queue)) == ROWS
    backend.nack_pending(requeue=False)
    assert backend.read_arrow_stream(queue) == []
    assert rows(backend.read_arrow_stream(dead)) == ROWS
    backend.commit_offsets()


@pytest.mark.service
def test_a_slow_answer_of_kafka_is_not_taken_for_the_end_of_a_topic(kafka_broker: KafkaBroker) -> None:
    topic = kafka_broker.create_topic(partitions=3)
    writer = _core.KafkaBackend.open(kafka_broker.address)
    writer.write_arrow_stream(topic, [pa.RecordBatch.from_pylist([{"n": n} for n in range(600)])])
    hasty = _core.KafkaBackend.open(kafka_broker.address, idle_timeout_ms=1)
    assert rows(hasty.read_arrow_stream(topic)) == [{"n": n} for n in range(600)]
    assert hasty.read_arrow_stream(topic) == []
    writer.write_arrow_stream(topic, [pa.RecordBatch.from_pylist([{"n": 600}])])
    patient = _core.KafkaBackend.open(kafka_broker.address, idle_timeout_ms=500)
    assert len(rows(patient.read_arrow_stream(topic))) == 601
    for backend in (writer, hasty, patient):
        backend.close()


@pytest.mark.service
def test_a_kafka_transaction_holds_the_rows_and_the_place_read_up_to(kafka_broker: KafkaBroker) -> None:
    source, dest = kafka_broker.create_topic(), kafka_broker.create_topic()
    group = f"g-{source}"
    plain = _core.KafkaBackend.open(kafka_broker.address)
    plain.write_arrow_stream(source, [pa.RecordBatch.from_pylist(ROWS)])
    exact = _core.KafkaBackend.open(
        kafka_broker.address,
        group_id=group,
        delivery_semantics="exactly_once",
        transactional_id=group,
        idle_timeout_ms=500,
    )
    batches = exact.read_arrow_stream(source)
    with pytest.raises(ZeroDivisionError):
        exact.write_arrow_stream(dest, (1 // 0 if number else batch for number, batch in enumerate([*batches, 0])))
    assert exact.write_arrow_stream(dest, batches) == 3
    exact.close()
    consumer = Consumer({"bootstrap.servers": kafka_broker.address, "group.id": group})
    (position,) = consumer.committed([TopicPartition(source, 0)], 30)
    consumer.close()
    assert position.offset == 3
    reader = _core.KafkaBackend.open(kafka_broker.address, idle_timeout_ms=500)
    assert rows(reader.read_arrow_stream(dest)) == ROWS
    reader.close()


@pytest.mark.service
def test_raw_bytes_stay_as_they_are(kafka_broker: KafkaBroker) -> None:
    backend = _core.KafkaBackend.open(kafka_broker.address, payload_format="raw_bytes", idle_timeout_ms=500)
    topic = kafka_broker.create_topic()
    backend.write_arrow_stream(topic, [pa.RecordBatch.from_pylist([{"value": b"\x00\xff"}])])
    (batch,) = backend.read_arrow_stream(topic)
    assert batch.to_pylist() == [{"value": b"\x00\xff"}]
    backend.close()


def members(broker: KafkaBroker, group: str) -> list[Any]:
    """Return who is in a group of consumers."""
    admin = broker.admin()
    (known,) = admin.describe_consumer_groups([group]).values()
    return list(known.result(30).members)


READ_AND_END = """
import sys
from ematix_flow import _core
backend = _core.KafkaBackend.open(sys.argv[1], group_id=sys.argv[3], idle_timeout_ms=200)
print(sum(batch.num_rows for batch in backend.read_arrow_stream(sys.argv[2])))
backend.commit_offsets()
"""


@pytest.mark.service
def test_a_process_that_ends_without_closing_leaves_its_group(kafka_broker: KafkaBroker) -> None:
    topic, group = kafka_broker.create_topic(), "ends-early"
    writer = _core.KafkaBackend.open(kafka_broker.address)
    writer.write_arrow_stream(topic, [pa.RecordBatch.from_pylist(ROWS)])
    writer.close()
    given = [sys.executable, "-c", READ_AND_END, kafka_broker.address, topic, group]
    read = subprocess.run(given, capture_output=True, text=True, check=True, timeout=120)
    assert read.stdout.split() == ["3"]
    assert members(kafka_broker, group) == []


@pytest.mark.service
def test_a_backend_that_nobody_holds_leaves_its_group(kafka_broker: KafkaBroker) -> None:
    topic, group = kafka_broker.create_topic(), "forgotten"
    backend = _core.KafkaBackend.open(kafka_broker.address, group_id=group, idle_timeout_ms=200)
    backend.read_arrow_stream(topic)
    del backend
    gc.collect()
    assert members(kafka_broker, group) == []


@pytest.mark.service
def test_kinesis_reads_a_shard_before_those_that_it_was_split_into(s3_server: S3Server) -> None:
    stream, client = create_stream(s3_server), s3_server.client("kinesis")
    login = {"region": REGION, "access_key_id": KEY, "secret_access_key": SECRET, "endpoint": s3_server.endpoint}
    backend = _core.KinesisBackend.open(stream, max_empty_polls=2, idle_poll_ms=10, **login)  # type: ignore[arg-type]
    backend.write_arrow_stream("k", [pa.RecordBatch.from_pylist([{"n": 1}, {"n": 2}])])
    (shard,) = client.list_shards(StreamName=stream)["Shards"]
    client.split_shard(StreamName=stream, ShardToSplit=shard["ShardId"], NewStartingHashKey=str(1 << 127))
    backend.write_arrow_stream("k", [pa.RecordBatch.from_pylist([{"n": n} for n in range(3, 9)])])
    numbers = [row["n"] for batch in backend.iter_arrow_stream("all") for row in batch.to_pylist()]
    assert (sorted(numbers), numbers[:2]) == (list(range(1, 9)), [1, 2])
    assert backend.pending_sequence_count() == 8


AWAY: dict[str, Any] = {
    "kafka": lambda: _core.KafkaBackend.open("127.0.0.1:1"),
    "rabbitmq": lambda: _core.RabbitMQBackend.open("amqp://u:canary-word@127.0.0.1:1/%2F?connection_attempts=1"),
    "kinesis": lambda: _core.KinesisBackend.open(
        "s", region="x", endpoint="http://127.0.0.1:1", access_key_id="k", secret_access_key="canary-word"
    ),
}


@pytest.mark.service  # nobody is there, but to find that out takes seconds
@pytest.mark.parametrize("backend", AWAY.values(), ids=AWAY)
def test_a_broker_that_is_away_is_told_without_its_password(backend: Any) -> None:
    with pytest.raises(TransientError) as raised:
        backend().ping()
    assert isinstance(raised.value, ValueError)
    assert "canary-word" not in str(raised.value)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"payload_format": "xml"}, "payload_format"),
        ({"payload_format": "avro"}, "schema registry"),
        ({"delivery_semantics": "exactly_once"}, "transactional_id"),
        ({"delivery_semantics": "twice"}, "at_least_once, exactly_once"),
        ({"batch_size": 0}, "no room"),
        ({"sasl_plain_username": "u"}, "incomplete PLAIN login"),
    ],
)
def test_settings_that_cannot_be_are_refused_at_once(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _core.KafkaBackend.open("127.0.0.1:1", **wrong)


@pytest.mark.parametrize(
    ("package", "extra", "opened"),
    [
        ("confluent_kafka", "kafka", lambda: _core.KafkaBackend.open("h:1")),
        ("pika", "rabbitmq", lambda: _core.RabbitMQBackend.open("amqp://h")),
        ("google.pubsub_v1", "pubsub", lambda: _core.PubSubBackend.open("p")),
        ("boto3", "kinesis", lambda: _core.KinesisBackend.open("s", region="x")),
    ],
)
def test_a_missing_package_is_named_with_its_install_line(
    monkeypatch: pytest.MonkeyPatch, package: str, extra: str, opened: Any
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"ematix-flow-spark\[{extra}\]"):
        opened()

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import pika
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.services import programs
from tests.services.kafka import PASSWORD, USER, KafkaBroker
from tests.services.kinesis import create_stream
from tests.services.rabbitmq import RabbitMQServer

if TYPE_CHECKING:
    from tests.services.pubsub import PubSubServer
    from tests.services.registry import RegistryServer
    from tests.services.s3 import S3Server

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("brokers")]


def produce(broker: KafkaBroker, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def consume(config: dict[str, Any], topic: str, count: int) -> list[str]:
    consumer = Consumer({"group.id": "g", "enable.auto.commit": False, **config})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        messages = consumer.consume(count, timeout=30)
    finally:
        consumer.close()
    return [(message.value() or b"").decode() for message in messages]


@pytest.mark.deep  # of the servers, not of what talks to them
@pytest.mark.crash
def test_what_a_kafka_broker_has_acknowledged_survives_its_death() -> None:
    broker = KafkaBroker()
    try:
        broker.start()
        topic = broker.create_topic()
        produce(broker, topic, "a", "b")
        broker.crash()
        assert not broker.running
        broker.start()
        produce(broker, topic, "c")
        assert consume({"bootstrap.servers": broker.address}, topic, 3) == ["a", "b", "c"]
    finally:
        broker.close()
    assert not broker.folder.exists()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_kafka_broker_lets_in_who_logs_in(kafka_broker: KafkaBroker, mechanism: str) -> None:
    topic = kafka_broker.create_topic()
    produce(kafka_broker, topic, "a")
    config = {
        "bootstrap.servers": kafka_broker.login_address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
    }
    assert consume(config | {"sasl.password": PASSWORD}, topic, 1) == ["a"]
    errors: list[Any] = []
    refused = Consumer(config | {"sasl.password": "wrong", "group.id": "g", "log_level": 0, "error_cb": errors.append})
    with pytest.raises(KafkaException):
        refused.list_topics(timeout=1)
    refused.poll(0)
    refused.close()
    assert KafkaError._AUTHENTICATION in [error.code() for error in errors]


def test_a_server_that_can_be_fetched_is_named_with_the_command_that_fetches_it() -> None:
    assert "not installed: Kafka" in str(programs.MissingServerError("Kafka"))
    assert programs.install_command(["Kafka"]) == "make services"


def request_registry(url: str, schema: str = "") -> Any:
    """Ask a schema registry, or send it a schema."""
    body = json.dumps({"schema": schema}).encode() if schema else None
    request = Request(url, body, {"Content-Type": "application/vnd.schemaregistry.v1+json"})  # noqa: S310 - our own
    with urlopen(request, timeout=30) as answer:  # noqa: S310 - our own
        return json.loads(answer.read())


def test_a_schema_registry_keeps_the_versions_of_a_subject(registry_server: RegistryServer) -> None:
    versions = f"{registry_server.url}/subjects/{registry_server.subject()}/versions"
    fields = [{"name": "a", "type": "long"}, {"name": "b", "type": "string", "default": ""}]
    schemas = [json.dumps({"type": "record", "name": "R", "fields": fields[:count]}) for count in (1, 2)]
    first, second = (request_registry(versions, schema)["id"] for schema in schemas)
    assert first != second
    assert request_registry(versions) == [1, 2]
    assert json.loads(request_registry(f"{registry_server.url}/schemas/ids/{second}")["schema"])["fields"] == fields


@pytest.mark.deep
@pytest.mark.crash
def test_a_message_that_rabbitmq_has_confirmed_survives_its_death() -> None:
    broker = RabbitMQServer()
    try:
        broker.start()
        queue = broker.create_queue()
        channel = broker.channel()
        channel.confirm_delivery()
        channel.basic_publish("", queue, b"a", pika.BasicProperties(delivery_mode=2))
        broker.crash()
        assert not broker.running
        broker.start()
        channel = broker.channel()
        assert channel.basic_get(queue, auto_ack=True)[2] == b"a"
        channel.connection.close()
    finally:
        broker.close()
    assert not broker.folder.exists()


def test_a_kinesis_stream_gives_back_what_was_put(s3_server: S3Server) -> None:
    stream = create_stream(s3_server, shards=2)
    client = s3_server.client("kinesis")
    put = client.put_record(StreamName=stream, Data=b"a", PartitionKey="k")
    iterator_request = {"StreamName": stream, "ShardId": put["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
    iterator = client.get_shard_iterator(**iterator_request)["ShardIterator"]
    (record,) = client.get_records(ShardIterator=iterator)["Records"]
    assert (record["Data"], record["SequenceNumber"]) == (b"a", put["SequenceNumber"])


def test_a_pubsub_server_has_topics_and_subscriptions(pubsub_server: PubSubServer) -> None:
    topic, subscription = pubsub_server.create_topic()
    assert (topic[:2], subscription[:2]) == ("t-", "s-")

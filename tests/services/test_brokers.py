from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.services import programs
from tests.services.kafka import PASSWORD, USER, KafkaBroker

pytestmark = pytest.mark.service


def produce(broker: KafkaBroker, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def consume(config: dict[str, Any], topic: str, count: int) -> list[str]:
    consumer = Consumer({"group.id": "g", "enable.auto.commit": False, **config})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        found = consumer.consume(count, timeout=30)
    finally:
        consumer.close()
    return [(message.value() or b"").decode() for message in found]


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

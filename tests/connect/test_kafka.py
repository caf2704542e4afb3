from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from ematix_flow.connect.kafka.cluster import Kafka, Topic
from ematix_flow.declare.connection.brokers import KafkaConnection
from ematix_flow.errors import RunError, TransientError
from tests.services.kafka import PASSWORD, USER

if TYPE_CHECKING:
    from tests.services.kafka import KafkaBroker

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("brokers")]  # each process would start its own


@pytest.fixture
def kafka(kafka_broker: KafkaBroker) -> Kafka:
    return Kafka(KafkaConnection("events", bootstrap_servers=kafka_broker.address))


def produce(broker: KafkaBroker, topic: str, *messages: tuple[int, int], **settings: Any) -> None:
    """Send messages, each given as partition and milliseconds."""
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 0, **settings})
    for partition, timestamp in messages:
        producer.produce(topic, b"x", partition=partition, timestamp=timestamp)
    assert producer.flush(30) == 0


def test_offsets_are_found_at_the_ends_and_by_time(kafka: Kafka, kafka_broker: KafkaBroker) -> None:
    name = kafka_broker.create_topic(2)
    produce(kafka_broker, name, (0, 1000), (0, 2000), (0, 3000), (1, 1000))
    topic = kafka.topic(name)
    assert (topic.name, topic.partitions) == (name, (0, 1))
    assert kafka.earliest(topic) == {0: 0, 1: 0}
    assert kafka.latest(topic) == {0: 3, 1: 1}
    assert kafka.since(topic, datetime.fromtimestamp(2, UTC)) == {0: 1, 1: 1}


def test_the_end_is_before_a_transaction_that_is_not_decided(kafka: Kafka, kafka_broker: KafkaBroker) -> None:
    name = kafka_broker.create_topic()
    produce(kafka_broker, name, (0, 1))
    producer = Producer({"bootstrap.servers": kafka_broker.address, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"y")
    producer.flush(30)
    assert kafka.latest(kafka.topic(name)) == {0: 1}
    producer.commit_transaction(30)
    # The broker answers before it has written the mark of the transaction, which takes a place of its own.
    deadline = time.monotonic() + 30
    while kafka.latest(kafka.topic(name)) != {0: 3}:
        assert time.monotonic() < deadline, "the transaction stays open"


def test_progress_is_written_for_the_tools_that_show_lag(kafka: Kafka, kafka_broker: KafkaBroker) -> None:
    topic = kafka.topic(kafka_broker.create_topic(2))
    assert kafka.progress("readers", topic) == {}
    kafka.publish_progress("readers", topic.name, {0: 7})
    kafka.publish_progress("readers", topic.name, {0: 9, 1: 4})
    assert kafka.progress("readers", topic) == {0: 9, 1: 4}


def test_progress_in_a_topic_that_is_gone_is_an_error(kafka: Kafka) -> None:
    with pytest.raises(RunError, match="'events'"):
        kafka.publish_progress("readers", "no-such-topic", {0: 7})


def test_a_topic_that_was_made_again_has_another_id(kafka: Kafka, kafka_broker: KafkaBroker) -> None:
    before = kafka.topic(kafka_broker.create_topic())
    kafka_broker.drop_topic(before.name)
    kafka_broker.create_topic(name=before.name)
    after = kafka.topic(before.name)
    assert (after.name, after.partitions) == (before.name, before.partitions)
    assert after.id != before.id


def test_a_topic_that_is_not_there_is_told_with_the_nearest_one(kafka: Kafka, kafka_broker: KafkaBroker) -> None:
    kafka_broker.create_topic(name="click_events")
    with pytest.raises(RunError, match=r"(?s)no topic 'click_event'.*did you mean 'click_events'"):
        kafka.topic("click_event")


LOGINS: dict[str, dict[str, str]] = {
    "plain": {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD},
    "sha-256": {"sasl_scram_username": USER, "sasl_scram_password": PASSWORD, "sasl_scram_mechanism": "sha-256"},
    "sha-512": {"sasl_scram_username": USER, "sasl_scram_password": PASSWORD, "sasl_scram_mechanism": "sha-512"},
}


@pytest.mark.parametrize("login", LOGINS.values(), ids=LOGINS)
def test_the_declared_login_is_used(kafka_broker: KafkaBroker, login: dict[str, str]) -> None:
    fields: dict[str, Any] = {"bootstrap_servers": kafka_broker.login_address, "security_protocol": "SASL_PLAINTEXT"}
    assert "brokers: 1," in Kafka(KafkaConnection("events", **fields, **login)).probe()


def test_a_refused_login_is_final_and_shows_no_password(kafka_broker: KafkaBroker) -> None:
    fields: dict[str, Any] = LOGINS["plain"] | {"sasl_plain_password": "not-the-canary"}
    settings = {"bootstrap_servers": kafka_broker.login_address, "security_protocol": "SASL_PLAINTEXT"}
    with pytest.raises(RunError, match=r"(?i)authentication") as refused:
        Kafka(KafkaConnection("events", **fields, **settings)).probe()
    assert not refused.value.transient
    assert "not-the-canary" not in str(refused.value)


def test_a_certificate_lets_its_owner_in_and_nobody_else(kafka_broker: KafkaBroker) -> None:
    fields: dict[str, Any] = {
        "bootstrap_servers": kafka_broker.tls_address,
        "tls_ca_path": str(kafka_broker.certificates / "ca.pem"),
    }
    own = {
        "tls_cert_path": str(kafka_broker.certificates / "client.pem"),
        "tls_key_path": str(kafka_broker.certificates / "client.key"),
    }
    assert "brokers: 1," in Kafka(KafkaConnection("events", **fields, **own)).probe()
    with pytest.raises(RunError):
        Kafka(KafkaConnection("events", **fields)).probe()


def test_a_certificate_that_is_not_there_is_final() -> None:
    with pytest.raises(RunError, match="'events'") as raised:
        Kafka(KafkaConnection("events", bootstrap_servers="127.0.0.1:1", tls_ca_path="none.pem")).probe()
    assert not raised.value.transient


def test_a_broker_that_is_away_may_come_back() -> None:
    away = Kafka(KafkaConnection("events", bootstrap_servers="127.0.0.1:1"), seconds=0.5)
    with pytest.raises(TransientError, match=r"'events': 127.0.0.1:1: "):
        away.latest(Topic("t", "", (0,)))

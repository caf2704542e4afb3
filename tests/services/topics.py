"""Fills topics of a Kafka broker and reads what readers of committed messages see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

DEADLINE = 60.0
LARGEST = 64 << 20
"""Bytes of a message; topics take less unless they are told otherwise."""


def fill(
    address: str, topic: str, payloads: Iterable[bytes | None], keys: Iterable[bytes | None] | None = None
) -> None:
    """Send payloads in their order; without keys they are spread over the partitions."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "linger.ms": 5, "log_level": 0, "message.max.bytes": LARGEST})
    if keys is None:
        for payload in payloads:
            producer.produce(topic, payload)
    else:
        for payload, key in zip(payloads, keys, strict=True):
            producer.produce(topic, payload, key)
    assert producer.flush(DEADLINE) == 0


def committed(address: str, topic: str, level: str = "read_committed") -> list[Any]:
    """Return every message of a topic that a plain consumer sees, partition after partition."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({
        "bootstrap.servers": address, "group.id": "tests", "enable.auto.commit": False, "log_level": 0,
        "enable.partition.eof": True, "isolation.level": level, "fetch.wait.max.ms": 20,
    })  # fmt: skip
    try:
        partitions = consumer.list_topics(topic, timeout=DEADLINE).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        messages: list[Any] = []
        open_ = set(partitions)
        while open_:
            for message in consumer.consume(10_000, timeout=0.2):
                if message.error() is None:
                    messages.append(message)
                else:
                    open_.discard(int(message.partition() or 0))
    finally:
        consumer.close()
    return sorted(messages, key=lambda message: (message.partition(), message.offset()))


def payloads_of(address: str, topic: str) -> list[bytes]:
    """Return the payloads of the messages of a topic."""
    return [message.value() for message in committed(address, topic)]

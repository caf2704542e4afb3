"""Messages for the tests of streams: sent to a broker, and gone through before the test goes on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.services.kafka import KafkaBroker


def send_orders(broker: KafkaBroker, topic: str, ids: Iterable[int]) -> None:
    """Send an order for each id."""
    send(broker, topic, *(json.dumps({"id": number, "name": f"order {number}"}) for number in ids))


def send(broker: KafkaBroker, topic: str, *values: str) -> None:
    """Send texts as they are."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 5})
    for value in values:
        producer.produce(topic, value, key=value)
    if producer.flush(30):
        raise ConnectionError("the broker did not take all messages")

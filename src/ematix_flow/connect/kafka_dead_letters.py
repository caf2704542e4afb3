"""A Kafka topic for messages that could not be loaded: each with headers that say what was wrong and where it came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.connect.kafka import broker_error, require_kafka
from ematix_flow.connect.kafka_settings import client_settings
from ematix_flow.errors import TransientError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.declare.connection_streams import KafkaConnection

SECONDS = 30.0
PREFIX = "emat-dlq-"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that could not be loaded."""

    pipeline: str
    source_id: str
    payload_format: str
    id: str
    """The same whenever this message fails again in the same batch, so that a copy is known as one."""
    stage: str
    error: str
    place: str
    failed_at_ms: int
    attempt: int
    payload: bytes

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        """Give what the topic keeps beside the payload."""
        values = {
            "id": self.id,
            "pipeline": self.pipeline,
            "stage": self.stage,
            "error": self.error[:2000],
            "source-id": self.source_id,
            "failed-at": str(self.failed_at_ms),
            "payload-format": self.payload_format,
            "offset-bytes": self.place,
            "attempt": str(self.attempt),
        }
        return [(PREFIX + name, value.encode()) for name, value in values.items()]


def send(connection: KafkaConnection, topic: str, letters: Sequence[DeadLetter]) -> None:
    """Write dead letters and come back when all of them are kept; some may be there twice, under the same id."""
    kafka = require_kafka()
    failed: list[object] = []
    producer = kafka.Producer(
        client_settings(connection) | {"enable.idempotence": True, "linger.ms": 5, "log_level": 0}
    )
    for letter in letters:
        producer.produce(
            topic,
            value=letter.payload,
            key=letter.id.encode(),
            headers=letter.headers,
            on_delivery=lambda error, _: failed.append(error) if error is not None else None,
        )
        producer.poll(0)
    if producer.flush(SECONDS):
        message = f"dead letters could not be written to topic {topic!r} in {SECONDS:.0f} seconds"
        raise TransientError(message)
    if failed:
        raise broker_error(connection, kafka.KafkaException(failed[0]))

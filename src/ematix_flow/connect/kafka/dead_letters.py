"""A Kafka topic for messages that could not be loaded: headers state what was wrong and where each came from."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.kafka.cluster import broker_error, refuse_missing, require_kafka
from ematix_flow.connect.kafka.settings import LARGEST_MESSAGE, client_settings
from ematix_flow.errors import RunError, TransientError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.declare.connection.brokers import KafkaConnection

SECONDS = 30.0
_SENDING = {
    "enable.idempotence": True,
    "linger.ms": 5,
    "delivery.report.only.error": True,
    "message.max.bytes": LARGEST_MESSAGE,
    "log_level": 0,
}
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
    is_row: bool = False
    """Whether the payload is the row that was made of the message, as JSON, at which the SQL of the stream failed."""

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        """Return what the topic stores besides the payload."""
        values = {
            "id": self.id,
            "pipeline": self.pipeline,
            "stage": self.stage,
            "error": self.error[:2000],
            "source-id": self.source_id,
            "failed-at": str(self.failed_at_ms),
            "payload-format": "json" if self.is_row else self.payload_format,
            "offset-bytes": self.place,
            "attempt": str(self.attempt),
        }
        if self.is_row:
            values["row"] = "true"
        return [(PREFIX + name, value.encode()) for name, value in values.items()]


def send(connection: KafkaConnection, topic: str, dead_letters: Sequence[DeadLetter]) -> None:
    """Write dead letters and return when all of them are stored; some may be there twice, under the same id."""
    kafka = require_kafka()
    failed: list[Any] = []
    producer = kafka.Producer(
        client_settings(connection) | _SENDING | {"on_delivery": lambda error, _: failed.append(error)}
    )
    try:
        refuse_missing(producer, topic, "create it, or check dead_letter_topic= of the stream.")
        for dead_letter in dead_letters:
            _produce(producer, topic, dead_letter)
        left = producer.flush(SECONDS)
    except kafka.KafkaException as error:
        raise _refusal(connection, topic, error) from None
    if failed:
        raise _refusal(connection, topic, kafka.KafkaException(failed[0]))
    if left:
        message = f"dead letters could not be written to topic {topic!r} in {SECONDS:.0f} seconds"
        raise TransientError(message)


def _produce(producer: Any, topic: str, dead_letter: DeadLetter) -> None:
    until = time.monotonic() + SECONDS
    while True:
        try:
            producer.produce(topic, value=dead_letter.payload, key=dead_letter.id.encode(), headers=dead_letter.headers)
        except BufferError:
            if time.monotonic() > until:
                message = f"dead letters are not taken by topic {topic!r}"
                raise TransientError(message) from None
            producer.poll(0.1)
        else:
            producer.poll(0)
            return


def _refusal(connection: KafkaConnection, topic: str, error: Any) -> RunError:
    """Return the error for people."""
    if error.args[0].code() == require_kafka().KafkaError.MSG_SIZE_TOO_LARGE:
        message = f"topic {topic!r} takes no dead letters as large as one of the stream"
        return RunError(message, hint="raise max.message.bytes of the topic; the message is kept until then.")
    return broker_error(connection, error)

"""Positions of streams in a compacted Kafka topic: they are written in the transaction of the messages they belong to."""

from __future__ import annotations

import json
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base.retry import KAFKA_OFFSETS, attempts
from ematix_flow.errors import StreamLostError, TransientError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka import Consumer
    from confluent_kafka.admin import AdminClient

    from ematix_flow.connect.base.stream_source import Position

TOPIC = "ematix-flow-positions"

TIMEOUT_SECONDS = 20.0
"""Seconds that the brokers have for an answer."""

SILENCE = 75.0
"""Seconds to wait for transactions of streams that died; brokers end those within a minute."""

_COMPACTED = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20), "min.cleanable.dirty.ratio": "0.1"}
_READING = {
    "group.id": "ematix-flow-positions",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": 50,
    "log_level": 0,
}


@dataclass(frozen=True, slots=True)
class CommittedPosition:
    """What is known of a stream on its way into a topic."""

    source: str
    after: Position | None
    """How far it has come; None before its first messages."""
    before: Position | None = None
    """Where it stood before that."""
    owner: str = ""
    """The process that wrote this."""

    @property
    def text(self) -> bytes:
        """Return the payload of the record."""
        fields = {"source": self.source, "before": self.before, "after": self.after, "owner": self.owner}
        return json.dumps(fields, sort_keys=True).encode()


@dataclass(frozen=True, slots=True)
class KafkaPositions:
    """The topic of positions of one cluster."""

    settings: Mapping[str, Any]

    def last(self, key: str) -> CommittedPosition | None:
        """Return the last committed record of a key.

        Records behind an open transaction cannot be seen yet, even committed ones: they are waited for, because a
        position that is overlooked would send messages again.
        """
        from confluent_kafka import Consumer, TopicPartition

        first, end = self._ends()
        with closing(Consumer({**self.settings, **_READING})) as consumer:
            consumer.assign([TopicPartition(TOPIC, 0, first)])
            return _last(consumer, key.encode(), end)

    def _ends(self) -> tuple[int, int]:
        """Return the first offset and the one after the last, open transactions included; makes the topic if it is missing."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({**self.settings, "log_level": 0})
        try:
            for attempt in attempts(KAFKA_OFFSETS, on=_is_not_there):
                with attempt:
                    ends = _ends_or_created(admin)
        except KafkaException as error:
            message = f"Kafka cannot be queried about {TOPIC!r}: {error.args[0].str()}"
            raise TransientError(message) from None
        return ends


_NOT_THERE = (-156, -188, 3, 5)
"""Codes of a topic that is not known and of one without a leader, as the client and as brokers report them."""


def _is_not_there(error: Exception) -> bool:
    from confluent_kafka import KafkaException

    return isinstance(error, KafkaException) and error.args[0].code() in _NOT_THERE


def _ends_or_created(admin: AdminClient) -> tuple[int, int]:
    from confluent_kafka import KafkaException

    try:
        return _ends(admin)
    except KafkaException as error:
        # The same error means a topic that is not there and one whose broker is away.
        if _is_not_there(error) and _created(admin):
            return 0, 0
        raise


def _ends(admin: AdminClient) -> tuple[int, int]:
    from confluent_kafka import IsolationLevel, TopicPartition
    from confluent_kafka.admin._listoffsets import OffsetSpec

    partition, offsets = TopicPartition(TOPIC, 0), []
    for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):  # type: ignore[no-untyped-call]
        futures = admin.list_offsets(
            {partition: spec}, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=TIMEOUT_SECONDS
        )
        offsets.append(int(futures[partition].result(TIMEOUT_SECONDS).offset))
    return offsets[0], offsets[1]


def _created(admin: AdminClient) -> bool:
    """Create the topic; return False if it was there already."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.cimpl import NewTopic

    # -1: as many copies as the cluster has of its other topics.
    futures = admin.create_topics([NewTopic(TOPIC, 1, -1, config=dict(_COMPACTED))], operation_timeout=TIMEOUT_SECONDS)
    try:
        futures[TOPIC].result(TIMEOUT_SECONDS)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        message = f"topic {TOPIC!r}, which keeps the positions of streams, cannot be made: {error.args[0].str()}"
        raise TransientError(message, hint="make it: one partition, cleanup.policy=compact.") from None
    return True


def _last(consumer: Consumer, key: bytes, end: int) -> CommittedPosition | None:
    from confluent_kafka import KafkaError

    value, at = None, 0
    until = time.monotonic() + SILENCE
    while at < end:
        for record in consumer.consume(10_000, timeout=0.2):
            error = record.error()
            if error is None and record.key() == key:
                value = record.value()
            if error is None or error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                at = int(record.offset() or 0) + (error is None)
        if time.monotonic() > until:
            message = f"the end of {TOPIC!r} cannot be read: an open transaction does not end"
            raise TransientError(message)
    return None if value is None else _parse_position(value)


def _parse_position(text: bytes) -> CommittedPosition:
    try:
        return CommittedPosition(**json.loads(text))
    except (ValueError, TypeError):
        message = f"{text[:80]!r} in {TOPIC!r} is not a position in a stream"
        raise StreamLostError(message, hint="say where to go on: flow stream reset NAME --from ...") from None

"""Handles on single systems under their public names; nothing is defined here."""

from __future__ import annotations

from ematix_flow.connect.broker.client import ArrowBatchIter
from ematix_flow.connect.kafka.client import KafkaBackend
from ematix_flow.connect.kinesis.client import KinesisBackend
from ematix_flow.connect.pubsub.client import PubSubBackend
from ematix_flow.connect.rabbitmq.client import RabbitMQBackend
from ematix_flow.engine.api.references import open_url as connect
from ematix_flow.engine.connection import Connection
from ematix_flow.engine.stream.operations import (
    dlq_park,
    dlq_purge,
    dlq_record_by_id,
    dlq_records,
    dlq_replay,
    dlq_stats,
    stream_rewind,
)

__all__ = [
    "ArrowBatchIter",
    "Connection",
    "KafkaBackend",
    "KinesisBackend",
    "PubSubBackend",
    "RabbitMQBackend",
    "connect",
    "dlq_park",
    "dlq_purge",
    "dlq_record_by_id",
    "dlq_records",
    "dlq_replay",
    "dlq_stats",
    "stream_rewind",
]

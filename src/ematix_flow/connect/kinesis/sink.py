"""Streams of AWS Kinesis as targets of streams: a message's id, behind a prefix, decides which shard it goes to."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ematix_flow.connect.broker.acknowledged_sink import ConfirmedSink, requests_of
from ematix_flow.connect.kinesis.client import AT_ONCE, REQUEST_BYTES, KinesisBackend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.connect.base.sink import OutgoingMessage
    from ematix_flow.declare.connection.brokers import KinesisConnection

LONGEST_KEY = 256


class KinesisSink(ConfirmedSink):
    """One stream."""

    kind: ClassVar[str] = "kinesis"

    def __init__(self, connection: KinesisConnection, prefix: str, guarantee: str) -> None:
        del guarantee
        self._connection, self._prefix = connection, prefix
        self._backend = KinesisBackend.open(
            connection.stream_name,
            region=connection.region,
            endpoint=connection.endpoint,
            access_key_id=connection.access_key_id,
            secret_access_key=connection.secret_access_key,
        )

    @property
    def address(self) -> str:
        """Return the region, the stream and the prefix."""
        return f"{self._connection.region or ''}/{self._connection.stream_name}/{self._prefix}"

    def probe(self) -> None:
        """Refuse a stream that is not there."""
        self._backend.ping()

    def send(self, messages: Sequence[OutgoingMessage]) -> None:
        """Send messages in requests of many; one that is throttled may come behind its neighbours."""
        for request in requests_of(messages, AT_ONCE, REQUEST_BYTES):
            keys = [f"{self._prefix}{message.id}"[:LONGEST_KEY] for message in request]
            self._backend.put(
                [{"Data": one.value or b"", "PartitionKey": key} for one, key in zip(request, keys, strict=True)]
            )

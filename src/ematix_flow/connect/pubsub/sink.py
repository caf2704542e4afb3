"""Topics of Google Pub/Sub as targets of streams: every message has its id as an attribute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ematix_flow.connect.base.sink import ID_HEADER
from ematix_flow.connect.broker.acknowledged_sink import ConfirmedSink, requests_of
from ematix_flow.connect.pubsub.client import AT_ONCE, REQUEST_BYTES, PubSubBackend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.connect.base.sink import OutgoingMessage
    from ematix_flow.declare.connection.brokers import PubSubConnection


class PubSubSink(ConfirmedSink):
    """One topic."""

    kind: ClassVar[str] = "pubsub"

    def __init__(self, connection: PubSubConnection, topic: str, guarantee: str) -> None:
        del guarantee
        self._backend = PubSubBackend.open(
            connection.project_id, endpoint=connection.endpoint, anonymous_auth=connection.anonymous_auth
        )
        self._topic = topic

    @property
    def address(self) -> str:
        """Return the topic with its project."""
        return self._backend.qualified("topics", self._topic)

    def probe(self) -> None:
        """Refuse a topic that is not there."""
        self._backend.probe(self._topic)

    def send(self, messages: Sequence[OutgoingMessage]) -> None:
        """Send messages request after request, each when the one before is accepted."""
        for request in requests_of(messages, AT_ONCE, REQUEST_BYTES):
            self._backend.publish(self._topic, [_published(message) for message in request])


def _published(message: OutgoingMessage) -> dict[str, Any]:
    return {"data": message.value or b"", "attributes": {ID_HEADER: message.id, **dict(message.headers)}}

"""Subscriptions of Pub/Sub as sources of streams, pulled into a spool; it makes no topic and no subscription."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any, ClassVar

from ematix_flow.connect.pubsub.client import clients, talking
from ematix_flow.connect.spool.log import QueueMessage
from ematix_flow.connect.spool.receiver import Broker
from ematix_flow.connect.spool.source import SpooledSource, metadata_columns
from ematix_flow.errors import RunError

if TYPE_CHECKING:
    from ematix_flow.connect.base.columns import SourceColumn
    from ematix_flow.declare.connection.brokers import PubSubConnection

AT_ONCE = 1_000
"""Messages that are pulled or let go in one request."""

MAX_UNACKED = 5_000
"""Messages that are held while there is no room for them; more are not pulled."""

PULL = 2.0
"""Seconds that a pull waits for messages; a shorter one would leave some on their way."""

ACK_DEADLINE_SECONDS = 60
"""Seconds for which messages that are held are requested again and again."""


class PubSubSource(SpooledSource):
    """One subscription."""

    kind: ClassVar[str] = "pubsub"
    queue_column: ClassVar[str] = "_subscription"
    columns: ClassVar[tuple[SourceColumn, ...]] = metadata_columns("_subscription")
    quiet: ClassVar[float] = 2 * PULL

    def __init__(self, connection: PubSubConnection, query: str) -> None:
        super().__init__(connection.name, query)
        self._connection = connection

    @property
    def address(self) -> str:
        """Return endpoint and project."""
        return f"{self._connection.endpoint or ''}/{self._connection.project_id}"

    def broker(self) -> Broker:
        """Return a subscriber."""
        return _Subscriber(self._connection, self.query)


class _Subscriber(Broker):
    """A subscription that is pulled."""

    gathers = True

    def __init__(self, connection: PubSubConnection, subscription: str) -> None:
        self._described = connection
        bare = "/" not in subscription
        self._name = f"projects/{connection.project_id}/subscriptions/{subscription}" if bare else subscription
        self._client: Any = None
        self._held: list[str] = []
        self._prolonged = 0.0

    def open(self) -> None:
        """Make sure that the subscription is there."""
        from google.api_core.exceptions import NotFound

        emulator = "" if self._described.endpoint else os.environ.get("PUBSUB_EMULATOR_HOST", "")
        endpoint, self._held = self._described.endpoint or emulator, []
        _, self._client = clients(endpoint, anonymous=self._described.anonymous_auth or bool(emulator))
        with talking():
            try:
                self._client.get_subscription(subscription=self._name, timeout=30)
            except NotFound:
                message = f"there is no subscription {self._name!r}"
                raise RunError(message, hint=f"create it; the connection is {self._described.name!r}.") from None

    def receive(self, seconds: float) -> list[QueueMessage]:
        """Pull; while too many messages are held, only see to it that they stay ours."""
        from google.api_core.exceptions import DeadlineExceeded

        if self._held:
            self._prolong()
        if len(self._held) >= MAX_UNACKED:
            time.sleep(seconds)
            return []
        with talking():
            try:
                received = self._client.pull(
                    {"subscription": self._name, "max_messages": AT_ONCE}, timeout=PULL, retry=None
                ).received_messages
            except DeadlineExceeded:
                return []
        self._held += [one.ack_id for one in received]
        return [_message(one.message) for one in received]

    def accept(self) -> None:
        """Let the service forget everything that was given."""
        for at in range(0, len(self._held), AT_ONCE):
            with talking():
                self._client.acknowledge(subscription=self._name, ack_ids=self._held[at : at + AT_ONCE], timeout=30)
        self._held = []

    def close(self) -> None:
        """Let go of the connection; what is held comes again after a while."""
        if self._client is not None:
            self._client.transport.close()
        self._client = None

    def _prolong(self) -> None:
        if time.monotonic() - self._prolonged < ACK_DEADLINE_SECONDS / 6:
            return
        self._prolonged = time.monotonic()
        for at in range(0, len(self._held), AT_ONCE):
            with talking():
                self._client.modify_ack_deadline(
                    subscription=self._name,
                    ack_ids=self._held[at : at + AT_ONCE],
                    ack_deadline_seconds=ACK_DEADLINE_SECONDS,
                    timeout=30,
                )


def _message(message: Any) -> QueueMessage:
    headers = json.dumps(dict(message.attributes), ensure_ascii=False) if message.attributes else None
    at = int(message.publish_time.timestamp() * 1_000_000) if message.publish_time else int(time.time() * 1_000_000)
    return QueueMessage(message.data, message.ordering_key or None, headers, at, message.message_id)

"""Topics of Google Pub/Sub as targets of streams: every message has its id as an attribute, and is waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ematix_flow.connect.confirmed_sink import ConfirmedSink
from ematix_flow.connect.sinks import ID_HEADER
from ematix_flow.errors import RunError, TransientError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.connect.sinks import Message
    from ematix_flow.declare.connection_streams import PubSubConnection

PATIENCE = 60.0
"""Seconds that a message has to be taken."""

AT_ONCE = 1000
"""Messages that are on their way at the same time."""


class PubSubSink(ConfirmedSink):
    """One topic."""

    kind: ClassVar[str] = "pubsub"

    def __init__(self, connection: PubSubConnection, place: str, guarantee: str) -> None:
        del guarantee
        self._connection = connection
        self._topic = place if place.startswith("projects/") else f"projects/{connection.project_id}/topics/{place}"
        self._client: Any = None

    @property
    def place(self) -> str:
        """Give the topic with its project."""
        return self._topic

    def look(self) -> None:
        """Refuse a topic that is not there."""
        from google.api_core.exceptions import GoogleAPIError, NotFound

        try:
            self._publisher().get_topic(topic=self._topic, timeout=PATIENCE)
        except NotFound:
            message = f"there is no topic {self._topic!r}"
            raise RunError(message, hint="create it, or look at target_topic= of the stream.") from None
        except GoogleAPIError as error:
            raise self._away(error) from None

    def send(self, messages: Sequence[Message]) -> None:
        """Send messages and wait until all are taken."""
        from concurrent.futures import TimeoutError as TooLate

        from google.api_core.exceptions import GoogleAPIError

        client = self._publisher()
        try:
            for first in range(0, len(messages), AT_ONCE):
                sent = [
                    client.publish(self._topic, one.value or b"", **{ID_HEADER: one.id, **dict(one.headers)})
                    for one in messages[first : first + AT_ONCE]
                ]
                for future in sent:
                    future.result(PATIENCE)
        except (GoogleAPIError, TooLate) as error:
            raise self._away(error) from None

    def close(self) -> None:
        """End the connection."""
        client, self._client = self._client, None
        if client is not None:
            client.stop()
            client.transport.close()

    def _publisher(self) -> Any:
        from google.api_core.client_options import ClientOptions
        from google.auth.credentials import AnonymousCredentials
        from google.cloud.pubsub_v1 import PublisherClient

        if self._client is None:
            given: dict[str, Any] = {}
            if self._connection.anonymous_auth:
                given["credentials"] = AnonymousCredentials()  # type: ignore[no-untyped-call]
            if self._connection.endpoint:
                given["client_options"] = ClientOptions(api_endpoint=self._connection.endpoint)
            self._client = PublisherClient(**given)
        return self._client

    def _away(self, error: Exception) -> TransientError:
        return TransientError(f"Pub/Sub did not take messages for {self._topic!r}: {type(error).__name__}: {error}")

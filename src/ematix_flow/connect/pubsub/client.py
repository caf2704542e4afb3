"""Pub/Sub without a plan: subscriptions are pulled and topics are written; what is not let go in time comes again."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.broker.client import Backend, Limits, missing, payloads_of
from ematix_flow.errors import DeclareError, RunError, TransientError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

AT_ONCE = 500
REQUEST_BYTES = 4 << 20
_SECONDS = 30.0
_PING_SECONDS = 5.0


class PubSubBackend(Backend):
    """The topics and subscriptions of one project."""

    def __init__(self, project: str, limits: Limits, endpoint: str, *, anonymous: bool) -> None:
        super().__init__(limits)
        if not project:
            raise DeclareError("a Pub/Sub backend needs a project_id")
        self._project = project
        self._publisher, self._subscriber = clients(endpoint, anonymous=anonymous)
        self._subscription = ""
        self._pending: list[str] = []
        self._received: list[str] = []

    @classmethod
    def open(
        cls,
        project_id: str,
        *,
        endpoint: str | None = None,
        anonymous_auth: bool = False,
        batch_size: int | None = None,
        batch_bytes: int | None = None,
        idle_timeout_ms: int | None = None,
    ) -> PubSubBackend:
        """Return the backend; without an endpoint the one of PUBSUB_EMULATOR_HOST is used, or else Google's."""
        emulator = "" if endpoint else os.environ.get("PUBSUB_EMULATOR_HOST", "")
        limits = Limits.of(batch_size, batch_bytes, idle_timeout_ms)
        return cls(project_id, limits, endpoint or emulator, anonymous=anonymous_auth or bool(emulator))

    def ping(self) -> None:
        """Check that the service answers and lets us in."""
        with talking():
            request = {"project": f"projects/{self._project}"}
            next(iter(self._publisher.list_topics(request, timeout=_PING_SECONDS, retry=None)), None)

    def write_arrow_stream(self, dest: str, batches: Iterable[pa.RecordBatch]) -> int:
        """Send every row to a topic and come back when the service has them all."""
        count = 0
        waiting: list[dict[str, Any]] = []
        for batch in batches:
            for payload in payloads_of(batch, self._format):
                full = sum(len(one["data"]) for one in waiting) + len(payload) > REQUEST_BYTES
                if len(waiting) == AT_ONCE or (full and waiting):
                    self.publish(dest, waiting)
                    waiting = []
                waiting.append({"data": payload})
                count += 1
        if waiting:
            self.publish(dest, waiting)
        return count

    def probe(self, dest: str) -> None:
        """Refuse a topic that is not there."""
        with talking():
            self._publisher.get_topic(topic=self.qualified("topics", dest), timeout=_SECONDS)

    def publish(self, dest: str, messages: Sequence[dict[str, Any]]) -> None:
        """Send messages by one request and come back when the service has them."""
        with talking():
            self._publisher.publish(topic=self.qualified("topics", dest), messages=messages, timeout=_SECONDS)

    def commit_offsets(self) -> None:
        """Let the service forget what was handed out."""
        for ids in _chunks(self._pending):
            with talking():
                self._subscriber.acknowledge(subscription=self._subscription, ack_ids=ids, **_retry_options())
        self._pending.clear()

    def nack_pending(self) -> None:
        """Negatively acknowledge what was handed out; the service redelivers it at once."""
        self._let_come_again(self._pending)
        self._pending.clear()

    def pending_handler_count(self) -> int:
        """Return the number of messages that were handed out and not let go."""
        return len(self._pending)

    def _receive(self, query: str, count: int, seconds: float) -> Sequence[bytes]:
        from google.api_core.exceptions import DeadlineExceeded

        name = self.qualified("subscriptions", query)
        if self._pending and name != self._subscription:
            raise RunError("another subscription was read and is not committed yet")
        self._subscription = name
        request = {"subscription": name, "max_messages": count}
        with talking():
            try:
                messages = self._subscriber.pull(request, timeout=seconds, retry=None).received_messages
            except DeadlineExceeded:
                return []
        self._received += [one.ack_id for one in messages]
        return [one.message.data for one in messages]

    def _hand_out(self) -> None:
        self._pending += self._received
        self._received.clear()

    def _requeue(self) -> None:
        self._let_come_again(self._received)
        self._received.clear()

    def _let_come_again(self, ids: Sequence[str]) -> None:
        for chunk in _chunks(ids):
            request = {"subscription": self._subscription, "ack_ids": chunk, "ack_deadline_seconds": 0}
            with talking():
                self._subscriber.modify_ack_deadline(request, **_retry_options())

    def qualified(self, kind: str, name: str) -> str:
        """Return the full name of a topic or a subscription."""
        return name if name.startswith("projects/") else f"projects/{self._project}/{kind}/{name}"


def _chunks(ids: Sequence[str]) -> Iterator[list[str]]:
    for start in range(0, len(ids), AT_ONCE):
        yield list(ids[start : start + AT_ONCE])


def _retry_options() -> dict[str, Any]:
    """Return how long a request is tried; left to itself the client tries it for ten minutes."""
    from google.api_core.retry import Retry

    return {"timeout": _SECONDS, "retry": Retry(timeout=_SECONDS)}


@contextmanager
def talking() -> Iterator[None]:
    """Turn the errors of the service into ours: an answer is final, silence is not."""
    from google.api_core.exceptions import GoogleAPICallError, RetryError, ServerError

    try:
        yield
    except (ServerError, RetryError) as error:
        raise TransientError(f"Pub/Sub does not answer: {error}") from None
    except GoogleAPICallError as error:
        raise RunError(f"Pub/Sub refuses: {error.message}") from None


def clients(endpoint: str, *, anonymous: bool) -> tuple[Any, Any]:
    """Return a client for topics and one for subscriptions; without a login the connection is not encrypted."""
    try:
        import grpc
        from google.auth.exceptions import DefaultCredentialsError
        from google.pubsub_v1 import PublisherClient, SubscriberClient
    except ModuleNotFoundError:
        raise missing("Pub/Sub", "google-cloud-pubsub", "pubsub") from None
    if anonymous:
        if not endpoint:
            raise DeclareError("anonymous_auth needs the endpoint of an emulator")
        from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
        from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

        channel = grpc.insecure_channel(endpoint.removeprefix("http://"))
        writing, reading = PublisherGrpcTransport(channel=channel), SubscriberGrpcTransport(channel=channel)
        return PublisherClient(transport=writing), SubscriberClient(transport=reading)
    options = {"api_endpoint": endpoint} if endpoint else None
    try:
        return PublisherClient(client_options=options), SubscriberClient(client_options=options)
    except DefaultCredentialsError as error:
        raise DeclareError(f"Pub/Sub has no login here: {error}") from None

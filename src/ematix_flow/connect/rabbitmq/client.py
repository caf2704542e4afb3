"""RabbitMQ without a plan: queues are read message by message and written with confirms."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.broker.client import Backend, Limits, missing, payloads_of
from ematix_flow.errors import DeclareError, RunError, TransientError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

_PAUSE = 0.02
LASTING = 2
"""AMQP's word for a message that outlives the broker."""


class RabbitMQBackend(Backend):
    """One connection with a channel, made when it is first needed."""

    def __init__(self, amqp_url: str, limits: Limits, consumer_tag: str = "") -> None:
        super().__init__(limits)
        self._pika = require_pika()
        try:
            self._parameters = self._pika.URLParameters(amqp_url)
        except (ValueError, TypeError, KeyError):
            raise DeclareError("amqp_url is no address such as amqp://user:password@host:5672/%2F") from None
        if consumer_tag:
            self._parameters.client_properties = {"connection_name": consumer_tag}
        self._channel: Any = None
        self._received: list[int] = []
        self._pending: list[int] = []

    @classmethod
    def open(
        cls,
        amqp_url: str,
        *,
        consumer_tag: str | None = None,
        batch_size: int | None = None,
        batch_bytes: int | None = None,
        idle_timeout_ms: int | None = None,
    ) -> RabbitMQBackend:
        """Return the backend; the broker is not contacted yet. The tag names the connection in the broker's tools."""
        return cls(amqp_url, Limits.of(batch_size, batch_bytes, idle_timeout_ms), consumer_tag or "")

    def ping(self) -> None:
        """Check that the broker answers and lets us in."""
        with self._talking() as channel:
            channel.connection.process_data_events(0)

    def write_arrow_stream(self, dest: str, batches: Iterable[pa.RecordBatch]) -> int:
        """Send every row to a queue that is there, and come back when the broker has stored them."""
        lasting = self._pika.BasicProperties(delivery_mode=LASTING)
        count = 0
        with self._talking() as channel:
            sending = channel.connection.channel()
            sending.confirm_delivery()
            for batch in batches:
                for payload in payloads_of(batch, self._format):
                    sending.basic_publish("", dest, payload, lasting, mandatory=True)
                    count += 1
            sending.close()
        return count

    def commit_offsets(self) -> None:
        """Let the broker forget what was handed out."""
        if self._pending:
            with self._talking() as channel:
                channel.basic_ack(self._pending[-1], multiple=True)
            self._pending.clear()

    def nack_pending(self, requeue: bool = True) -> None:  # noqa: FBT001, FBT002 - the public contract
        """Reject what was handed out; without `requeue` the broker drops it or moves it to its dead letters."""
        if self._pending:
            with self._talking() as channel:
                channel.basic_nack(self._pending[-1], multiple=True, requeue=requeue)
            self._pending.clear()

    def pending_delivery_count(self) -> int:
        """Return the number of messages that were handed out and not let go."""
        return len(self._pending)

    def close(self) -> None:
        """End the connection; what was not let go comes again."""
        channel, self._channel = self._channel, None
        if channel is not None and channel.connection.is_open:
            channel.connection.close()

    def _receive(self, query: str, count: int, seconds: float) -> Sequence[bytes]:
        payloads: list[bytes] = []
        end = time.monotonic() + seconds
        with self._talking() as channel:
            while len(payloads) < count:
                method, _, body = channel.basic_get(query)
                if method is not None:
                    self._received.append(method.delivery_tag)
                    payloads.append(body)
                elif payloads or time.monotonic() > end:
                    break
                else:
                    channel.connection.sleep(_PAUSE)
        return payloads

    def _hand_out(self) -> None:
        self._pending += self._received
        self._received.clear()

    def _requeue(self) -> None:
        with self._talking() as channel:
            for tag in self._received:
                channel.basic_nack(tag, requeue=True)
        self._received.clear()

    @contextmanager
    def _talking(self) -> Iterator[Any]:
        """Return the channel; after an error it is created anew, and the broker delivers what it held again."""
        errors = self._pika.exceptions
        try:
            if self._channel is None:
                self._channel = self._pika.BlockingConnection(self._parameters).channel()
            yield self._channel
        except errors.AMQPError as error:
            self._channel, self._received, self._pending = None, [], []
            raise translate_error(error, errors) from None


def translate_error(error: Any, errors: Any) -> RunError:
    """Return the error for people: a refusal is final, a connection that is lost is not."""
    text = str(error) or type(error).__name__
    refused = (errors.ProbableAuthenticationError, errors.AuthenticationError, errors.ProbableAccessDeniedError)
    if isinstance(error, refused):
        return RunError(f"RabbitMQ refuses the login: {text}", hint="check user, password and vhost of amqp_url.")
    if isinstance(error, errors.UnroutableError):
        return RunError("RabbitMQ has no queue of that name")
    if isinstance(error, errors.AMQPConnectionError):
        return TransientError(f"RabbitMQ is away: {text}")
    return RunError(f"RabbitMQ refuses: {text}")


def require_pika() -> Any:
    """Return the client package, or an error with the command that installs it."""
    try:
        import pika
        import pika.exceptions
    except ModuleNotFoundError:
        raise missing("RabbitMQ", "pika", "rabbitmq") from None
    return pika

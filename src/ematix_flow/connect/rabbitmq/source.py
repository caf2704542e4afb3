"""Queues of RabbitMQ as sources of streams, received by pika; it declares and binds no queue."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, ClassVar

from ematix_flow.connect.base.event_time import LAST_MS
from ematix_flow.connect.spool.log import QueueMessage
from ematix_flow.connect.spool.receiver import Broker
from ematix_flow.connect.spool.source import SpooledSource, metadata_columns
from ematix_flow.errors import RunError, TransientError

if TYPE_CHECKING:
    from ematix_flow.connect.base.columns import SourceColumn
    from ematix_flow.declare.connection.brokers import RabbitMQConnection

MAX_UNACKED = 5_000
"""Messages that the broker sends before the first of them is acknowledged."""

_FORBIDDEN, _MISSING = 403, 404


class RabbitMQSource(SpooledSource):
    """One queue."""

    kind: ClassVar[str] = "rabbitmq"
    queue_column: ClassVar[str] = "_queue"
    columns: ClassVar[tuple[SourceColumn, ...]] = metadata_columns("_queue")

    def __init__(self, connection: RabbitMQConnection, query: str) -> None:
        super().__init__(connection.name, query)
        self._connection = connection

    @property
    def address(self) -> str:
        """Return host, port and virtual host, as far as they are written out."""
        return self._connection.amqp_url.rpartition("@")[2].removeprefix("amqp://").removeprefix("amqps://")

    def broker(self) -> Broker:
        """Return a consumer of the queue."""
        return _Consumer(self._connection, self.query)


def _decoded(value: Any) -> str:
    """Return as text what a publisher may have written as any bytes."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


class _Consumer(Broker):
    """A consumer of one queue; pika is used by the thread that opened it."""

    def __init__(self, connection: RabbitMQConnection, queue: str) -> None:
        self._described = connection
        self._queue = queue
        self._connection: Any = None
        self._channel: Any = None
        self._messages: list[QueueMessage] = []
        self._newest = 0

    def open(self) -> None:
        """Connect and consume."""
        import pika
        from pika.exceptions import AMQPError

        try:
            parameters = pika.URLParameters(self._described.amqp_url)
        except (ValueError, TypeError):
            message = f"rabbitmq connection {self._described.name!r} has an amqp_url that cannot be read"
            raise RunError(message, hint="it is written like amqp://user:password@host:5672/vhost.") from None
        self._messages, self._newest = [], 0
        tag = self._described.consumer_tag
        try:
            self._connection = pika.BlockingConnection(parameters)
            self._channel = self._connection.channel()
            self._channel.basic_qos(prefetch_count=MAX_UNACKED)
            self._channel.basic_consume(self._queue, self._take, **({"consumer_tag": tag} if tag else {}))
        except (AMQPError, OSError) as error:
            raise self._translate_error(error) from None

    def receive(self, seconds: float) -> list[QueueMessage]:
        """Return what came, and answer the broker's heartbeats."""
        from pika.exceptions import AMQPError

        try:
            self._connection.process_data_events(time_limit=seconds)
        except (AMQPError, OSError) as error:
            raise self._translate_error(error) from None
        if not self._channel.is_open or self._channel.consumer_tags == []:
            raise TransientError(f"RabbitMQ gives no more messages of {self._queue!r}: the queue or its node went away")
        messages, self._messages = self._messages, []
        return messages

    def accept(self) -> None:
        """Acknowledge everything up to the newest message that was given."""
        from pika.exceptions import AMQPError

        try:
            self._channel.basic_ack(self._newest, multiple=True)
        except (AMQPError, OSError) as error:
            raise self._translate_error(error) from None

    def close(self) -> None:
        """Close the connection, with what is still to be sent."""
        from pika.exceptions import AMQPError

        try:
            if self._connection is not None and self._connection.is_open:
                self._connection.close()
        except (AMQPError, OSError):
            return
        finally:
            self._connection = self._channel = None

    def _take(self, _channel: Any, delivery: Any, properties: Any, body: bytes) -> None:
        # A publisher that means milliseconds names a year that no calendar has.
        known = 0 < (properties.timestamp or 0) <= LAST_MS / 1000
        at = int((properties.timestamp if known else time.time()) * 1_000_000)
        headers = json.dumps(properties.headers, default=_decoded, ensure_ascii=False) if properties.headers else None
        key, name = _decoded(delivery.routing_key), properties.message_id
        message = QueueMessage(body, key, headers, at, None if name is None else _decoded(name))
        self._messages.append(message)
        self._newest = delivery.delivery_tag

    def _translate_error(self, error: BaseException) -> RunError:
        """Return the error for people; a refusal by the broker does not pass by itself."""
        from pika.exceptions import (
            AuthenticationError,
            ChannelClosedByBroker,
            ConnectionClosedByBroker,
            ProbableAccessDeniedError,
            ProbableAuthenticationError,
        )

        name = self._described.name
        code = getattr(error, "reply_code", 0) if isinstance(error, ChannelClosedByBroker) else 0
        if code == _MISSING:
            return RunError(f"there is no queue {self._queue!r}", hint=f"declare it; the connection is {name!r}.")
        if code == _FORBIDDEN or isinstance(
            error, AuthenticationError | ProbableAuthenticationError | ProbableAccessDeniedError
        ):
            return RunError(f"RabbitMQ refuses to let {name!r} read queue {self._queue!r}", hint="check its login.")
        what = getattr(error, "reply_text", "") if isinstance(error, ConnectionClosedByBroker) else ""
        return TransientError(f"RabbitMQ at {name!r} cannot be reached: {what or type(error).__name__}")

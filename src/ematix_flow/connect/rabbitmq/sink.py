"""Queues of RabbitMQ as targets of streams: persistent messages, each confirmed; one that no queue takes is an error."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar

from ematix_flow.connect.broker.acknowledged_sink import ConfirmedSink
from ematix_flow.connect.rabbitmq.client import LASTING, require_pika, translate_error
from ematix_flow.errors import RunError, TransientError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ematix_flow.connect.base.sink import OutgoingMessage
    from ematix_flow.declare.connection.brokers import RabbitMQConnection

NOT_FOUND = 404


class RabbitMQSink(ConfirmedSink):
    """One queue, reached by the default exchange."""

    kind: ClassVar[str] = "rabbitmq"

    def __init__(self, connection: RabbitMQConnection, queue: str, guarantee: str) -> None:
        del guarantee
        self._pika = require_pika()
        self._name, self._queue = connection.name, queue
        self._parameters = self._pika.URLParameters(connection.amqp_url)
        self._channel: Any = None

    @property
    def address(self) -> str:
        """Return the queue and where it is."""
        to = self._parameters
        return f"{to.host}:{to.port}/{to.virtual_host}/{self._queue}"

    def probe(self) -> None:
        """Refuse a queue that is not there."""
        with self._talking() as channel:
            channel.queue_declare(self._queue, passive=True)

    def send(self, messages: Sequence[OutgoingMessage]) -> None:
        """Send messages one by one, each when the one before is confirmed."""
        with self._talking() as channel:
            for message in messages:
                channel.basic_publish("", self._queue, message.value or b"", self._properties(message), mandatory=True)

    def close(self) -> None:
        """End the connection."""
        channel, self._channel = self._channel, None
        if channel is not None and channel.connection.is_open:
            with suppress(self._pika.exceptions.AMQPError):
                channel.connection.close()

    @contextmanager
    def _talking(self) -> Iterator[Any]:
        """Return the channel, on which every message is confirmed; after an error it is made anew."""
        errors = self._pika.exceptions
        try:
            if self._channel is None:
                self._channel = self._pika.BlockingConnection(self._parameters).channel()
                self._channel.confirm_delivery()
            yield self._channel
        except errors.AMQPError as error:
            self.close()
            raise self._translate_error(error) from None

    def _translate_error(self, error: Any) -> RunError:
        errors = self._pika.exceptions
        is_missing = isinstance(error, errors.ChannelClosedByBroker) and error.reply_code == NOT_FOUND
        if is_missing or isinstance(error, errors.UnroutableError):
            message = f"there is no queue {self._queue!r}"
            hint = f"create it, or check target_queue= of the stream; the connection is {self._name!r}."
            return RunError(message, hint=hint)
        if isinstance(error, errors.NackError):
            message = f"queue {self._queue!r} refused a message"
            return TransientError(message, hint="it may be full (x-max-length with reject-publish).")
        return translate_error(error, errors)

    def _properties(self, message: OutgoingMessage) -> Any:
        return self._pika.BasicProperties(message_id=message.id, delivery_mode=LASTING, headers=dict(message.headers))

"""Queues of RabbitMQ as targets of streams: persistent messages, each confirmed; one that no queue takes is an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ematix_flow.connect.confirmed_sink import ConfirmedSink
from ematix_flow.errors import RunError, TransientError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.connect.sinks import Message
    from ematix_flow.declare.connection_streams import RabbitMQConnection

PERSISTENT = 2
NOT_FOUND = 404


class RabbitMQSink(ConfirmedSink):
    """One queue, reached by the default exchange."""

    kind: ClassVar[str] = "rabbitmq"

    def __init__(self, connection: RabbitMQConnection, place: str, guarantee: str) -> None:
        del guarantee
        import pika

        self._name, self._queue = connection.name, place
        self._parameters = pika.URLParameters(connection.amqp_url)
        self._connection: Any = None
        self._channel: Any = None

    @property
    def place(self) -> str:
        """Give the queue and where it is."""
        to = self._parameters
        return f"{to.host}:{to.port}/{to.virtual_host}/{self._queue}"

    def look(self) -> None:
        """Refuse a queue that is not there."""
        from pika.exceptions import AMQPError, ChannelClosedByBroker

        try:
            self._open().queue_declare(self._queue, passive=True)
        except ChannelClosedByBroker as error:
            self.close()
            if error.reply_code != NOT_FOUND:
                raise self._away(error) from None
            message = f"there is no queue {self._queue!r}"
            raise RunError(
                message, hint=f"create it, or look at target_queue= of the stream; asked {self._name!r}."
            ) from None
        except AMQPError as error:
            raise self._away(error) from None

    def send(self, messages: Sequence[Message]) -> None:
        """Send messages one by one, each when the one before is confirmed."""
        from pika.exceptions import AMQPError, NackError, UnroutableError

        try:
            channel = self._open()
            for message in messages:
                channel.basic_publish("", self._queue, message.value or b"", _properties(message), mandatory=True)
        except UnroutableError:
            refused = f"queue {self._queue!r} is gone: RabbitMQ gave a message back"
            raise RunError(refused, hint="create it again; the stream goes on where it stood.") from None
        except NackError:
            refused = f"queue {self._queue!r} refused a message"
            raise TransientError(refused, hint="it may be full (x-max-length with reject-publish).") from None
        except AMQPError as error:
            raise self._away(error) from None

    def close(self) -> None:
        """End the connection."""
        from pika.exceptions import AMQPError

        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None and connection.is_open:
            try:
                connection.close()
            except AMQPError:
                return

    def _open(self) -> Any:
        """Give the channel, on which every message is confirmed."""
        import pika

        if self._channel is None or not self._channel.is_open:
            self.close()
            self._connection = pika.BlockingConnection(self._parameters)
            self._channel = self._connection.channel()
            self._channel.confirm_delivery()
        return self._channel

    def _away(self, error: Exception) -> TransientError:
        self.close()
        # The text of an error may hold the address with its password.
        return TransientError(f"RabbitMQ of connection {self._name!r} cannot be reached: {type(error).__name__}")


def _properties(message: Message) -> Any:
    import pika

    return pika.BasicProperties(
        message_id=message.id, delivery_mode=PERSISTENT, headers=dict(message.headers), content_type="application/json"
    )

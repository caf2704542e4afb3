"""Kafka topics as targets of streams: the messages of a batch and the position behind them are one transaction.

A reader with `isolation.level=read_committed` sees each message once, whatever crashes: a process that starts takes
over the transactional id, which ends what an older one left open, and goes on from the position that was committed.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar

from ematix_flow.connect.base.cancellation import unwatched
from ematix_flow.connect.base.retry import KAFKA_COMMIT, attempts
from ematix_flow.connect.base.sink import EXACTLY_ONCE, ID_HEADER, Sink
from ematix_flow.connect.base.stream_source import refuse_other_source
from ematix_flow.connect.kafka.cluster import refuse_missing
from ematix_flow.connect.kafka.offsets import TIMEOUT_SECONDS, TOPIC, CommittedPosition, KafkaPositions
from ematix_flow.connect.kafka.settings import LARGEST_MESSAGE, client_settings
from ematix_flow.errors import FencedError, RunError, TransientError
from ematix_flow.failpoints import failpoint
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import KafkaError, Producer

    from ematix_flow.connect.base.sink import OutgoingMessage, SinkCheckpointKey
    from ematix_flow.connect.base.stream_source import Position
    from ematix_flow.declare.connection.brokers import KafkaConnection

TRANSACTION_SECONDS = 45
"""After this the brokers end a transaction whose process is silent, so that readers do not wait for it longer."""

ANYWHERE = -1
"""The partition that a message's key means."""

_SENDING = {
    "enable.idempotence": True,
    "linger.ms": 20,
    "delivery.report.only.error": True,
    "queue.buffering.max.messages": 500_000,
    "message.max.bytes": LARGEST_MESSAGE,
    "log_level": 0,  # every call reports its errors
}


class KafkaSink(Sink):
    """One topic."""

    kind: ClassVar[str] = "kafka"

    def __init__(self, connection: KafkaConnection, topic: str, guarantee: str) -> None:
        self.guarantee = guarantee
        self._name, self._topic = connection.name, topic
        self._settings = client_settings(connection)
        self._positions = KafkaPositions(self._settings)
        self._owner, self._owns_topic = uuid.uuid4().hex, False
        self._producer: Producer | None = None
        self._failed: list[KafkaError] = []

    @property
    def address(self) -> str:
        """Return the topic; positions are stored in its own cluster."""
        return self._topic

    def position(self, checkpoint_key: SinkCheckpointKey) -> Position | None:
        """Return how far a stream has come, as its last transaction recorded."""
        return _position(checkpoint_key, self._positions.last(self._key(checkpoint_key)))

    def take_over(self, checkpoint_key: SinkCheckpointKey) -> Position | None:
        """Take over the topic for a stream, and return how far that has come."""
        position = _position(checkpoint_key, self._begin_anew(checkpoint_key))
        if self.guarantee == EXACTLY_ONCE:
            self._sent(checkpoint_key, CommittedPosition(checkpoint_key.source, position, position, self._owner), ())
            self._owns_topic = True
        return position

    def remember(self, checkpoint_key: SinkCheckpointKey, position: Position) -> None:
        """Move the position without messages; a process that runs the stream meanwhile is fenced off."""
        self._start(checkpoint_key)
        self._sent(checkpoint_key, CommittedPosition(checkpoint_key.source, position, None, self._owner), ())

    def write(
        self, checkpoint_key: SinkCheckpointKey, before: Position, after: Position, messages: Sequence[OutgoingMessage]
    ) -> None:
        """Send messages and the position behind them."""
        self._sent(checkpoint_key, CommittedPosition(checkpoint_key.source, after, before, self._owner), messages)

    def close(self) -> None:
        """Forget the connection, which ends it; a transaction that is open is not committed."""
        self._producer, self._failed = None, []

    def _begin_anew(self, checkpoint_key: SinkCheckpointKey) -> CommittedPosition | None:
        """Start a producer anew, and return what was committed last."""
        self._start(checkpoint_key)
        return self._positions.last(self._key(checkpoint_key))

    def _start(self, checkpoint_key: SinkCheckpointKey) -> None:
        """Start a producer, which ends the transaction of any other one."""
        from confluent_kafka import KafkaException, Producer

        self.close()
        settings = _SENDING | self._settings
        if self.guarantee == EXACTLY_ONCE:
            settings |= {
                "transactional.id": f"ematix-flow/{self._key(checkpoint_key)}",
                "transaction.timeout.ms": TRANSACTION_SECONDS * 1000,
            }
        failed = self._failed  # not self: the producer has to end with the last that knows it
        settings |= {"on_delivery": lambda error, _: failed.append(error)}
        self._producer = Producer(settings)
        try:
            hint = f"create it, or check target_topic= of the stream; the connection is {self._name!r}."
            refuse_missing(self._producer, self._topic, hint)
            if self.guarantee == EXACTLY_ONCE:
                self._producer.init_transactions(TRANSACTION_SECONDS)
        except KafkaException as error:
            raise self._refusal(error.args[0]) from None

    def _key(self, checkpoint_key: SinkCheckpointKey) -> str:
        return f"{checkpoint_key.name}/{self._topic}"

    def _sent(
        self, checkpoint_key: SinkCheckpointKey, committed: CommittedPosition, messages: Sequence[OutgoingMessage]
    ) -> None:
        from confluent_kafka import KafkaException

        try:
            if self.guarantee == EXACTLY_ONCE:
                self._send_together(checkpoint_key, committed, messages)
            else:
                self._send_in_turn(checkpoint_key, committed, messages)
        except KafkaException as error:
            self._judge(checkpoint_key, committed, error.args[0])
        except SystemError as error:
            # The client reports failed messages while it raises why they failed, which Python does not let pass.
            if not isinstance(error.__cause__, KafkaException):
                raise
            self._judge(checkpoint_key, committed, error.__cause__.args[0])
        except BaseException:
            self._give_up()
            raise

    def _send_together(
        self, checkpoint_key: SinkCheckpointKey, committed: CommittedPosition, messages: Sequence[OutgoingMessage]
    ) -> None:
        """Send messages and position as one transaction."""
        producer = self._running()
        producer.begin_transaction()
        failpoint("sink.begun")
        for message in messages:
            self._produce(self._topic, message.value, message.key, message.headers)
        failpoint("sink.before_position")
        self._produce(TOPIC, committed.text, self._key(checkpoint_key).encode())
        self._flush()
        failpoint("sink.before_commit")
        self._commit(producer)
        failpoint("sink.after_commit")

    def _send_in_turn(
        self, checkpoint_key: SinkCheckpointKey, committed: CommittedPosition, messages: Sequence[OutgoingMessage]
    ) -> None:
        """Send messages, and the position when they are there."""
        failpoint("sink.begun")
        for message in messages:
            self._produce(self._topic, message.value, message.key, (*message.headers, (ID_HEADER, message.id)))
        self._flush()
        failpoint("sink.before_position")
        self._produce(TOPIC, committed.text, self._key(checkpoint_key).encode())
        self._flush()
        failpoint("sink.after_commit")

    def _produce(
        self, topic: str, value: bytes | None, key: bytes | None, headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        producer = self._running()
        while True:
            try:
                producer.produce(topic, value, key, 0 if topic == TOPIC else ANYWHERE, headers=list(headers))
            except BufferError:
                producer.poll(0.1)
            else:
                return

    def _flush(self) -> None:
        from confluent_kafka import KafkaException

        left = self._running().flush(TRANSACTION_SECONDS)
        if self._failed:
            raise KafkaException(self._failed[0])
        if left:
            message = f"{quantity(left, 'message')} for {self._topic!r} could not be delivered in {TRANSACTION_SECONDS} seconds"
            raise TransientError(message)

    def _commit(self, producer: Producer) -> None:
        from confluent_kafka import KafkaException

        def may_pass(error: Exception) -> bool:
            return isinstance(error, KafkaException) and bool(error.args[0].retriable())

        with unwatched():  # a commit that was sent may not be left without its answer
            for attempt in attempts(KAFKA_COMMIT, on=may_pass):
                with attempt:
                    producer.commit_transaction(TIMEOUT_SECONDS)

    def _judge(self, checkpoint_key: SinkCheckpointKey, committed: CommittedPosition, error: KafkaError) -> None:
        """Find out what an error means: a commit that happened is none, and one that did not may be tried again."""
        if _is_fenced(error) and not self._is_owner(self._positions.last(self._key(checkpoint_key))):
            raise self._fenced(checkpoint_key)
        # The transaction failed, took too long, or its outcome is unknown: a new producer ends it, and the position
        # shows it.
        last = self._begin_anew(checkpoint_key)
        if last == committed:
            return
        if self._owns_topic and not self._is_owner(last):
            raise self._fenced(checkpoint_key)
        raise self._refusal(error)

    def _is_owner(self, last: CommittedPosition | None) -> bool:
        return last is not None and last.owner == self._owner

    def _give_up(self) -> None:
        """End the transaction without its messages; a producer that cannot is not used again."""
        from confluent_kafka import KafkaException

        self._failed.clear()
        if self.guarantee == EXACTLY_ONCE and self._producer is not None:
            with suppress(KafkaException):
                self._producer.abort_transaction(TIMEOUT_SECONDS)

    def _running(self) -> Producer:
        if self._producer is None:
            message = f"the position of the stream into {self._topic!r} was not read before the write"
            raise RunError(message)
        return self._producer

    def _fenced(self, checkpoint_key: SinkCheckpointKey) -> FencedError:
        message = f"a newer run of stream {checkpoint_key.name!r} took over topic {self._topic!r}; this one may not send any more"
        return FencedError(message)

    def _refusal(self, error: KafkaError) -> RunError:
        from confluent_kafka import KafkaError as Known

        message = f"Kafka did not take messages for {self._topic!r}: {error.str()}"
        if _is_fenced(error):
            hint = f"a batch has {TRANSACTION_SECONDS} seconds; max_rows_per_batch= makes batches smaller."
            return TransientError(message, hint=hint)
        if error.code() == Known.MSG_SIZE_TOO_LARGE:
            return RunError(message, hint="raise max.message.bytes of the topic, or send smaller rows.")
        if error.code() in (Known.TOPIC_AUTHORIZATION_FAILED, Known.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
            return RunError(message, hint=f"grant the login of connection {self._name!r} what it needs.")
        return TransientError(message)


def _position(checkpoint_key: SinkCheckpointKey, last: CommittedPosition | None) -> Position | None:
    if last is None:
        return None
    refuse_other_source(checkpoint_key.name, last.source, checkpoint_key.source)
    return last.after


def _is_fenced(error: KafkaError) -> bool:
    from confluent_kafka import KafkaError as Known

    return error.code() in (Known._FENCED, Known.PRODUCER_FENCED, Known.INVALID_PRODUCER_EPOCH)  # noqa: SLF001 - its public name

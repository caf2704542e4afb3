"""A Kafka cluster: its topics, where their messages begin and end, and how far a group has come; reads no messages."""

from __future__ import annotations

import time
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from ematix_flow.connect.base.retry import KAFKA_BUSY, KAFKA_METADATA, KAFKA_TOPIC, attempts
from ematix_flow.connect.kafka.settings import client_settings
from ematix_flow.errors import MissingExtraError, RunError, TransientError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from ematix_flow.declare.connection.brokers import KafkaConnection

ANSWER_SECONDS = 30.0
PROBE_SECONDS = 3.0
_INSPECT_SECONDS = 0.3
_BUSY = frozenset({"COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "LEADER_NOT_AVAILABLE",
                   "NOT_LEADER_FOR_PARTITION"})  # fmt: skip
"""Errors of a cluster for a short time, while another broker takes over."""
_AWAY = _BUSY | {"_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_MSG_TIMED_OUT", "_RESOLVE", "REQUEST_TIMED_OUT",
                 "NETWORK_EXCEPTION", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"}  # fmt: skip
"""What may be otherwise later, without a change by the user."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it is now; one that was dropped and made again has another id."""

    name: str
    id: str
    partitions: tuple[int, ...]


class Kafka:
    """The cluster behind a connection, queried through librdkafka."""

    def __init__(self, connection: KafkaConnection, seconds: float = ANSWER_SECONDS) -> None:
        self.connection = connection
        self._seconds = seconds
        self._shared_admin = _Admin(connection, seconds)

    def probe(self) -> str:
        """Return a sentence about a cluster that answers and lets us in, within a few seconds."""
        with _Admin(self.connection, PROBE_SECONDS) as admin:
            metadata = admin.call(admin.peek)
        topics = [name for name in metadata.topics if not name.startswith("__")]
        return f"brokers: {len(metadata.brokers)}, topics: {len(topics)}"

    def topic(self, name: str) -> Topic:
        """Return a topic; one that is not there is an error that names the nearest one."""
        from confluent_kafka import KafkaError, TopicCollection

        with self._admin() as admin:
            try:
                description = admin.call(lambda client: client.describe_topics(TopicCollection([name])))[name]
            except RunError as error:
                if not _is_about(error, KafkaError.UNKNOWN_TOPIC_OR_PART):
                    raise
                known = [topic for topic in admin.call(_metadata).topics if not topic.startswith("__")]
                message = f"connection {self.connection.name!r}: there is no topic {name!r}"
                raise RunError(message, hint=did_you_mean(name, known) if known else None) from None
        return Topic(
            name, str(description.topic_id), tuple(sorted(partition.id for partition in description.partitions))
        )

    def earliest(self, topic: Topic) -> dict[int, int]:
        """Return the offset of the oldest message of each partition."""
        return self._offsets(topic, topic.partitions, _at().earliest())

    def latest(self, topic: Topic) -> dict[int, int]:
        """Return the offset after the last message of each partition whose transaction, if it has one, is decided."""
        return self._offsets(topic, topic.partitions, _at().latest())

    def since(self, topic: Topic, start: datetime) -> dict[int, int]:
        """Return the offset of the first message of each partition at or after a timestamp, else the end."""
        spec = _at().for_timestamp(int(start.timestamp() * 1000))
        offsets = self._offsets(topic, topic.partitions, spec)
        later = [partition for partition, offset in offsets.items() if offset < 0]
        return offsets | (self._offsets(topic, later, _at().latest()) if later else {})

    def publish_progress(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Commit how far a group has come, for the tools that show lag; it is never read back here.

        A group that other consumers are members of refuses it.
        """
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        partitions = [TopicPartition(topic, partition, offset) for partition, offset in sorted(offsets.items())]
        request = [ConsumerGroupTopicPartitions(group, partitions)]
        with self._admin() as admin:
            admin.call(lambda client: client.alter_consumer_group_offsets(request))

    def progress(self, group: str, topic: Topic) -> dict[int, int]:
        """Return how far a group has come in the partitions in which it has begun."""
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        partitions = [TopicPartition(topic.name, partition) for partition in topic.partitions]
        request = [ConsumerGroupTopicPartitions(group, partitions)]
        with self._admin() as admin:
            (group_offsets,) = admin.call(lambda client: client.list_consumer_group_offsets(request)).values()
        return {
            topic_partition.partition: topic_partition.offset
            for topic_partition in group_offsets.topic_partitions
            if topic_partition.offset >= 0
        }

    def _offsets(self, topic: Topic, partitions: Iterable[int], spec: Any) -> dict[int, int]:
        from confluent_kafka import IsolationLevel, TopicPartition

        request = {TopicPartition(topic.name, partition): spec for partition in partitions}
        level = IsolationLevel.READ_COMMITTED
        with self._admin() as admin:
            results = admin.call(lambda client: client.list_offsets(request, isolation_level=level))
        return {topic_partition.partition: result.offset for topic_partition, result in results.items()}

    def _admin(self) -> _Admin:
        return self._shared_admin

    def close(self) -> None:
        """Let go of the connections to brokers."""
        self._shared_admin.close()


class _Admin:
    """A client that remembers why the brokers did not answer; it stays connected, because streams query constantly."""

    def __init__(self, connection: KafkaConnection, seconds: float) -> None:
        self._connection = connection
        self._seconds = seconds
        self._errors: list[Any] = []
        self._client: Any = None

    def __enter__(self) -> Self:
        self._errors.clear()
        if self._client is not None:
            return self
        require_kafka()
        from confluent_kafka.admin import AdminClient

        waiting = {"socket.timeout.ms": int(self._seconds * 1000), "error_cb": self._errors.append, "log_level": 0}
        try:
            self._client = AdminClient(client_settings(self._connection) | waiting)
        except require_kafka().KafkaException as error:  # such as a certificate that is no file
            raise broker_error(self._connection, error) from error
        return self

    def __exit__(self, *_: object) -> None:
        """Keep the client for the next question."""

    def close(self) -> None:
        """Forget the client."""
        self._client = None

    def call(self, request: Callable[[Any], Any]) -> Any:
        """Return the answers to a question, which is put again while a broker is about to be able to answer."""
        try:
            for attempt in attempts(replace(KAFKA_BUSY, seconds=self._seconds), on=_is_busy):
                with attempt:
                    results = self._results(request(self._client))
        except (require_kafka().KafkaException, FutureTimeoutError) as error:
            self._client.poll(0)  # errors that were collected meanwhile are reported by this call only
            raise broker_error(self._connection, error, self._errors) from error
        return results

    def peek(self, client: Any) -> Any:
        """Return what the cluster is made of; a refused login, or no broker at all, fails before the deadline."""
        kafka = require_kafka()

        def may_pass(error: Exception) -> bool:
            client.poll(0)
            return isinstance(error, kafka.KafkaException) and not any(
                reported.code() in _final(kafka) for reported in self._errors
            )

        for attempt in attempts(replace(KAFKA_METADATA, seconds=self._seconds), on=may_pass):
            with attempt:
                metadata = client.list_topics(timeout=_INSPECT_SECONDS)
        return metadata

    def _results(self, futures: Any) -> Any:
        """Return the values of futures; a part that went wrong is an error."""
        if not isinstance(futures, dict):
            return futures
        results = {key: self._result(future) for key, future in futures.items()}
        for result in results.values():
            for topic_partition in getattr(result, "topic_partitions", ()):
                if topic_partition.error is not None:
                    raise require_kafka().KafkaException(topic_partition.error)
        return results

    def _result(self, future: Any) -> Any:
        """Return the value of a future; who is refused need not wait for the deadline."""
        kafka, end = require_kafka(), time.monotonic() + self._seconds
        while True:
            try:
                return future.result(_INSPECT_SECONDS)
            except FutureTimeoutError:
                self._client.poll(0)
                if time.monotonic() > end or any(error.code() in _refusals(kafka) for error in self._errors):
                    raise


def _at() -> Any:
    """Return the class whose members name a position in a partition; the package does not declare it."""
    import confluent_kafka.admin as package

    return package.OffsetSpec  # type: ignore[attr-defined]


def _metadata(client: Any) -> Any:
    return client.list_topics(timeout=PROBE_SECONDS)


def _is_busy(error: Exception) -> bool:
    kafka = require_kafka()
    return isinstance(error, kafka.KafkaException) and error.args[0].name() in _BUSY


def _is_about(error: RunError, code: int) -> bool:
    cause = error.__cause__
    return isinstance(cause, require_kafka().KafkaException) and cause.args[0].code() == code


def require_kafka() -> Any:
    """Return the client package, or an error with the command that installs it."""
    try:
        import confluent_kafka
    except ModuleNotFoundError:
        message = "Kafka needs the package 'confluent_kafka', which is not installed"
        raise MissingExtraError(message, hint='pip install "ematix-flow-spark[kafka]"') from None
    return confluent_kafka


def _final(kafka: Any) -> set[int]:
    """Return the codes after which waiting is of no use."""
    error = kafka.KafkaError
    return {error._AUTHENTICATION, error._SSL, error._ALL_BROKERS_DOWN}  # noqa: SLF001 - its public names


def _refusals(kafka: Any) -> frozenset[int]:
    """Return the codes that no retry changes."""
    return frozenset(_final(kafka) - {kafka.KafkaError._ALL_BROKERS_DOWN})  # noqa: SLF001 - its public name


def refuse_missing(client: Any, topic: str, hint: str) -> None:
    """Refuse a topic that is not there; brokers that make topics by themselves make this one now."""
    for attempt in attempts(KAFKA_TOPIC, on=(RunError,)):
        with attempt:
            if client.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic].error is not None:
                raise RunError(f"there is no topic {topic!r}", hint=hint)


def broker_error(connection: KafkaConnection, error: Any, reported: Iterable[Any] = ()) -> RunError:
    """Return the error for people; a refused login is final, a broker that is away is not."""
    kafka = require_kafka()
    first = error.args[0] if isinstance(error, kafka.KafkaException) else error
    errors = [one for one in (*reported, first) if isinstance(one, kafka.KafkaError)]
    final = _refusals(kafka)
    cause = next((one for one in errors if one.code() in final), errors[-1] if errors else None)
    text = cause.str() if cause is not None else "no answer in time"
    message = f"connection {connection.name!r}: {connection.bootstrap_servers}: {text}"
    if cause is not None and cause.code() in final:
        return RunError(message, hint="check the login, security_protocol and the tls_ settings of the connection.")
    return TransientError(message) if cause is None or cause.name() in _AWAY else RunError(message)

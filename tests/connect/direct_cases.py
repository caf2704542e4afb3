"""The four brokers as the tests of direct backends see them: a place to read and write, a way to send anything, a way back."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from ematix_flow._core import KafkaBackend, KinesisBackend, PubSubBackend, RabbitMQBackend
from tests.services.kinesis import create_stream
from tests.services.pubsub import PROJECT
from tests.services.s3 import KEY, REGION, SECRET

if TYPE_CHECKING:
    import pytest

    from ematix_flow.connect.broker.client import Backend


class Case(ABC):
    """One broker with something empty to read from (`source`) and write to (`dest`)."""

    source: str
    dest: str

    @abstractmethod
    def open(self, **limits: int) -> Any:
        """Return a backend; those of one case follow each other."""

    @abstractmethod
    def send(self, payload: bytes) -> None:
        """Send a message past the backend."""

    @abstractmethod
    def again(self, backend: Any) -> Backend:
        """Return the backend with which everything that was not committed comes again."""


class KafkaCase(Case):
    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._broker = request.getfixturevalue("kafka_broker")
        self.source = self.dest = self._broker.create_topic()

    def open(self, **limits: int) -> KafkaBackend:
        wait = {"idle_timeout_ms": 500} | limits
        return KafkaBackend.open(self._broker.address, group_id=f"g-{self.source}", **wait)  # type: ignore[arg-type]

    def send(self, payload: bytes) -> None:
        producer = Producer({"bootstrap.servers": self._broker.address})
        producer.produce(self.source, payload)
        assert producer.flush(30) == 0

    def again(self, backend: Any) -> Backend:
        backend.close()
        return self.open()


class RabbitMQCase(Case):
    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._server = request.getfixturevalue("rabbitmq_server")
        self.source = self.dest = self._server.create_queue()

    def open(self, **limits: int) -> RabbitMQBackend:
        return RabbitMQBackend.open(self._server.url, **({"idle_timeout_ms": 100} | limits))  # type: ignore[arg-type]

    def send(self, payload: bytes) -> None:
        channel = self._server.channel()
        channel.confirm_delivery()
        channel.basic_publish("", self.source, payload)
        channel.connection.close()

    def again(self, backend: Any) -> Backend:
        backend.nack_pending(requeue=True)
        return backend  # type: ignore[no-any-return]


class PubSubCase(Case):
    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._server = request.getfixturevalue("pubsub_server")
        self.dest, self.source = self._server.create_topic()

    def open(self, **limits: int) -> PubSubBackend:
        wait = {"idle_timeout_ms": 2000} | limits
        return PubSubBackend.open(PROJECT, endpoint=self._server.endpoint, anonymous_auth=True, **wait)  # type: ignore[arg-type]

    def send(self, payload: bytes) -> None:
        self.open().publish(self.dest, [{"data": payload}])

    def again(self, backend: Any) -> Backend:
        backend.nack_pending()
        return backend  # type: ignore[no-any-return]


class KinesisCase(Case):
    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._server = request.getfixturevalue("s3_server")
        self._stream = create_stream(self._server, shards=2)
        self.source, self.dest = "anything", f"k-{uuid.uuid4().hex[:4]}-"

    def open(self, **limits: int) -> KinesisBackend:
        login = {"region": REGION, "access_key_id": KEY, "secret_access_key": SECRET}
        polls = {"max_empty_polls": 2, "idle_poll_ms": 10} | limits
        return KinesisBackend.open(self._stream, endpoint=self._server.endpoint, **login, **polls)  # type: ignore[arg-type]

    def send(self, payload: bytes) -> None:
        self._server.client("kinesis").put_record(StreamName=self._stream, Data=payload, PartitionKey="k")

    def again(self, backend: Any) -> Backend:
        backend.reset_to_committed_offsets()
        return backend  # type: ignore[no-any-return]


CASES: dict[str, type[Any]] = {
    "kafka": KafkaCase,
    "rabbitmq": RabbitMQCase,
    "pubsub": PubSubCase,
    "kinesis": KinesisCase,
}

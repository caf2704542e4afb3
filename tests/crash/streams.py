"""Streams of the crash tests: numbered messages of a Kafka topic into one table, and what the table must hold in the end."""

from __future__ import annotations

import json
import threading
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.commit.ledger import Ledger
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.stream.stream import Stream, StreamSourceDeclaration, StreamTarget, StreamTransform
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text
from ematix_flow.plan.sql.render import native_name
from tests.crash.lakes import shown

if TYPE_CHECKING:
    from tests.crash.journey import Place

TABLE = "messages"
PARTITIONS = 3


@dataclass(frozen=True)
class Feed:
    """A topic, and how many of its messages one batch has at most."""

    address: str
    topic: str
    most: int
    sql: str = ""
    """A query over the messages, which tasks of Spark read then."""
    restart: bool = False
    """Whether the stream is tried again after errors that may pass."""
    second: str = ""
    """A second topic that the stream reads as well."""
    amqp_url: str = ""
    queue: str = ""
    """A queue of RabbitMQ that it reads as well, and where that is."""
    spool: str = ""
    """The folder in which messages of the queue wait."""

    @property
    def sources(self) -> tuple[StreamSourceDeclaration, ...]:
        """Give what the stream reads."""
        kafka = connection_from_fields(
            "feed", {"kind": "kafka", "bootstrap_servers": self.address, "group_id": "crash-tests"}
        )
        topics = [StreamSourceDeclaration(kafka, topic, topic) for topic in (self.topic, self.second) if topic]
        if not self.queue:
            return tuple(topics)
        mq = connection_from_fields("mq", {"kind": "rabbitmq", "amqp_url": self.amqp_url})
        return (*topics, StreamSourceDeclaration(mq, self.queue, self.queue))


def stream_of(place: Place, feed: Feed) -> Stream:
    """Declare the stream into the table of a place."""
    target = connection_from_fields("target", {"kind": place.kind, **place.fields})
    columns = (
        Column(BigInt(), primary_key=True, name="id"),
        Column(Text(), nullable=False, name="word"),
        # Messages of a queue have no offset.
        *(() if feed.queue else (Column(BigInt(), nullable=False, name="_offset"),)),
    )
    return Stream(
        name="crash_stream",
        sources=feed.sources,
        targets=(StreamTarget(target, write(mode="append"), Table(place.schema, TABLE, columns)),),
        idle_pause_ms=5,
        max_rows_per_batch=feed.most,
        transform=StreamTransform(sql=feed.sql or None, dialect="spark"),
    )


class Writer:
    """Writes numbered messages, some at a time, until it is told to stop; every number is written once."""

    def __init__(self, address: str, *topics: str) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "log_level": 0})
        self._topics = topics
        self._over = threading.Event()
        self.written = 0
        self._thread = threading.Thread(target=self._write, daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def write(self, count: int) -> int:
        """Write so many messages now, and give how many there are when all of them have arrived."""
        for _ in range(count):
            self._one()
        while self._producer.flush(5):
            pass
        return self.written

    def stop(self) -> int:
        """Stop, and give how many messages there are when all of them have arrived."""
        self._over.set()
        self._thread.join()
        while self._producer.flush(5):
            pass
        return self.written

    def _write(self) -> None:
        while not self._over.wait(0.02):
            for _ in range(20):
                self._one()
            self._producer.poll(0)

    def _one(self) -> None:
        value = json.dumps({"id": self.written, "word": f"word {self.written}"}).encode()
        round_, number = divmod(self.written, len(self._topics))
        self._producer.produce(self._topics[number], value, partition=round_ % PARTITIONS)
        self.written += 1


def ids_in(place: Place) -> list[int]:
    """Give the numbers that the table of a place holds."""
    database = place.opened(TABLE)
    if place.is_lake:
        return [int(row[0]) for row in shown(database, ["id"])]
    with closing(database.session()) as session:
        name = native_name(database.table_name(place.schema, TABLE), database.dialect)
        if database.find_table(session, database.table_name(place.schema, TABLE)) is None:
            return []
        return [int(row[0]) for row in session.query(f"SELECT id FROM {name}")]


def batches_in(place: Place) -> int:
    """Give how many batches the ledger of a place knows."""
    database = place.opened(TABLE)
    ledger = Ledger(database)
    with closing(database.session()) as session:
        return int(session.query(f"SELECT COUNT(*) FROM {ledger.name('ledger')}")[0][0])


def complaints(place: Place, written: int) -> list[str]:
    """Give what is lost, doubled or was never written."""
    found = Counter(ids_in(place))
    lost = [number for number in range(written) if number not in found]
    doubled = [number for number, count in found.items() if count > 1]
    strange = [number for number in found if not 0 <= number < written]
    said: list[tuple[str, list[Any]]] = [("lost", lost), ("doubled", doubled), ("never written", strange)]
    return [f"{len(numbers)} {word}: {numbers[:5]}" for word, numbers in said if numbers]

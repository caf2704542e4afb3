"""Streams of the crash tests: numbered messages of a Kafka topic into one table, and what the table must hold in the end."""

from __future__ import annotations

import json
import threading
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ematix_flow.commit.ledger import Ledger
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.pipeline.write import CHANGES, write
from ematix_flow.declare.stream.cdc import CDC
from ematix_flow.declare.stream.stream import Stream, StreamSourceDeclaration, StreamTarget, StreamTransform
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text
from ematix_flow.plan.sql.render import native_name
from tests.crash.lakes import shown

if TYPE_CHECKING:
    from tests.crash.journey import CrashTarget

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
    changes: bool = False
    """Whether the messages are changes: every number is created, updated, moved away from and deleted again."""

    @property
    def sources(self) -> tuple[StreamSourceDeclaration, ...]:
        """Return what the stream reads."""
        kafka = connection_from_fields(
            "feed", {"kind": "kafka", "bootstrap_servers": self.address, "group_id": "crash-tests"}
        )
        topics = [StreamSourceDeclaration(kafka, topic, topic) for topic in (self.topic, self.second) if topic]
        if not self.queue:
            return tuple(topics)
        mq = connection_from_fields("mq", {"kind": "rabbitmq", "amqp_url": self.amqp_url})
        return (*topics, StreamSourceDeclaration(mq, self.queue, self.queue))


def stream_of(crash_target: CrashTarget, feed: Feed) -> Stream:
    """Declare the stream into the table of a target."""
    target = connection_from_fields("target", {"kind": crash_target.kind, **crash_target.fields})
    columns = (
        Column(BigInt(), primary_key=True, name="id"),
        Column(Text(), nullable=False, name="word"),
        # Messages of a queue have no offset, and changes have none of their own.
        *(() if feed.queue or feed.changes else (Column(BigInt(), nullable=False, name="_offset"),)),
    )
    cdc = CDC() if feed.changes else None
    how = write(mode="append")
    if cdc is not None:
        how = replace(how, mode=CHANGES, spelled=CHANGES, cdc=cdc)
    return Stream(
        name="crash_stream",
        sources=feed.sources,
        targets=(StreamTarget(target, how, Table(crash_target.schema, TABLE, columns)),),
        cdc=cdc,
        idle_pause_ms=5,
        max_rows_per_batch=feed.most,
        transform=StreamTransform(sql=feed.sql or None, dialect="spark"),
    )


class Writer:
    """Writes numbered messages, some at a time, until it is told to stop; every number is written once."""

    def __init__(self, address: str, *topics: str, changes: bool = False) -> None:
        from confluent_kafka import Producer

        self._changes = changes
        self._producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "log_level": 0})
        self._topics = topics
        self._over = threading.Event()
        self.written = 0
        self._thread = threading.Thread(target=self._write, daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def write(self, count: int) -> int:
        """Write so many messages now, and return how many there are when all of them have arrived."""
        for _ in range(count):
            self._one()
        while self._producer.flush(5):
            pass
        return self.written

    def stop(self) -> int:
        """Stop, and return how many messages there are when all of them have arrived."""
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
        round_, number = divmod(self.written, len(self._topics))
        for value in changes_of(self.written) if self._changes else [row_of(self.written)]:
            message = json.dumps(value).encode()
            self._producer.produce(self._topics[number], message, partition=round_ % PARTITIONS)
        self.written += 1


def row_of(number: int) -> dict[str, Any]:
    """Return the row of a number."""
    return {"id": number, "word": f"word {number}"}


def changes_of(number: int) -> list[dict[str, Any]]:
    """Return the changes after which a number is there with its word, and another one was there and is gone."""
    away = {"id": -number - 1, "word": "away"}
    steps = [
        ("c", None, {"id": -number - 1, "word": "first"}),
        ("u", {"id": -number - 1}, {"id": number, "word": "moved"}),
        ("u", None, row_of(number)),
        ("c", None, away),
        ("d", away, None),
        ("c", None, {"id": -number - 1, "word": "again"}),
        ("d", away, None),
        # A connector that was restarted sends some again.
        ("u", None, row_of(number)),
    ]
    sequences = [0, 1, 2, 3, 4, 5, 6, 2]
    return [
        {"op": op, "before": before, "after": after, "source": {"lsn": number * 10 + sequence}}
        for sequence, (op, before, after) in zip(sequences, steps, strict=True)
    ]


def ids_in(target: CrashTarget) -> list[int]:
    """Return the numbers that the table of a target holds."""
    database = target.opened(TABLE)
    if target.is_lake:
        return [int(row[0]) for row in shown(database, ["id"])]
    with closing(database.session()) as session:
        name = native_name(database.table_name(target.schema, TABLE), database.dialect)
        if database.find_table(session, database.table_name(target.schema, TABLE)) is None:
            return []
        return [int(row[0]) for row in session.query(f"SELECT id FROM {name}")]


def batches_in(target: CrashTarget) -> int:
    """Return how many batches the ledger of a target knows."""
    database = target.opened(TABLE)
    ledger = Ledger(database)
    with closing(database.session()) as session:
        return int(session.query(f"SELECT COUNT(*) FROM {ledger.name('ledger')}")[0][0])


def complaints(target: CrashTarget, written: int) -> list[str]:
    """Return what is lost, doubled or was never written."""
    counts = Counter(ids_in(target))
    lost = [number for number in range(written) if number not in counts]
    doubled = [number for number, count in counts.items() if count > 1]
    strange = [number for number in counts if not 0 <= number < written]
    complaint_groups: list[tuple[str, list[Any]]] = [("lost", lost), ("doubled", doubled), ("never written", strange)]
    return [f"{len(numbers)} {kind}: {numbers[:5]}" for kind, numbers in complaint_groups if numbers]

"""Topics with messages, streams that read them, and what their tables hold."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.run import run_stream

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ematix_flow.declare.connection.registry import Connection
    from ematix_flow.declare.stream.stream import Stream
    from tests.services.kafka import KafkaBroker

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
"""When the events of streams with state begin."""


def at(seconds: float) -> str:
    """Return an instant so many seconds later, as messages write it."""
    return (BEGIN + timedelta(seconds=seconds)).isoformat()


@dataclass
class Topic:
    """A topic of a broker."""

    broker: KafkaBroker
    name: str
    options: dict[str, Any] = field(default_factory=dict)

    def write(self, values: Sequence[Any], **given: Any) -> None:
        """Write values as JSON, bytes and None as they are."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.broker.address, "log_level": 0})
        for value in values:
            plain = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
            producer.produce(self.name, plain, **given)
        assert producer.flush(20) == 0

    def read(self, name: str, count: int) -> list[bytes | None]:
        """Return the values of so many messages of a topic, as a reader of committed messages sees them."""
        from confluent_kafka import Consumer

        given = {"group.id": f"read-{name}", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        reader = Consumer({"bootstrap.servers": self.broker.address, "log_level": 0, **given})
        reader.subscribe([name])
        try:
            return [message.value() for message in reader.consume(count, 20)]
        finally:
            reader.close()

    def remove_until(self, offset: int, partition: int = 0) -> None:
        """Remove the messages of a partition before an offset, as retention does."""
        from confluent_kafka import TopicPartition

        admin = self.broker.admin()
        for future in admin.delete_records([TopicPartition(self.name, partition, offset)]).values():
            future.result(20)

    @property
    def connection(self) -> Connection:
        """Return the connection to the broker."""
        fields = {"kind": "kafka", "bootstrap_servers": self.broker.address, **self.options}
        return connection_from_fields("feed", fields)

    def stream(self, target: Connection | None, **keywords: Any) -> Stream:
        """Declare a stream from the topic."""
        given = {"name": f"s_{self.name}", "source": self.connection, "source_query": self.name, "target": target}
        return stream_from_keywords(given | keywords, None)

    def toml(self, name: str, warehouse: Path, table: str, more: str = "") -> str:
        """Return the TOML of a stream from the topic into a table of `shop`; `more` goes on with the table of the target."""
        return f"""
            pipeline_name = "{name}"
            source_query = "{self.name}"
            [source]
            kind = "kafka"
            bootstrap_servers = "{self.broker.address}"
            [target]
            kind = "duckdb"
            path = "{warehouse}"
            table = {{ schema = "shop", name = "{table}" }}
            {more}
        """


def duckdb_at(path: Path) -> Connection:
    """Return the connection to a DuckDB file."""
    return connection_from_fields("warehouse", {"kind": "duckdb", "path": str(path)})


def rows_in(path: Path, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query on a DuckDB file."""
    import duckdb

    with duckdb.connect(str(path)) as connection:
        return connection.execute(sql).fetchall()


def drain(stream: Stream, **options: Any) -> dict[str, Any]:
    """Run a stream until it has everything that is there."""
    return run_stream(stream, StreamOptions(available_now=True, **options))

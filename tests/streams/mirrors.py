"""Tables of every system that mirror another database, fed with change events of a topic."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ematix_flow import CDC
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text, TimestampTZ
from ematix_flow.engine import Options
from ematix_flow.engine.batch.target import target_for
from ematix_flow.engine.spark.session import session_for
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.run import run_stream
from ematix_flow.plan.sql.render import native_name
from tests.lakes.targets import bucket_of, lake_fields

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest

    from ematix_flow.declare.connection.registry import Connection
    from ematix_flow.declare.stream.stream import Stream
    from tests.contracts.systems import System
    from tests.streams.feeds import Topic

BEGIN_MS = 1_700_000_000_000
LAKES = ("delta_local", "iceberg")

THINGS = Table(
    "shop",
    "things",
    (
        Column(BigInt(), primary_key=True, name="id"),
        Column(Text(), nullable=True, name="name"),
        Column(BigInt(), nullable=True, name="amount"),
    ),
)
SOFT = Table("shop", "things", (*THINGS.columns, Column(TimestampTZ(), nullable=True, name="gone_at")))
PAIRS = Table(
    "shop",
    "things",
    (
        Column(BigInt(), primary_key=True, name="a"),
        Column(Text(), primary_key=True, name="b"),
        Column(BigInt(), nullable=True, name="amount"),
    ),
)


def empty_target(request: pytest.FixtureRequest, system: System | str, folder: Path) -> Connection:
    """Return the connection to an empty target: of a system, or of a lake by its kind."""
    if isinstance(system, str):
        request.getfixturevalue("spark")
        bucket = bucket_of(request) if system.endswith("_s3") else None
        return connection_from_fields("target", lake_fields(system, folder, bucket))
    return system.connect(request)


def event(
    op: str, lsn: int, after: dict[str, Any] | None = None, before: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return an event as Debezium writes it for PostgreSQL."""
    return {"op": op, "before": before, "after": after, "source": {"lsn": lsn, "ts_ms": BEGIN_MS + lsn}, "ts_ms": 0}


def row(key: int, name: str | None = None, amount: int | None = None) -> dict[str, Any]:
    """Return a whole row of things."""
    return {"id": key, "name": name, "amount": amount}


@dataclass
class Mirror:
    """A table that a stream of changes makes."""

    topic: Topic
    connection: Connection
    table: Table = THINGS
    cdc: CDC = field(default_factory=CDC)
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def stream(self) -> Stream:
        """Return the stream."""
        given = {"target_table": self.table, "cdc": self.cdc}
        return self.topic.stream(self.connection, **given | self.options)

    def apply(self, events: Sequence[Any], partition: int = 0, **options: Any) -> dict[str, Any]:
        """Write events and run the stream until it has them."""
        if events:
            self.topic.write(events, partition=partition)
        return run_stream(self.stream, StreamOptions(available_now=True, **options))

    def rows(self, *names: str, table: str = "") -> list[tuple[Any, ...]]:
        """Return the rows of the table in the order of their keys."""
        database = target_for(self.connection, self.table, session_for(Options()))
        table_name = native_name(database.table_name(self.table.schema, table or self.table.name), database.dialect)
        chosen = names or self.table.column_names
        with closing(database.session()) as session:
            stored_rows = database.data(session).query(f"SELECT {', '.join(chosen)} FROM {table_name}")
        return sorted(map(tuple, stored_rows), key=str)

    def drop(self) -> None:
        """Drop the table."""
        database = target_for(self.connection, self.table, session_for(Options()))
        with closing(database.session()) as session:
            table_name = native_name(database.table_name(self.table.schema, self.table.name), database.dialect)
            session.execute(f"DROP TABLE IF EXISTS {table_name}")

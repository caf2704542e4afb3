"""Windows of the crash tests: numbered events of a Kafka topic, counted by time in one table, and what it must hold."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ematix_flow import Aggregation, Window
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.stream.options import Watermark
from ematix_flow.declare.stream.stream import Stream, StreamSourceDeclaration, StreamTarget
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text, TimestampTZ
from ematix_flow.plan.sql.render import native_name
from tests.crash.lakes import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.crash.journey import CrashTarget

PARTITIONS = 3
USERS = 2
SECONDS = 20
"""Length of a window, more than twice a range: of three batches one closes some and one closes none. Every event is a second later than the one before."""
LATENESS = 10
"""Seconds: more than partitions are ever apart, so that no event is late however ranges are cut."""
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
FAR = 1_000_000
"""The number of the event that closes all windows."""
COLUMNS = ("window_start", "user_id", "n", "total", "lowest", "highest")


@dataclass(frozen=True)
class WindowFeed:
    """A topic of events, where the state is kept, and how many events one range has at most."""

    address: str
    topic: str
    root: str
    table: str = "windows"
    """The table, and the name of the stream."""
    most: int = 9
    """A multiple of the partitions, whose shares are equal then: one that fell behind would have late events."""
    mode: str = "append"
    restart: bool = False
    """Whether the stream is tried again after errors that may pass."""
    late_data: str = "drop"
    """What becomes of late events; with another value of it the state is another one, and the windows are the same."""


def window_stream(crash_target: CrashTarget, feed: WindowFeed) -> Stream:
    """Declare the stream from a topic through tumbling windows into the table of a target."""
    kafka = connection_from_fields("feed", {"kind": "kafka", "bootstrap_servers": feed.address})
    target = connection_from_fields("target", {"kind": crash_target.kind, **crash_target.fields})
    keys = {"window_start": TimestampTZ(), "user_id": Text()}
    numbers = ("n", "total", "lowest", "highest")
    columns = (
        *(Column(type_, primary_key=feed.mode == "merge", nullable=False, name=key) for key, type_ in keys.items()),
        Column(TimestampTZ(), nullable=False, name="window_end"),
        *(Column(BigInt(), nullable=False, name=number) for number in numbers),
    )
    aggregations = (
        Aggregation(agg="count", as_="n"),
        Aggregation(agg="sum", column="number", as_="total"),
        Aggregation(agg="min", column="number", as_="lowest"),
        Aggregation(agg="max", column="number", as_="highest"),
    )
    return Stream(
        name=f"crash_{feed.table}",
        sources=(StreamSourceDeclaration(kafka, feed.topic, feed.topic),),
        targets=(StreamTarget(target, write(mode=feed.mode), Table(crash_target.schema, feed.table, columns)),),
        watermark=Watermark(lateness_ms=LATENESS * 1000),
        window=Window(
            "tumbling",
            aggregations,
            SECONDS * 1000,
            event_time_column="at",
            group_by=("user_id",),
            late_data=feed.late_data,
        ),
        idle_pause_ms=5,
        max_rows_per_batch=feed.most,
    )


class EventWriter:
    """Writes numbered events, each once, and one far in the future at last."""

    def __init__(self, feed: WindowFeed) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": feed.address, "enable.idempotence": True, "log_level": 0})
        self._topic = feed.topic
        self.written = 0

    def write(self, count: int) -> None:
        """Write so many events; they have arrived then."""
        for number in range(self.written, self.written + count):
            self._one(number)
        self.written += count
        self._arrive()

    def end(self) -> None:
        """Write the event that closes all windows."""
        self._one(FAR)
        self._arrive()

    def _one(self, number: int) -> None:
        at = (BEGIN + timedelta(seconds=number)).isoformat()
        value = json.dumps({"at": at, "user_id": f"u{number % USERS}", "number": number}).encode()
        self._producer.produce(self._topic, value, partition=number % PARTITIONS)

    def _arrive(self) -> None:
        assert self._producer.flush(60) == 0, "the broker does not answer"


def model(written: int) -> list[tuple[Any, ...]]:
    """Return the windows of so many events, as plain Python counts them."""
    windows: dict[tuple[int, int], list[int]] = {}
    for number in range(written):
        windows.setdefault((number // SECONDS, number % USERS), []).append(number)
    return sorted(
        (BEGIN + timedelta(seconds=window * SECONDS), f"u{user}", len(values), sum(values), min(values), max(values))
        for (window, user), values in windows.items()
    )


def windows_in(target: CrashTarget, table: str = "windows") -> list[tuple[Any, ...]]:
    """Return the windows that the table of a target holds."""
    database = target.opened(table)
    if target.is_lake:
        return sorted(shown(database, COLUMNS))
    name = database.table_name(target.schema, table)
    with closing(database.session()) as session:
        if database.find_table(session, name) is None:
            return []
        sql = f"SELECT {', '.join(COLUMNS)} FROM {native_name(name, database.dialect)}"
        return sorted(tuple(row) for row in session.query(sql))


def complaints(results: Iterable[tuple[Any, ...]], written: int, *, unfinished: bool = False) -> list[str]:
    """Return what is wrong with windows: lost, doubled, or never there; lost ones may still come while it is unfinished."""
    expected = {row[:2]: row for row in model(written)}
    rows = list(results)
    counts = Counter(row[:2] for row in rows)
    lost = [] if unfinished else [key for key in expected if key not in counts]
    doubled = [key for key, count in counts.items() if count > 1]
    phantom = [row for row in rows if row != expected.get(row[:2])]
    groups = (("lost", lost), ("doubled", doubled), ("phantom", phantom))
    return [f"{len(wrong)} {kind}: {[list(map(str, one)) for one in wrong[:5]]}" for kind, wrong in groups if wrong]

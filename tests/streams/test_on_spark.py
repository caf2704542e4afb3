"""Streams by default: tasks of Spark read, decode and stage every batch, on this machine as on a cluster."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Annotated, Any

import psycopg
import pytest
from confluent_kafka import TopicPartition

from ematix_flow import ematix, failpoints, pk
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.spark_settings import ENGINE_VARIABLE
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.errors import StreamLostError
from ematix_flow.events import RunStarted, StreamWatermark
from ematix_flow.observe.bus import Bus
from ematix_flow.types import BigInt, Text  # noqa: TC001 - read from the annotations
from tests.depth import deep
from tests.streams.feeds import drain, duckdb_at, rows_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ematix_flow.events import Event
    from tests.streams.feeds import Topic

pytestmark = [
    pytest.mark.service,
    pytest.mark.spark,
    pytest.mark.xdist_group("streams"),
    pytest.mark.usefixtures("spark", "_by_default"),
]

AT = 1_700_000_000_000


@ematix.table(schema="shop", name="by_default")
class Orders:
    """Orders as the topic has them."""

    id: Annotated[BigInt, pk()]
    word: Text | None


@pytest.fixture
def _by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the engine to the product: tests say `local` otherwise."""
    monkeypatch.delenv(ENGINE_VARIABLE)


@pytest.fixture
def heard() -> list[Event]:
    """Return a list of what streams tell."""
    return []


@pytest.fixture
def bus(heard: list[Event]) -> Bus:
    """Return the bus on which they tell it."""
    event_bus = Bus()
    event_bus.subscribe(heard.append)
    return event_bus


def movers(heard: list[Event]) -> set[str]:
    """Return who moved the rows of all batches."""
    return {event.by for event in heard if isinstance(event, RunStarted)}


def fill(topic: Topic) -> None:
    """Write thirty orders, and between them a message that is none."""
    for partition in range(3):
        topic.write([{"id": partition * 10 + n, "word": f"w{n}"} for n in range(10)], partition=partition, timestamp=AT)
    topic.write([b"{torn"], partition=1, timestamp=AT + 5000)


@pytest.mark.deep
def test_batches_of_a_topic_are_staged_by_tasks_and_tell_how_far_event_time_has_come(
    topic: Topic, warehouse: Path, bus: Bus, heard: list[Event]
) -> None:
    fill(topic)
    stream = topic.stream(duckdb_at(warehouse), target_table=Orders, transform_on_error="dlq")
    assert drain(stream, most=12, bus=bus)["total_rows"] == 31
    assert rows_in(warehouse, "SELECT count(*), count(DISTINCT id), max(word) FROM shop.by_default") == [(30, 30, "w9")]
    assert rows_in(warehouse, "SELECT count(*) FROM ematix_flow.rejects") == [(1,)]
    assert movers(heard) == {"spark"}
    # Tasks read the messages in processes of their own.
    newest = max(event.at for event in heard if isinstance(event, StreamWatermark))
    assert newest == datetime.fromtimestamp((AT + 5000) / 1000, UTC)


def test_a_stream_is_a_query_that_ends_with_it_and_survives_a_batch_that_failed(
    topic: Topic, warehouse: Path, spark: SparkSession
) -> None:
    fill(topic)
    stream = topic.stream(duckdb_at(warehouse), target_table=Orders, transform_on_error="dlq")
    queries: list[str | None] = []

    def check(event: Event) -> None:
        if isinstance(event, RunStarted):
            queries.extend(query.name for query in spark.streams.active)

    bus = Bus()
    bus.subscribe(check)
    scratch = set(Path(gettempdir()).glob("flow-query-*"))
    failpoints.arm("commit.before_commit=raise@1")
    try:
        assert drain(stream, most=12, bus=bus, restart=True)["total_rows"] == 31
    finally:
        failpoints.arm("")
    assert queries == [f"{stream.name} into {stream.key_of(stream.targets[0])}"] * 4
    assert not spark.streams.active
    assert set(Path(gettempdir()).glob("flow-query-*")) <= scratch
    assert rows_in(warehouse, "SELECT count(*), count(DISTINCT id) FROM shop.by_default") == [(30, 30)]


def test_messages_that_are_gone_end_the_stream_also_where_a_task_finds_it_out(topic: Topic, warehouse: Path) -> None:
    fill(topic)
    stream = topic.stream(duckdb_at(warehouse), target_table=Orders, transform_on_error="drop")

    admin = topic.broker.admin()

    def vanish(event: Event) -> None:
        if isinstance(event, RunStarted):
            gone = [TopicPartition(topic.name, partition, 5) for partition in range(3)]
            for future in admin.delete_records(gone).values():
                future.result()

    bus = Bus()
    bus.subscribe(vanish)
    with pytest.raises(StreamLostError, match="are gone") as raised:
        drain(stream, bus=bus, restart=True)
    assert "flow stream rewind" in str(raised.value.hint)


@pytest.mark.parametrize("declared", [True, deep(False)])
def test_a_topic_is_merged_into_postgres_by_tasks(
    topic: Topic, postgres_url: str, bus: Bus, heard: list[Event], declared: bool
) -> None:
    target = connection_from_fields("warehouse", {"kind": "postgres", "url": postgres_url})
    options: dict[str, Any] = {
        "target_table": ("shop", "by_default"),
        "create_table": True,
        "target_primary_key": ["id"],
    }
    stream = topic.stream(target, mode="merge", **({"target_table": Orders} if declared else options))
    for text in ("a", "b"):
        topic.write([{"id": n, "word": text} for n in range(20)], partition=0)
        drain(stream, bus=bus)
    with psycopg.connect(postgres_url) as session:
        rows = session.execute("SELECT count(*), min(word), max(word) FROM shop.by_default").fetchall()
    assert rows == [(20, "b", "b")]
    assert movers(heard) == {"spark"}


@pytest.mark.deep
@pytest.mark.parametrize("form", ["json_lines", deep("csv")])
def test_new_files_are_loaded_by_tasks(
    tmp_path: Path, warehouse: Path, bus: Bus, heard: list[Event], form: str
) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    source = connection_from_fields("inbox", {"kind": "files", "path": str(inbox), "format": form})
    keywords = {"name": "arrivals", "source": source, "source_query": "*", "target_table": Orders}
    stream = stream_from_keywords({**keywords, "target": duckdb_at(warehouse)}, None)
    for number in range(2):
        lines = [f'{{"id": {number * 10 + n}, "word": "w"}}' for n in range(10)]
        if form == "csv":
            lines = ["id,word", *(f"{number * 10 + n},w" for n in range(10))]
        (inbox / f"{number}.{form}").write_text("\n".join(lines) + "\n")
        assert drain(stream, bus=bus)["total_rows"] == 10
    assert rows_in(warehouse, "SELECT count(*), count(DISTINCT id) FROM shop.by_default") == [(20, 20)]
    assert movers(heard) == {"spark"}


@pytest.mark.deep
def test_a_small_batch_without_a_declared_table_is_one_file(topic: Topic, tmp_path: Path, bus: Bus) -> None:
    target = connection_from_fields(
        "outbox", {"kind": "object_store_local", "path": str(tmp_path), "format": "json_lines"}
    )
    topic.write([{"id": n, "word": "w"} for n in range(20)])
    drain(topic.stream(target, target_prefix="copies"), bus=bus)
    (file,) = (tmp_path / "copies").glob("*.jsonl")
    assert len(file.read_text().splitlines()) == 20

"""Streams with state over files and lake tables, and into brokers: the same windows as from topics into tables."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ematix_flow import Aggregation, Join, Source, StateStore, Window
from ematix_flow.connect.base.sink import ID_HEADER
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.engine.review.stream import validate_stream
from ematix_flow.engine.stream.control import move_stream, stream_status
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.errors import BadRowsError, PlanError, RunError
from ematix_flow.failpoints import failpoint
from tests.depth import STATE_CHANGES, deep
from tests.lakes.targets import lake_fields
from tests.services.kinesis import create_stream
from tests.services.pubsub import PROJECT
from tests.services.s3 import KEY, REGION, SECRET, s3_fields
from tests.services.topics import committed
from tests.streams.feeds import at, drain, duckdb_at, rows_in

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.declare.connection.registry import Connection
    from ematix_flow.declare.stream.stream import Stream
    from tests.services.kafka import KafkaBroker
    from tests.services.s3 import S3Server
    from tests.streams.feeds import Topic

pytestmark = [
    pytest.mark.service,
    pytest.mark.spark,
    pytest.mark.xdist_group(STATE_CHANGES),
    pytest.mark.usefixtures("spark", "stateful"),
]

COUNTS = (Aggregation(agg="count", as_="n"), Aggregation(agg="sum", column="amount", as_="total"))
CREATED: dict[str, Any] = {"target_table": ("main", "w"), "create_table": True}


def window(**more: Any) -> Window:
    """Return windows of ten seconds by user."""
    given = {"kind": "tumbling", "duration_ms": 10_000, "event_time_column": "at", "group_by": ("user",)}
    return Window(aggregations=COUNTS, **{**given, **more})


def rows_of(*given: tuple[float, str, int]) -> list[dict[str, Any]]:
    """Return rows of (second, user, amount)."""
    return [{"at": at(second), "user": user, "amount": amount} for second, user, amount in given]


def write_file(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    """Write rows in the format that the name says."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".csv":
        lines = [",".join(rows[0]), *(",".join(str(value) for value in row.values()) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def folder_at(path: Path, form: str) -> Connection:
    """Return a folder of files."""
    return connection_from_fields("inbox", {"kind": "object_store_local", "path": str(path), "format": form})


def closed(warehouse: Path) -> list[tuple[Any, ...]]:
    """Return the windows of the table: the second at which they begin, user, rows and sum."""
    start = "CAST(epoch(window_start) - epoch(TIMESTAMPTZ '2026-03-01 00:00:00Z') AS BIGINT)"
    return rows_in(warehouse, f"SELECT {start}, user, n, total FROM w ORDER BY ALL")


def over(source: Connection, query: str, warehouse: Path, **more: Any) -> Stream:
    """Declare a stream whose windows go into a DuckDB file."""
    given = {"name": "ends", "source": source, "source_query": query, "target": duckdb_at(warehouse)}
    return stream_from_keywords({**given, **CREATED, "window": window(), **more}, None)


FIRST, SECOND, THIRD = (
    rows_of((1, "a", 1), (5, "b", 2), (11, "a", 4)),
    rows_of((9, "a", 8), (12, "b", 16)),
    rows_of((30, "c", 32), (13, "a", 64)),
)
EXPECTED = [(0, "a", 1, 1), (0, "b", 1, 2), (10, "a", 2, 68), (10, "b", 1, 16)]
"""The row of second 9 comes in the second run, when its window is closed."""


@pytest.mark.parametrize("form", [deep("csv"), deep("json_lines"), deep("parquet")])
def test_windows_over_files(tmp_path: Path, warehouse: Path, form: str) -> None:
    stream, ending = over(folder_at(tmp_path, form), "in", warehouse), {"json_lines": "jsonl"}.get(form, form)
    for number, rows in enumerate((FIRST, SECOND, THIRD)):
        write_file(tmp_path / "in", f"{9 - number}.{ending}", rows)
        drain(stream)
        assert drain(stream)["total_rows"] == 0
    assert closed(warehouse) == EXPECTED
    (status,) = stream_status(stream, StreamOptions())
    assert (status.lag, status.state is not None) == (0, True)


@pytest.mark.deep
def test_files_are_read_some_at_a_time_and_a_file_that_is_gone_brings_nothing_again(
    tmp_path: Path, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ematix_flow.engine.stream.sinks.shaped_files.BYTES", 30)
    stream = over(folder_at(tmp_path, "csv"), "in", warehouse)
    for name, rows in (("a", FIRST), ("b", SECOND), ("c", THIRD)):
        write_file(tmp_path / "in", f"{name}.csv", rows)
    drain(stream)
    assert closed(warehouse) == EXPECTED
    (tmp_path / "in" / "a.csv").unlink()
    drain(stream)
    assert closed(warehouse) == EXPECTED
    write_file(tmp_path / "in", "b.csv", FIRST)
    with pytest.raises(PlanError, match="1 file of ends has changed since it was loaded"):
        drain(stream)


@pytest.mark.deep
def test_lines_that_are_no_rows_are_rejects_and_a_reset_reads_all_files_again(tmp_path: Path, warehouse: Path) -> None:
    stream = over(folder_at(tmp_path, "csv"), "in", warehouse, transform_on_error="dlq")
    write_file(tmp_path / "in", "a.csv", FIRST)
    (tmp_path / "in" / "b.csv").write_text(f"at,user,amount\nnoon,a,1\n{at(30)},a\n{at(30)},c,32\n")
    drain(stream)
    expected = [(0, "a", 1, 1), (0, "b", 1, 2), (10, "a", 1, 4)]
    assert closed(warehouse) == expected
    reasons = rows_in(warehouse, "SELECT reason FROM ematix_flow.rejects ORDER BY reason")
    assert len(reasons) == 2
    move_stream(stream, "earliest", StreamOptions())
    drain(stream)
    assert closed(warehouse) == sorted(expected * 2)


@pytest.mark.deep
def test_windows_over_a_bucket(s3_server: S3Server, s3_bucket: str, warehouse: Path) -> None:
    server, bucket = s3_server, s3_bucket
    fields = {**s3_fields(server, bucket), "format": "json_lines"}
    stream = over(connection_from_fields("bucket", fields), "in", warehouse)
    for number, rows in enumerate((FIRST, SECOND, THIRD)):
        body = "".join(json.dumps(row) + "\n" for row in rows).encode()
        server.client().put_object(Bucket=bucket, Key=f"in/{number}.jsonl", Body=body)
        drain(stream)
    assert closed(warehouse) == EXPECTED


@pytest.mark.deep
@pytest.mark.usefixtures("quick_lakes")
@pytest.mark.parametrize("kind", ["delta_local", deep("iceberg")])
def test_windows_over_a_lake_table(tmp_path: Path, warehouse: Path, topic: Topic, kind: str) -> None:
    lake = connection_from_fields("lake", lake_fields(kind, tmp_path))
    filled = topic.stream(lake, target_table=("bronze", "clicks"), create_table=True)
    stream = over(lake, "bronze.clicks", warehouse)
    for rows in (FIRST, SECOND, THIRD):
        topic.write(rows, partition=0)
        drain(filled)
        drain(stream)
    assert closed(warehouse) == EXPECTED


@pytest.mark.deep
@pytest.mark.usefixtures("quick_lakes")
def test_a_range_of_a_lake_table_or_a_folder_has_a_state_of_its_own(
    tmp_path: Path, warehouse: Path, topic: Topic
) -> None:
    lake = connection_from_fields("lake", lake_fields("delta_local", tmp_path))
    filled = topic.stream(lake, target_table=("bronze", "clicks"), create_table=True)
    stream = over(lake, "bronze.clicks", warehouse)
    for rows in (FIRST, SECOND, THIRD):
        topic.write(rows, partition=0)
        drain(filled)
    drain(stream, begin='{"version": 1}')
    assert closed(warehouse) == [(0, "a", 1, 8), (10, "a", 1, 64), (10, "b", 1, 16)]
    rows_in(warehouse, "DELETE FROM w")
    assert drain(stream, end="2020-01-01T00:00:00Z")["total_rows"] == 0
    for range_or_all in ({"begin": "earliest", "end": "latest"}, {}):
        drain(stream, **range_or_all)
        assert closed(warehouse) == EXPECTED
        rows_in(warehouse, "DELETE FROM w")
    files = over(folder_at(tmp_path, "csv"), "in", warehouse, name="files")
    write_file(tmp_path / "in", "a.csv", [*FIRST, *THIRD])
    with pytest.raises(RunError, match="is no place in a folder"):
        drain(files, begin="2026-03-01T00:00:00Z")
    drain(files, begin="earliest", end="latest")
    assert closed(warehouse) == [(0, "a", 1, 1), (0, "b", 1, 2), (10, "a", 2, 68)]


@pytest.mark.deep
@pytest.mark.filterwarnings("ignore:stream .* declares a state store in memory")
def test_a_topic_is_joined_with_files(tmp_path: Path, warehouse: Path, topic: Topic) -> None:
    join = Join(
        left_source=topic.name, right_source="in", left_keys=("user",), right_keys=("user",),
        time_window_ms=5_000, event_time_column="at",
    )  # fmt: skip
    sources = [Source(topic.connection, topic.name), Source(folder_at(tmp_path, "csv"), "in")]
    given = {"name": "both", "sources": sources, "target": duckdb_at(warehouse), **CREATED, "join": join}
    stream = stream_from_keywords({**given, "state_store": StateStore(kind="in_memory")}, None)
    topic.write(rows_of((0, "a", 1), (2, "b", 2)))
    write_file(tmp_path / "in", "a.csv", rows_of((4, "a", 10)))
    drain(stream)
    write_file(tmp_path / "in", "b.csv", rows_of((7, "b", 20), (8, "b", 40)))
    drain(stream)
    pairs = rows_in(warehouse, "SELECT left_amount, right_amount FROM w ORDER BY ALL")
    assert pairs == [(1, 10), (2, 20)]


def into_topic(topic: Topic, target: str, **more: Any) -> Stream:
    """Declare a stream of windows into another topic."""
    given = {"target_topic": target, "window": window(), "target_message_key_column": "user"}
    return topic.stream(topic.connection, **{**given, **more})


def sent(topic: Topic, name: str) -> list[tuple[Any, ...]]:
    """Return the windows of a topic: key, beginning, user, rows and sum."""
    rows = []
    for message in committed(topic.broker.address, name):
        row = json.loads(message.value())
        start = datetime.fromisoformat(row["window_start"]).astimezone(UTC)
        rows.append((message.key().decode(), start.second, row["user"], row["n"], row["total"]))
    return rows


@pytest.mark.deep
@pytest.mark.parametrize("delivery", ["auto", "at_least_once"])
def test_windows_go_into_a_topic_once(topic: Topic, kafka_broker: KafkaBroker, delivery: str) -> None:
    target = kafka_broker.create_topic(1)
    stream = into_topic(topic, target, delivery=delivery)
    for rows in (FIRST, SECOND, THIRD):
        topic.write(rows, partition=0)
        drain(stream)
        assert drain(stream)["total_rows"] == 0
    assert sent(topic, target) == [(user, start, user, n, total) for start, user, n, total in EXPECTED]
    if delivery == "at_least_once":
        ids = {dict(one.headers())[ID_HEADER] for one in committed(kafka_broker.address, target)}
        assert len(ids) == len(EXPECTED)
    (status,) = stream_status(stream, StreamOptions())
    assert status.position is not None
    assert "state" not in status.position
    move_stream(stream, "earliest", StreamOptions())
    drain(stream)
    # One batch has all of them now, so that no row is late.
    assert min(sent(topic, target)[len(EXPECTED) :]) == ("a", 0, "a", 2, 9)


@pytest.mark.deep
def test_a_batch_that_was_interrupted_is_sent_once(
    topic: Topic, kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = kafka_broker.create_topic(1)
    stream = into_topic(topic, target)
    topic.write(FIRST, partition=0)
    monkeypatch.setattr("ematix_flow.engine.stream.sinks.stateful.failpoint", _failing("state.loaded"))
    with pytest.raises(InterruptedError):
        drain(stream)
    monkeypatch.setattr("ematix_flow.engine.stream.sinks.stateful.failpoint", failpoint)
    drain(stream)
    topic.write(THIRD, partition=0)
    drain(stream)
    assert sent(topic, target) == [(u, start, u, n, total) for start, u, n, total in (*EXPECTED[:2], (10, "a", 2, 68))]


def _failing(point: str) -> Any:
    def reach(name: str) -> None:
        if name == point:
            raise InterruptedError(name)

    return reach


@pytest.mark.deep
def test_late_rows_and_bad_ones_go_to_the_dead_letter_topic(topic: Topic, kafka_broker: KafkaBroker) -> None:
    target, letters = kafka_broker.create_topic(1), kafka_broker.create_topic(1)
    dlq = {"window": window(late_data="dlq"), "transform_on_error": "dlq"}
    with pytest.raises(PlanError, match="cannot be kept"):
        drain(into_topic(topic, target, **dlq))
    stream = into_topic(topic, target, dead_letter_topic=letters, **dlq)
    topic.write([*FIRST, b"{torn"], partition=0)
    drain(stream)
    topic.write(SECOND, partition=0)
    drain(stream)
    assert [key for key, *_ in sent(topic, target)] == ["a", "b"]
    errors = [dict(one.headers())["emat-dlq-error"] for one in committed(kafka_broker.address, letters)]
    assert sorted(error[:9] for error in errors) == sorted([b"late_data", errors[0][:9]])
    with pytest.raises(BadRowsError, match="1 message cannot be read"):
        drain(into_topic(topic, target, name="strict"))


def broker_target(kind: str, request: pytest.FixtureRequest) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of a connection to a broker, and where in it messages go."""
    if kind == "kinesis":
        server = request.getfixturevalue("s3_server")
        fields = {"stream_name": create_stream(server), "region": REGION, "endpoint": server.endpoint}
        keys = {"access_key_id": KEY, "secret_access_key": SECRET}
        return {**fields, **keys}, {"target_partition_key_prefix": "w-"}
    if kind == "rabbitmq":
        queues = request.getfixturevalue("rabbitmq_server")
        return {"amqp_url": queues.url}, {"target_queue": queues.create_queue()}
    server = request.getfixturevalue("pubsub_server")
    name, _ = server.create_topic()
    return {"project_id": PROJECT, "endpoint": server.endpoint, "anonymous_auth": True}, {"target_topic": name}


@pytest.mark.parametrize("kind", [deep("rabbitmq"), deep("kinesis"), deep("pubsub")])
def test_windows_go_into_other_brokers_at_least_once(topic: Topic, request: pytest.FixtureRequest, kind: str) -> None:
    topic.write([*FIRST, *THIRD], partition=0)
    fields, destination = broker_target(kind, request)
    stream = topic.stream(connection_from_fields("out", {"kind": kind, **fields}), window=window(), **destination)
    assert drain(stream)["total_rows"] == 3
    assert drain(stream)["total_rows"] == 0
    if kind == "rabbitmq":
        channel, queue = request.getfixturevalue("rabbitmq_server").channel(), destination["target_queue"]
        bodies = [channel.basic_get(queue, auto_ack=True)[2] for _ in range(4)]
        assert [json.loads(one)["user"] for one in bodies[:3]] == ["a", "b", "a"]
        assert bodies[3] is None
    assert any("at least once" in note for note in validate_stream(stream, StreamOptions()).notes)

"""Windows over topics: what their tables hold after any split of the same events into runs."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from ematix_flow import Aggregation, Source, Target, Watermark, Window
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.spark_settings import ENGINE_VARIABLE
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.declare.stream.options import Lookup
from ematix_flow.declare.stream.toml_reader import stream_from_toml
from ematix_flow.declare.stream.udf import udf
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.review.stream import dry_run_stream, preview_stream, validate_stream
from ematix_flow.engine.spark.session import session_for
from ematix_flow.engine.stream import dead_letters
from ematix_flow.engine.stream.control import stream_status
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.errors import BadRowsError, FlowError, PlanError, StreamLostError, UnsupportedError
from ematix_flow.failpoints import arm
from ematix_flow.observe.bus import Bus
from ematix_flow.observe.metrics.stream import StreamMetrics
from tests.depth import STREAM_STATE, deep
from tests.lakes.targets import lake_fields
from tests.streams.feeds import BEGIN, Topic, at, drain, duckdb_at, rows_in

if TYPE_CHECKING:
    from ematix_flow.declare.connection.registry import Connection
    from ematix_flow.declare.stream.stream import Stream
    from tests.services.kafka import KafkaBroker

pytestmark = [
    pytest.mark.service,
    pytest.mark.spark,
    pytest.mark.xdist_group(STREAM_STATE),
    pytest.mark.usefixtures("spark", "stateful"),
]


def events(*given: tuple[float, Any, float]) -> list[dict[str, Any]]:
    """Return messages of (seconds, user, amount)."""
    return [{"at": at(seconds), "user": user, "amount": amount} for seconds, user, amount in given]


def tumbling(**more: Any) -> Window:
    """Return windows of ten seconds by user."""
    aggregations = (
        Aggregation(agg="count", as_="n"),
        Aggregation(agg="sum", column="amount", as_="total"),
        Aggregation(agg="avg", column="amount", as_="mean"),
        Aggregation(agg="first", column="amount", as_="first"),
        Aggregation(agg="last", column="amount", as_="last"),
    )
    given = {"kind": "tumbling", "duration_ms": 10_000, "event_time_column": "at", "group_by": ("user",)}
    return Window(**{"aggregations": aggregations, **given, **more})


def closed(warehouse: Path, columns: str = "user, n, total, mean, first, last") -> list[tuple[Any, ...]]:
    """Return the rows of the table of windows, with the seconds at which they begin."""
    sql = f"SELECT epoch(window_start) - epoch(TIMESTAMPTZ '2026-03-01 00:00:00Z') AS s, {columns} FROM shop.w"
    return sorted(rows_in(warehouse, sql), key=repr)


def test_windows_are_loaded_when_time_has_passed_their_end(topic: Topic, warehouse: Path) -> None:
    stream = topic.stream(duckdb_at(warehouse), target_table=("shop", "w"), create_table=True, window=tumbling())
    topic.write(events((1, "a", 5), (3, "b", 1), (2, "a", 7), (12, "a", 1)))
    drain(stream)
    assert closed(warehouse) == [(0.0, "a", 2, 12, 6.0, 5, 7), (0.0, "b", 1, 1, 1.0, 1, 1)]
    topic.write(events((15, "a", 2), (21, "b", 3)))
    drain(stream)
    assert closed(warehouse)[2:] == [(10.0, "a", 2, 3, 1.5, 1, 2)]


TIMES = (0, 4, 9.999999, 10, 20)
COUNT = (Aggregation(agg="count", as_="n"),)
TOTAL = (*COUNT, Aggregation(agg="sum", column="amount", as_="total"))
CREATED: dict[str, Any] = {"target_table": ("shop", "w"), "create_table": True}


def into(topic: Topic, warehouse: Path, window: Window, **more: Any) -> Stream:
    """Declare a stream whose windows go into a DuckDB file."""
    return topic.stream(duckdb_at(warehouse), window=window, **CREATED, **more)


@pytest.mark.deep
def test_window_columns_come_first_under_their_names_and_rows_without_a_time_are_ignored(
    topic: Topic, warehouse: Path
) -> None:
    names = {"window_start_column": "von", "window_end_column": "bis", "group_by": ("start", "end")}
    aggregations = (*COUNT, Aggregation(agg="max", column="key", as_="most"))
    window = tumbling(aggregations=aggregations, **names)
    # Users may call their columns as the state calls its own.
    rows = [{"at": at(t), "start": t % 2, "end": "e" if t > 10 else None, "key": -t, "block": "b"} for t in TIMES]
    topic.write([*rows, {"at": None, "start": 0, "end": None, "key": 9, "block": "b"}], partition=0)
    metrics, bus = StreamMetrics(), Bus()
    bus.subscribe(metrics)
    stream = into(topic, warehouse, window)
    drain(stream, bus=bus)
    without = metrics.registry.get_sample_value(
        "ematix_streaming_rows_without_event_time_total", {"pipeline": stream.name}
    )
    assert without == 1
    sql = "SELECT * FROM shop.w ORDER BY von, start"
    (first, second, third) = rows_in(warehouse, sql)
    assert [row[0] for row in rows_in(warehouse, "DESCRIBE shop.w")][:6] == ["von", "bis", "start", "end", "n", "most"]
    assert first[:2] == (BEGIN, BEGIN + timedelta(seconds=10))
    # The watermark has reached the end of the second window exactly.
    assert [row[2:6] for row in (first, second, third)] == [
        (0.0, None, 2, 0.0), (9.999999 % 2, None, 1, -9.999999), (0.0, None, 1, -10.0),
    ]  # fmt: skip


@pytest.mark.deep
def test_times_before_1970_are_times(topic: Topic, warehouse: Path) -> None:
    for second in (-60_000_005, -60_000_001, -59_999_999):
        instant = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
        topic.write([{"at": instant.isoformat(), "user": "a", "amount": 1}], partition=0)
    drain(into(topic, warehouse, tumbling(aggregations=COUNT), max_rows_per_batch=1))
    assert rows_in(warehouse, "SELECT epoch(window_start), n FROM shop.w") == [(-60_000_010, 2)]


@pytest.mark.deep
def test_a_field_that_a_later_batch_lacks_or_has_no_value_of_is_null(topic: Topic, warehouse: Path) -> None:
    aggregations = [Aggregation(agg=name, column="amount", as_=name) for name in ("sum", "min", "first", "count_col")]
    exact = Aggregation(
        agg="count_distinct", column="amount", as_="several", mode="exact", max_distinct_values_per_group=2
    )
    window = tumbling(aggregations=(*aggregations, exact))
    stream = into(topic, warehouse, window, max_rows_per_batch=1, transform_on_error="dlq")
    topic.write(
        [b"{torn", {"at": at(1), "user": "a", "amount": None}, {"at": at(11), "user": "a", "amount": 5}], partition=0
    )
    topic.write([{"at": at(12), "user": None}, {"user": "b"}, {"at": at(13), "user": "a", "amount": None}], partition=0)
    topic.write([{"at": at(14), "user": "a", "amount": 2}, {"at": at(20)}], partition=0)
    drain(stream)
    assert closed(warehouse, "user, sum, min, first, count_col, several") == [
        (0.0, "a", None, None, None, 0, 0),
        (10.0, "a", 7, 2, 5, 2, 2),
        (10.0, None, None, None, None, 0, 0),
    ]
    kinds = dict(rows_in(warehouse, "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = 'w'"))
    assert {kinds[name] for name in ("sum", "min", "first", "several")} == {"BIGINT"}


def test_late_rows_are_dropped_and_counted_and_metrics_tell_it(topic: Topic, warehouse: Path) -> None:
    metrics = StreamMetrics()
    bus = Bus()
    bus.subscribe(metrics)
    stream = into(topic, warehouse, tumbling(), max_rows_per_batch=2, watermark=Watermark(lateness_ms=5_000))
    topic.write(events((1, "a", 5), (16, "b", 1)), partition=0)
    topic.write(events((9.9, "a", 7), (10, "b", 2)), partition=0)
    topic.write(events((25, "a", 0), (25, "b", 0)), partition=0)
    drain(stream, bus=bus)
    assert closed(warehouse, "user, n, total") == [(0.0, "a", 1, 5), (10.0, "b", 2, 3)]

    def sample(name: str, **labels: str) -> float | None:
        value = metrics.registry.get_sample_value(f"ematix_streaming_{name}", {"pipeline": stream.name, **labels})
        return None if value is None else float(value)

    assert sample("late_rows_dropped_total", policy="drop") == 1
    assert sample("windows_emitted_total") == 2
    assert sample("windows_active") == 1
    assert sample("watermark_seconds", source="_global") == (BEGIN + timedelta(seconds=20)).timestamp()


@pytest.mark.deep
def test_metrics_count_once_what_several_targets_have_and_what_is_tried_again(topic: Topic, warehouse: Path) -> None:
    metrics, bus = StreamMetrics(), Bus()
    bus.subscribe(metrics)
    tables = [Target(duckdb_at(warehouse), table=("shop", name), create_table=True) for name in ("w", "v")]
    topic.write([{"at": None, "user": "a", "amount": 1}, *events((1, "a", 5), (16, "b", 1))], partition=0)
    topic.write(events((2, "a", 7), (17, "b", 2), (25, "a", 0)), partition=0)
    stream = topic.stream(None, targets=tables, window=tumbling(), max_rows_per_batch=3)
    arm("commit.before_commit=raise@3-4")
    try:
        drain(stream, bus=bus, restart=True, max_backoff=0.1)
    finally:
        arm("")
    assert closed(warehouse, "user, n") == [(0.0, "a", 1), (10.0, "b", 2)]
    assert metrics.registry.get_sample_value("ematix_streaming_errors_total", {"pipeline": stream.name}) == 2
    counted = {"windows_emitted_total": 2.0, "late_rows_dropped_total": 1.0, "rows_without_event_time_total": 1.0}
    for name, number in counted.items():
        policy = {"policy": "drop"} if name.startswith("late") else {}
        labels = {"pipeline": stream.name, **policy}
        assert metrics.registry.get_sample_value(f"ematix_streaming_{name}", labels) == number


@pytest.mark.parametrize(
    ("change", "message", "hint"),
    [
        ({"event_time_column": "att"}, "no column 'att' for the time of events", "'at'"),
        ({"event_time_column": "amount"}, "'amount' has the time of events, and is BIGINT", "timestamp_millis(amount)"),
        ({"group_by": ("usr",)}, "no column 'usr'", "'user'"),
    ],
)
def test_a_column_that_is_not_there_or_no_time_is_told(
    topic: Topic, warehouse: Path, change: dict[str, Any], message: str, hint: str
) -> None:
    topic.write(events((1, "a", 5)))
    with pytest.raises(PlanError, match=message) as raised:
        drain(into(topic, warehouse, tumbling(**change)))
    assert hint in str(raised.value.hint)


@pytest.mark.deep
def test_a_text_that_is_no_time_is_a_bad_row(topic: Topic, warehouse: Path) -> None:
    topic.write([*events((1, "a", 5)), {"at": "soon", "user": "a", "amount": 5}, *events((10, "a", 5))], partition=0)
    with pytest.raises(BadRowsError, match="at: soon could not be parsed"):
        drain(into(topic, warehouse, tumbling()))
    drain(into(topic, warehouse, tumbling(), transform_on_error="dlq"))
    assert closed(warehouse, "user, n") == [(0.0, "a", 1)]
    ((column, row),) = rows_in(warehouse, "SELECT column_name, row_json FROM ematix_flow.rejects")
    assert (column, json.loads(row)["at"]) == ("at", "soon")


@pytest.mark.deep
def test_a_text_that_is_no_number_is_a_bad_row_of_a_sum(topic: Topic, warehouse: Path) -> None:
    topic.write(
        [*events((1, "a", 5)), {"at": at(2), "user": "a", "amount": "many"}, *events((10, "a", 5))], partition=0
    )
    topic.write(
        [{"at": at(11), "user": "a", "amount": "2.5"}, {"at": at(30), "user": "a", "amount": None}], partition=0
    )
    with pytest.raises(BadRowsError, match="amount: many is no number that could be summed"):
        drain(into(topic, warehouse, tumbling()))
    stream = into(topic, warehouse, tumbling(), transform_on_error="dlq")
    drain(stream)
    assert closed(warehouse, "user, n, total") == [(0.0, "a", 1, 5), (10.0, "a", 2, 7.5)]
    ((column, row),) = rows_in(warehouse, "SELECT column_name, row_json FROM ematix_flow.rejects")
    assert (column, json.loads(row)["amount"]) == ("amount", "many")
    with pytest.raises(UnsupportedError, match="is a row that its windows count, and no row of its table"):
        dead_letters.replay(stream, dead_letters.Selection())
    assert rows_in(warehouse, "SELECT status FROM ematix_flow.rejects") == [("pending",)]
    assert len(closed(warehouse, "user")) == 2


@pytest.mark.deep
def test_a_number_that_is_too_long_for_a_sum_is_a_bad_row_and_not_the_end_of_the_stream(
    topic: Topic, warehouse: Path
) -> None:
    longest = 10**38 - 1
    given = [{"at": at(second), "user": 2**64 + 1, "amount": amount} for second, amount in enumerate((longest, 2**64))]
    topic.write([*given, {"at": at(3), "user": 2**64 + 1, "amount": longest}, {"at": at(30)}], partition=0)
    drain(into(topic, warehouse, tumbling(aggregations=TOTAL), transform_on_error="dlq"))
    assert closed(warehouse, "user, n, total") == [(0.0, 2**64 + 1, 1, 2**64)]
    assert (
        rows_in(warehouse, "SELECT reason FROM ematix_flow.rejects")
        == [(f"{longest} is no number that could be summed",)] * 2
    )


def test_a_source_whose_rows_have_no_time_is_told_beside_one_whose_rows_have(
    sides: tuple[Topic, Topic], warehouse: Path
) -> None:
    left, right = sides
    sources = [Source(one.connection, one.name) for one in sides]
    given = {"name": "both", "sources": sources, "target": duckdb_at(warehouse), **CREATED, "window": tumbling()}
    left.write(events((1, "a", 5), (20, "a", 5)))
    right.write([{"when": at(2), "user": "b", "amount": 1}])
    with pytest.raises(PlanError, match="have no column 'at' for the time of events"):
        drain(stream_from_keywords(given, None))


EXACT = Aggregation(agg="count_distinct", column="amount", as_="it's", mode="exact", max_distinct_values_per_group=2)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_groups_per_window": 2}, r"window that begins at 2026-03-01T00:00:00.000Z has 3 groups, and may have 2"),
        deep({"aggregations": (EXACT,), "group_by": ()}, r"it's has more than 2 distinct values in one group"),
    ],
)
def test_too_much_in_one_window_fails_the_run(
    topic: Topic, warehouse: Path, change: dict[str, Any], message: str
) -> None:
    topic.write(events((1, "a", 5), (2, "b", 6), (3, "c", 7), (11, "a", 1)), partition=0)
    with pytest.raises(FlowError, match=message):
        drain(into(topic, warehouse, tumbling(**change)))


@udf(args=("Int64",), returns="Int64", name="with_tax")
def with_tax(amount: int) -> int:
    """Return an amount with its tax."""
    return amount * 2


@pytest.mark.deep
def test_windows_are_made_of_what_sql_lookups_and_functions_give(topic: Topic, warehouse: Path) -> None:
    rows_in(warehouse, "CREATE TABLE names AS SELECT * FROM (VALUES ('a', 'Ann'), ('b', 'Bob')) AS t(id, full_name)")
    sql = "SELECT s.*, n.full_name, with_tax(s.amount) AS paid FROM source s JOIN names n ON n.id = s.user"
    window = tumbling(
        event_time_column="_event_ts",
        group_by=("full_name",),
        aggregations=(*COUNT, Aggregation(agg="sum", column="paid", as_="paid")),
    )
    lookups = {"names": Lookup(connection=duckdb_at(warehouse), table="names", schema="main")}
    stream = into(topic, warehouse, window, transform_sql=sql, lookups=lookups, udfs=[with_tax])
    for second, user in ((1, "a"), (2, "a"), (3, "b"), (4, "nobody"), (15, "a")):
        topic.write([{"user": user, "amount": second}], partition=0, timestamp=int((BEGIN.timestamp() + second) * 1000))
    drain(stream)
    assert closed(warehouse, "full_name, n, paid") == [(0.0, "Ann", 2, 6), (0.0, "Bob", 1, 6)]


@pytest.fixture
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Connection:
    """Return a connection of the kind that a test names."""
    if request.param == "postgres":
        return connection_from_fields("place", {"kind": "postgres", "url": request.getfixturevalue("postgres_url")})
    if request.param == "sqlite":
        return connection_from_fields("place", {"kind": "sqlite", "path": str(tmp_path / "place.sqlite")})
    return connection_from_fields("place", lake_fields("delta_local", tmp_path / "lake"))


def stored(connection: Connection) -> list[tuple[Any, ...]]:
    """Return the bounds of windows and what is in them."""
    sql, fields = "SELECT window_start, window_end, {user}, n FROM {table} ORDER BY window_start", asdict(connection)
    if connection.kind == "postgres":
        with psycopg.connect(fields["url"]) as session:
            return session.execute(sql.format(table="shop.w", user='"user"')).fetchall()
    if connection.kind == "sqlite":
        with closing(sqlite3.connect(fields["path"])) as session:
            return session.execute(sql.format(table="w", user="user")).fetchall()
    # Delta is in a session that the load has begun.
    spark = session_for(Options())()
    rows = spark.read.format("delta").load(str(next(Path(fields["path"]).rglob("_delta_log")).parent))
    rows.createOrReplaceTempView("w")
    return [tuple(row) for row in spark.sql(sql.format(table="w", user="user")).collect()]


@pytest.mark.parametrize("target", ["postgres", deep("sqlite"), deep("delta")], indirect=True)
def test_reopened_windows_are_merged_into_other_targets(topic: Topic, target: Connection) -> None:
    window = tumbling(aggregations=COUNT, late_data="reopen", allowed_lateness_ms=60_000)
    keys = {"mode": "merge", "target_primary_key": ["window_start", "user"]}
    schema = "main" if target.kind == "sqlite" else "shop"
    stream = topic.stream(
        target, window=window, target_table=(schema, "w"), create_table=True, **keys, max_rows_per_batch=2
    )
    topic.write(events((1, "a", 5), (11, "a", 1), (2, "a", 5), (21, "a", 1)), partition=0)
    drain(stream)
    rows = [(instant_of(begin), instant_of(end), user, n) for begin, end, user, n in stored(target)]
    ends = [BEGIN + timedelta(seconds=s) for s in (0, 10, 20)]
    assert rows == [(ends[0], ends[1], "a", 2), (ends[1], ends[2], "a", 1)]


def instant_of(value: Any) -> datetime:
    """Return an instant as any target has it."""
    instant = datetime.fromisoformat(value) if isinstance(value, str) else value
    return instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC)


SESSION_IDS = [(4544691494226584394,), (5551627254261935155,), (8941328066801658907,)]
"""Made of the group and the beginning; tables that are merged by them hold them for years."""

TOML = """
pipeline_name = "by_file"
source_query = "{topic}"

[source]
kind = "kafka"
bootstrap_servers = "{address}"

[target]
kind = "duckdb"
path = "{path}"
create_table = true
[target.table]
schema = "shop"
name = "w"

[transform.window]
kind = "session"
gap_ms = 5000
max_session_duration_ms = 60000
event_time_column = "at"
group_by = ["user"]
max_groups_per_window = 1000

[[transform.window.aggregations]]
agg = "last"
column = "amount"
as = "latest"

[state_store]
kind = "postgres"
url = "postgresql://nowhere"
"""


@pytest.mark.deep
def test_a_session_of_a_file_has_an_id_that_stays(topic: Topic, warehouse: Path) -> None:
    text = TOML.format(topic=topic.name, address=topic.broker.address, path=warehouse)
    topic.write(events((1, "a", 5), (6, "a", 7), (3, "b", 1), (12.5, "a", 2), (30, "b", 1)), partition=0)
    stream = stream_from_toml(text)
    drain(stream)
    columns = [row[0] for row in rows_in(warehouse, "DESCRIBE shop.w")][:5]
    assert columns == ["window_start", "window_end", "session_id", "user", "latest"]
    sql = 'SELECT epoch(window_end) - epoch(window_start), "user", latest FROM shop.w ORDER BY window_start'
    assert rows_in(warehouse, sql) == [(10.0, "a", 7), (5.0, "b", 1), (5.0, "a", 2)]
    ids = rows_in(warehouse, "SELECT session_id FROM shop.w ORDER BY window_start")
    assert ids == SESSION_IDS


def test_a_look_ahead_at_a_stream_with_windows_changes_nothing(topic: Topic, warehouse: Path, tmp_path: Path) -> None:
    stream = into(topic, warehouse, tumbling())
    topic.write(events((1, "a", 5), (11, "a", 1)))
    for result in (preview_stream(stream), dry_run_stream(stream)):
        assert result.targets[0].dry_run_error is None
        assert any("the state of the stream decides" in note for note in result.notes)
    assert validate_stream(stream).errors == ()
    assert not warehouse.exists()
    assert not (tmp_path / "checkpoints").exists()


def test_the_local_engine_refuses_windows(topic: Topic, warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENGINE_VARIABLE, "local")
    with pytest.raises(UnsupportedError, match="window=, whose state Spark keeps") as raised:
        drain(into(topic, warehouse, tumbling()))
    assert "spark" in str(raised.value.hint)
    assert not warehouse.exists()


@pytest.mark.deep
def test_a_window_that_is_declared_otherwise_is_not_computed_from_what_is_remembered(
    topic: Topic, warehouse: Path
) -> None:
    target = {"target_table": ("shop", "w"), "create_table": True}
    topic.write(events((1, "a", 5)))
    drain(topic.stream(duckdb_at(warehouse), window=tumbling(), **target))
    topic.write(events((2, "a", 5)))
    more = (Aggregation(agg="count", as_="n"), Aggregation(agg="max", column="amount", as_="most"))
    with pytest.raises(StreamLostError, match=r"aggregations was .* and is .*max"):
        drain(topic.stream(duckdb_at(warehouse), window=tumbling(aggregations=more), **target))
    # What is not in the state may change: the names of columns, and how much is allowed.
    other = topic.stream(duckdb_at(warehouse), window=tumbling(max_groups_per_window=5), **target)
    drain(other)
    (status,) = stream_status(other, StreamOptions())
    assert status.state is not None
    assert (status.state.windows, status.state.watermark) == (1, BEGIN + timedelta(seconds=2))
    assert status.state.oldest == BEGIN


@pytest.mark.deep
@pytest.mark.parametrize("sql", [None, "SELECT user, amount, at FROM source WHERE amount > 0"], ids=["rows", "sql"])
def test_a_partition_that_is_read_more_slowly_has_no_late_rows(
    kafka_broker: KafkaBroker, warehouse: Path, sql: str | None
) -> None:
    topic = Topic(kafka_broker, kafka_broker.create_topic(2))
    topic.write(events((0, "few", 1), (40, "few", 1), (80, "few", 1)), partition=0)
    topic.write(events(*((seconds, "many", 1) for seconds in range(0, 100, 10))), partition=1)
    stream = topic.stream(
        duckdb_at(warehouse),
        target_table=("shop", "w"),
        create_table=True,
        window=tumbling(),
        transform_sql=sql,
        max_rows_per_batch=6,
    )
    drain(stream)
    topic.write(events((1000, "end", 1)), partition=1)
    drain(stream)
    rows = rows_in(warehouse, 'SELECT "user", SUM(n) FROM shop.w GROUP BY 1 ORDER BY 1')
    assert rows == [("few", 3), ("many", 10)]

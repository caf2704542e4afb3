# ruff: noqa: TC001 - annotations are looked up in this module while the tests run
"""Which parts of a stream go together: places per kind of connection, formats, state, joins and dead letters."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from ematix_flow import (
    CDC,
    Aggregation,
    BigInt,
    Connection,
    DeltaLocalConnection,
    IcebergConnection,
    Join,
    KafkaConnection,
    KinesisConnection,
    Lookup,
    ObjectStoreLocalConnection,
    PostgresConnection,
    PubSubConnection,
    RabbitMQConnection,
    SchemaRegistryConnection,
    Source,
    SQLiteConnection,
    StateStore,
    Target,
    Watermark,
    Window,
    ematix,
    pk,
    udaf,
    udf,
)
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.declare.stream.checks import check_stream

if TYPE_CHECKING:
    from ematix_flow.declare.stream.stream import Stream

kafka = KafkaConnection("kafka", "localhost:9092")
db = PostgresConnection("db", "postgres://localhost/x")
csv = ObjectStoreLocalConnection("csv", "/data", "csv")
parquet = ObjectStoreLocalConnection("parquet", "/data", "parquet")
jsonl = ObjectStoreLocalConnection("jsonl", "/data", "jsonl")
unknown = ObjectStoreLocalConnection("unknown", "/data", "${FORMAT}")
rabbit = RabbitMQConnection("rabbit", "amqp://localhost")
pubsub = PubSubConnection("pubsub", "project")
kinesis = KinesisConnection("kinesis", "stream")
delta = DeltaLocalConnection("delta", "/lake")
iceberg = IcebergConnection("iceberg", "hadoop", "/lake")
log = Target(connection=db, table=("a", "b"), mode="append")
history = Target(connection=db, table=("a", "b"), mode="scd2", keys=["id"])
store = StateStore("postgres", "postgres://localhost/state")
tumbling = Window("tumbling", [Aggregation("count", "n")], duration_ms=1000)  # type: ignore[arg-type]
session = Window("session", (Aggregation("count", "n"),), gap_ms=1, max_session_duration_ms=9, group_by=("user",))
join = Join("a", "b", ("id",), ("id",), time_window_ms=5)
two = [Source(kafka, "a"), Source(kafka, "b")]
three = [*two, Source(kafka, "c")]


@ematix.table(schema="main")
class Items:
    item_id: Annotated[BigInt, pk()]


@udf(args=["Int64"], returns="Int64")
def double(values: Any) -> Any:
    return values


@udaf(args=["Int64"], state=["Int64"], returns="Int64", name="double")
class Double:
    update_batch = merge_batch = evaluate = state = print


def declare(targets: list[Target] | None = None, **keywords: Any) -> Stream:
    where = {"targets": targets} if targets else {"target": db, "target_table": ("public", "events")}
    source = {} if "sources" in keywords else {"source": kafka, "source_query": "events"}
    return stream_from_keywords({"name": "s", **source, **where, **keywords}, None)


@pytest.mark.parametrize(
    ("connection", "location"),
    [
        (db, {"table": ("public", "t")}),
        (delta, {"table": ("public", "t"), "partition_by": ["day"], "primary_key": ["id"]}),
        (iceberg, {"table": Items}),
        (kafka, {"topic": "t", "message_key_column": "id"}),
        (pubsub, {"topic": "t"}),
        (rabbit, {"queue": "q"}),
        (kinesis, {"partition_key_prefix": "p"}),
        (csv, {"prefix": "a/b", "csv_delimiter": ";", "csv_read_options": {"has_header": False}}),
        (parquet, {"table": Items, "parquet_compression": "zstd"}),
        (parquet, {"table": Items, "prefix": "a"}),
        (jsonl, {"prefix": "a", "json_read_options": {"batch_size": 5}, "csv_read_options": {"quote": "'"}}),
        (unknown, {"prefix": "a", "csv_delimiter": ";"}),
    ],
)
def test_every_kind_has_its_place(connection: Connection, location: dict[str, Any]) -> None:
    target = declare([Target(connection=connection, **location)]).targets[0]
    assert target.connection is connection
    assert target.destination


@pytest.mark.parametrize(
    ("connection", "location", "message"),
    [
        (db, {}, "as a target needs table="),
        (db, {"topic": "t"}, "topic= does not go with postgres"),
        (delta, {"prefix": "t"}, "prefix= does not go with delta_local"),
        (kafka, {}, "needs topic="),
        (kafka, {"table": ("a", "b")}, "table= does not go with kafka"),
        (kafka, {"table": Items, "topic": "t"}, "table= does not go with kafka"),
        (pubsub, {"queue": "t"}, "it takes topic="),
        (rabbit, {"topic": "t"}, "it takes queue="),
        (kinesis, {}, "needs partition_key_prefix="),
        (csv, {}, "needs prefix="),
        (csv, {"table": ("a", "b")}, "table= does not go with object_store_local"),
        (csv, {"prefix": "a", "parquet_compression": "zstd"}, "is for parquet files, and these are csv"),
        (parquet, {"prefix": "a", "csv_header": False}, "is for csv files, and these are parquet"),
        (parquet, {"prefix": "a", "csv_read_options": {"quote": "'"}}, "is for csv files"),
        (jsonl, {"prefix": "a", "csv_read_options": {"quote": "'"}}, "is for csv files, and these are json_lines"),
        (csv, {"prefix": "a", "json_read_options": {"batch_size": 1}}, "is for json_lines files, and these are csv"),
        (parquet, {"prefix": "a", "json_read_options": {"batch_size": 1}}, "is for json_lines files"),
        (csv, {"prefix": "a", "csv_delimiter": ";;"}, "is not one ASCII character"),
        (csv, {"prefix": "a", "primary_key": ["id"]}, "primary_key= does not go with"),
        (db, {"table": Items, "message_key_column": "id"}, "message_key_column= does not go with a postgres"),
        (db, {"table": Items, "parquet_compression": "zstd"}, "parquet_compression= does not go with a postgres"),
        (kafka, {"topic": "t", "create_table": True}, "create_table= does not go with a kafka"),
        (SchemaRegistryConnection("r", "http://r"), {"topic": "t"}, "cannot write to schema_registry"),
        ("later", {}, "says where rows go once, not 0 times"),
        ("later", {"topic": "t", "queue": "q"}, "once, not 2 times"),
    ],
)
def test_a_place_of_another_kind_is_refused(connection: Any, location: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        declare([Target(connection=connection, **location)])


def test_a_name_is_judged_when_its_connection_is_known() -> None:
    stream = declare([Target(connection="later", topic="t")], sources=[Source("from", "events")])
    check_stream(stream, {"later": kafka, "from": rabbit}.get)
    with pytest.raises(ValueError, match="topic= does not go with postgres connection 'db'"):
        check_stream(stream, {"later": db, "from": rabbit}.get)
    with pytest.raises(ValueError, match="a stream cannot read from postgres connection 'db'"):
        check_stream(stream, {"later": kafka, "from": db}.get)


@pytest.mark.parametrize("source", [kafka, rabbit, pubsub, kinesis, csv, parquet, delta])
def test_streams_read_from_brokers_files_and_delta(source: Connection) -> None:
    assert declare(sources=[Source(source, "a")]).sources[0].connection is source


@pytest.mark.parametrize("source", [db, SQLiteConnection("x", ":memory:"), SchemaRegistryConnection("r", "http://r")])
def test_streams_do_not_read_from_databases(source: Connection) -> None:
    with pytest.raises(ValueError, match="cannot read from"):
        declare(sources=[Source(source, "a")])


def test_the_same_place_is_not_written_twice() -> None:
    with pytest.raises(ValueError, match=r"two targets are 'a.b' of connection 'db'"):
        declare([Target(connection=db, table=("a", "b"))] * 2)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"lookups": {"u": Lookup(db, "users")}}, "lookups= need transform_sql="),
        ({"udfs": [double]}, "need transform_sql="),
        ({"transform_sql": "x", "lookups": {"source": Lookup(db, "users")}}, "cannot be named 'source'"),
        ({"transform_sql": "x", "lookups": {"a b": Lookup(db, "users")}}, "cannot be named 'a b'"),
        ({"transform_sql": "x", "lookups": {"A": Lookup(db, "t"), "a": Lookup(db, "t")}}, "two lookups"),
        ({"transform_sql": "x", "lookups": {"u": Lookup(kafka, "users")}}, "lookup 'u' is on a kafka"),
        ({"transform_sql": "x", "udfs": [double, double]}, "two functions are named 'double'"),
        ({"transform_sql": "x", "udfs": [double], "aggregate_udfs": [Double]}, "two functions are named"),
        ({"cdc": CDC(), "window": tumbling}, "cdc= goes neither"),
        ({"cdc": CDC(), "targets": [Target(connection=csv, prefix="a")]}, "cdc= changes and deletes rows"),
        ({"cdc": CDC(missing_rows="ignore"), "targets": [log]}, "does not go with mode='append'"),
        ({"cdc": CDC(missing_rows="ignore"), "targets": [history]}, "does not go with mode='scd2'"),
        ({"window": session}, "a session window needs state_store="),
        ({"window": tumbling, "state_store": store}, "a tumbling window takes no state_store="),
        ({"join": join, "sources": two}, "a join needs state_store="),
        ({"join": join, "state_store": store}, "'a' of the join is the query of 0 sources"),
        ({"join": join, "state_store": store, "sources": three}, "join has two sources, and stream 's' has 3: a, b, c"),
        ({"join": join, "state_store": store, "sources": two, "transform_sql": "x"}, "takes no transform_sql="),
        ({"join": join, "state_store": store, "sources": two, "window": session}, "window= or join="),
        ({"dlq_store": "topic"}, "needs dead_letter_topic="),
        ({"dlq_store": "topic", "dead_letter_topic": "t", "sources": [Source(csv, "a")]}, "needs a Kafka source"),
    ],
)
def test_parts_that_do_not_go_together_are_refused(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        declare(**keywords)


def test_a_session_counts_distinct_values_exactly() -> None:
    about = replace(session, aggregations=(Aggregation("count_distinct", "n", "page"),))
    with pytest.raises(ValueError, match="approximate count_distinct"):
        declare(window=about, state_store=store)
    exact = Aggregation("count_distinct", "n", "page", mode="exact", max_distinct_values_per_group=100)
    assert declare(window=replace(session, aggregations=(exact,)), state_store=store).requires_state_store


def test_state_in_memory_is_warned_of_where_there_is_state() -> None:
    memory = StateStore("in_memory")
    with pytest.warns(UserWarning, match="stream 's' declares a state store in memory"):
        assert declare(join=join, sources=two, state_store=memory).is_stateful
    assert declare(state_store=memory, watermark=Watermark(0, 5)).state_store is memory


def test_a_dead_letter_topic_is_enough_where_the_source_is_only_named() -> None:
    stream = declare(sources=[Source("later", "a")], dlq_store="topic", dead_letter_topic="t", dlq_max_attempts=5)
    assert (stream.dlq_store, stream.dead_letter_topic, stream.dlq_max_attempts) == ("topic", "t", 5)

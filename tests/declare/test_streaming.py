# ruff: noqa: TC001 - annotations are looked up in this module while the tests run
"""`@ematix.streaming_pipeline` and its functions: what they accept, what they refuse and what reaches the engine."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import pytest

import ematix_flow
from ematix_flow import (
    BigInt,
    KafkaConnection,
    PostgresConnection,
    Source,
    Target,
    Text,
    ematix,
    pk,
    run_pipeline,
    run_streaming_pipeline,
    streaming,
)
from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.errors import FlowError

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.declare.stream.stream import Stream
    from tests.declare.conftest import StreamRequests

kafka = KafkaConnection("kafka", "localhost:9092")
db = PostgresConnection("db", "postgres://localhost/x")
LEAST = {"name": "s", "source": kafka, "source_query": "events", "target": db, "target_table": ("public", "events")}
TOML = """
pipeline_name = "s"
source_query = "events"
[source]
connection = "kafka"
[target]
connection = "db"
table = "public.events"
"""


@ematix.table(schema="main")
class Items:
    item_id: Annotated[BigInt, pk()]
    name: Text | None


def declare(**keywords: Any) -> Stream:
    return stream_from_keywords({**LEAST, **keywords}, None)


def none() -> None:
    return None


def one(conn: Any) -> str:
    return f"SELECT 1 -- {conn}"


def test_what_is_not_said_has_its_usual_value() -> None:
    stream = declare()
    assert (stream.idle_pause_ms, stream.dlq_store, stream.delivery) == (500, "auto", "auto")
    assert (stream.transform.sql, stream.transform.dialect, stream.transform.on_error) == (None, "datafusion", "fail")
    assert (stream.targets[0].write.mode, stream.targets[0].create_table) == ("append", False)
    assert (stream.max_rows_per_batch, stream.metrics_port, stream.dlq_max_attempts) == (None, None, None)
    assert not stream.is_stateful


def test_none_means_not_said() -> None:
    nothing = dict.fromkeys(("sources", "targets", "window", "lookups", "metrics_port", "mode", "udfs", "state_store"))
    assert declare(**nothing) == declare()


def test_a_stream_chooses_how_it_writes() -> None:
    write = declare(mode="scd1", keys="event_id", update_columns=["name"], late_horizon="2d", on_drift="evolve")
    assert write.targets[0].write.mode == "merge"
    assert write.targets[0].write.keys == ("event_id",)
    assert write.targets[0].write.late_horizon == timedelta(days=2)
    assert write.targets[0].write.on_drift == "evolve"


def test_targets_take_from_the_stream_what_they_do_not_say() -> None:
    stream = stream_from_keywords(
        {
            "name": "s",
            "sources": [Source(kafka, "a"), Source(kafka, "b")],
            "targets": [
                Target(connection=db, table=Items),
                Target(connection=db, table="main.log", mode="append"),
                Target(connection=kafka, topic="out", mode="append", message_key_column="item_id"),
                ematix.target(Items, mode="scd2", target_connection="lake", keys=["item_id"]),
            ],
            "mode": "merge",
            "keys": ["name"],
        },
        None,
    )
    assert [one.write.mode for one in stream.targets] == ["merge", "append", "append", "scd2"]
    assert [one.write.keys for one in stream.targets] == [("name",), None, None, ("item_id",)]
    assert [stream.key_of(one) for one in stream.targets] == ["main.items@db", "main.log", "out", "main.items@lake"]
    assert stream.fan_out


def test_two_sources_may_have_one_query_if_they_are_elsewhere() -> None:
    other = KafkaConnection("other", "localhost:9093")
    keywords = {key: value for key, value in LEAST.items() if not key.startswith("source")}
    stream = stream_from_keywords({**keywords, "sources": [Source(kafka, "t"), Source(other, "t")]}, None)
    assert [source.id for source in stream.sources] == ["t@kafka", "t@other"]


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"target_table": Items}, "main.items"),
        ({"target": Items, "target_table": None}, "main.items"),
        ({"target": Items, "target_table": None, "target_connection": "lake"}, "main.items"),
        ({"target_table": "public.events"}, "public.events"),
        ({"target_table": ["public", "events"], "create_table": True}, "public.events"),
        ({"target": kafka, "target_table": None, "target_topic": "out"}, "out"),
        ({"target": "somewhere", "target_table": None, "target_queue": "work"}, "work"),
        ({"source": "kafka", "source_topic": "events", "source_query": None}, "public.events"),
    ],
)
def test_the_place_of_a_target_has_several_spellings(keywords: dict[str, Any], message: str) -> None:
    assert declare(**keywords).targets[0].destination == message


@pytest.mark.parametrize(
    ("keywords", "error", "message"),
    [
        ({"taget": db}, TypeError, "did you mean 'target'?"),
        ({"source_topic": "x"}, TypeError, "says source_query twice"),
        ({"name": ""}, ValueError, "name= is empty"),
        ({"name": " a "}, ValueError, "blanks around it"),
        ({"name": 5}, TypeError, "name= takes text"),
        ({"source": None}, ValueError, "needs source= and source_query="),
        ({"source_query": None}, ValueError, "needs source= and source_query="),
        ({"sources": [Source(kafka, "a")]}, ValueError, "not both"),
        ({"source": None, "source_query": None, "sources": []}, ValueError, "sources= is empty"),
        ({"source": None, "source_query": None, "sources": [kafka]}, TypeError, "takes a list of Source"),
        ({"source": None, "source_query": None, "sources": [Source(kafka)]}, ValueError, "needs a query"),
        ({"source": None, "source_query": None, "sources": [Source(kafka, "a")] * 2}, ValueError, "read 'a'"),
        ({"source": 5}, TypeError, "source=5 is not a connection"),
        ({"source_query": " "}, ValueError, "query= is empty"),
        ({"target": None}, ValueError, "exactly one of target= and targets="),
        ({"targets": [Target(connection=db, table=Items)]}, ValueError, "targets= or target="),
        ({"target": None, "target_table": None, "targets": []}, ValueError, "targets= is empty"),
        ({"target": None, "target_table": None, "targets": [db]}, TypeError, r"takes Target\(...\)"),
        ({"target": None, "target_table": None, "targets": db}, TypeError, "takes a list"),
        ({"target": Items}, ValueError, "says its table twice"),
        ({"target_connection": "x"}, ValueError, "connection twice"),
        ({"target_table": "events"}, TypeError, "'events' is not a table"),
        ({"target_table": 5}, TypeError, "a table cannot be int"),
        ({"target_table": ("", "x")}, ValueError, "schema needs a name"),
        ({"target_table": Items, "target_partition_by": ["no"]}, KeyError, "no such column"),
        ({"create_table": "yes"}, TypeError, "create_table= takes true or false"),
        ({"mode": "truncate"}, ValueError, "cannot replace its target"),
        ({"mode": "upsert"}, NotImplementedError, "unknown mode 'upsert'"),
        ({"keys": ["id"]}, ValueError, "does not go with the mode of any target"),
        ({"idle_pause_ms": -1}, ValueError, "smaller than 0"),
        ({"idle_pause_ms": "1"}, TypeError, "takes a whole number"),
        ({"metrics_port": 70_000}, ValueError, "is no port"),
        ({"max_rows_per_batch": 0}, ValueError, "smaller than 1"),
        ({"dlq_max_attempts": 0}, ValueError, "smaller than 1"),
        ({"dlq_store": "tabel"}, ValueError, "did you mean 'table'?"),
        ({"delivery": "exactly-once"}, ValueError, "did you mean 'exactly_once'?"),
        ({"transform_sql": " "}, ValueError, "transform_sql= is empty"),
        ({"transform_on_error": "ignore"}, ValueError, "transform_on_error='ignore'"),
        ({"dialect": "oracle"}, ValueError, "duckdb, mysql, postgres, spark"),
        ({"optional_fields": ["nick"]}, ValueError, "optional_fields= need transform_sql="),
        ({"optional_fields": "nick"}, TypeError, "optional_fields= takes a list of names"),
        ({"optional_fields": {"nick": ""}}, ValueError, "nick= is empty"),
        ({"dead_letter_topic": ""}, ValueError, "dead_letter_topic= is empty"),
        ({"window": {"kind": "tumbling"}}, TypeError, r"window= takes Window\(...\), not dict"),
        ({"watermark": 5}, TypeError, r"takes Watermark\(...\)"),
        ({"udfs": print}, TypeError, "udfs= takes a list"),
        ({"udfs": [print]}, TypeError, r"what @udf\(...\) made"),
    ],
)
def test_a_wrong_stream_is_refused_with_its_line(
    keywords: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        ematix.streaming_pipeline(**{**LEAST, **keywords})(none)
    assert isinstance(caught.value, FlowError)
    assert caught.value.origin is not None
    assert caught.value.origin.file == __file__
    assert PROJECT.streams == {}


def test_a_target_says_nothing_that_a_stream_would_ignore() -> None:
    for option in ({"column_map": {"a": "b"}}, {"handle_deletes": "hard", "mode": "merge"}):
        keywords = {"targets": [Target(connection=db, table=Items, **option)]}
        with pytest.raises(ValueError, match="a target of a stream has no"):
            declare(target=None, target_table=None, **keywords)
    with pytest.raises(TypeError, match="a batch target has no create_table="):
        ematix.pipeline(targets=[Target(table=Items, create_table=True)], mode="append")(one)


def test_a_function_with_arguments_is_no_stream() -> None:
    with pytest.raises(TypeError, match="takes arguments"):
        ematix.streaming_pipeline(**LEAST)(one)  # type: ignore[arg-type, misc]


def test_a_name_belongs_to_one_stream_or_one_pipeline() -> None:
    ematix.streaming_pipeline(**LEAST)(none)
    with pytest.raises(ValueError, match="a stream named 's' is declared already"):
        ematix.streaming_pipeline(**LEAST)(none)
    with pytest.raises(ValueError, match="a stream named 's' is declared already"):
        ematix.pipeline(target=Items, mode="append", name="s")(one)
    ematix.pipeline(target=Items, mode="append", name="p")(one)
    with pytest.raises(ValueError, match="a pipeline named 'p' is declared already"):
        ematix.streaming_pipeline(**{**LEAST, "name": "p"})(none)


# Registry


def test_streams_are_found_by_name() -> None:
    handle = ematix.streaming_pipeline(**{**LEAST, "name": "b"})(none)
    stream = streaming.register_streaming_pipeline("a", {key: LEAST[key] for key in LEAST if key != "name"})
    assert streaming.list_streaming_pipelines() == ["a", "b"]
    assert streaming.get_streaming_pipeline("b").stream is handle.stream
    assert (stream.name, handle.__name__, repr(stream)) == ("a", "none", "<stream 'a'>")  # type: ignore[attr-defined]
    assert 'pipeline_name = "a"' in streaming.render_streaming_pipeline_toml("a")
    with pytest.raises(KeyError, match="no stream named 'c'"):
        streaming.get_streaming_pipeline("c")


def test_the_public_names_are_there() -> None:
    for name in ematix_flow.__all__:
        assert getattr(ematix_flow, name) is not None
    assert ematix_flow.streaming is streaming


# Running


def test_a_call_hands_the_stream_to_the_engine(requests: StreamRequests) -> None:
    handle = ematix.streaming_pipeline(**LEAST)(none)
    assert handle(metrics_port=9100, available_now=True)["shutdown_triggered"] is True
    run_streaming_pipeline(**LEAST)
    assert [stream.metrics_port for stream in requests.streams] == [9100, None]
    assert requests.options == [{"available_now": True}, {}]
    assert list(PROJECT.streams) == ["s"]


def test_a_configuration_runs_from_a_file_or_a_text(requests: StreamRequests, tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(TOML)
    run_pipeline(config=path, metrics_port=1, run_log_url="memory://", pipeline_name="s")
    run_pipeline(config_str=TOML)
    assert [stream.metrics_port for stream in requests.streams] == [1, None]
    assert requests.options == [{"run_log_url": "memory://"}, {}]


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({}, "exactly one of config= and config_str="),
        ({"config": "a", "config_str": TOML}, "exactly one of"),
        ({"config": "missing.toml"}, "missing.toml does not exist"),
        ({"config": "."}, "cannot be read"),
        ({"config_str": TOML, "pipeline_name": "t"}, "of stream 's', not 't'"),
        ({"config_str": TOML, "metrics_port": -1}, "smaller than 0"),
    ],
)
def test_a_configuration_that_cannot_run_is_a_value_error(
    keywords: Any, message: str, requests: StreamRequests
) -> None:
    with pytest.raises(ValueError, match=message):
        run_pipeline(**keywords)
    assert requests.streams == []

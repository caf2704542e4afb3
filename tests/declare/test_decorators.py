# ruff: noqa: TC001 - annotations are looked up in this module while the tests run
"""`@ematix.pipeline`, `@ematix.transform` and their targets: what they accept, and where a refusal points."""

from __future__ import annotations

import inspect
from datetime import timedelta
from typing import Annotated, Any

import pytest

from ematix_flow import BigInt, Target, Text, TimestampTZ, ematix, pk
from ematix_flow.declare.pipeline.pipeline import Retry
from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.table.class_body import table_of
from ematix_flow.errors import FlowError
from ematix_flow.pipeline import register
from ematix_flow.transforms import deduplicate_by, limit


@ematix.table(schema="analytics")
class Events:
    event_id: Annotated[BigInt, pk()]
    name: Text | None
    received_at: TimestampTZ


@ematix.table(schema="archive")
class Archive:
    event_id: Annotated[BigInt, pk()]


def one(conn: Any) -> str:
    return f"SELECT * FROM raw.events -- {conn}"


def none() -> None:
    return None


def three(source: Any, target: Any, more: Any) -> str:
    return f"{source}{target}{more}"


def test_a_pipeline_keeps_what_was_declared() -> None:
    handle = ematix.pipeline(
        target=Events,
        source_connection="raw_db",
        target_connection="warehouse",
        schedule="*/5 * * * *",
        timezone="Europe/Berlin",
        mode="scd1",
        compare_columns=["name"],
        column_map={"name": "title"},
        transforms_pre=[deduplicate_by("event_id")],
        transforms_post=["ANALYZE analytics.events", ematix.transform_ref("mart"), print],
        retry={"max_attempts": 2},
        upstream_freshness="1h",
        force_path="cross_db",
    )(one)
    declared = PROJECT.pipeline("one")
    assert handle.pipeline is declared
    assert (declared.source_connection, declared.targets[0].connection) == ("raw_db", "warehouse")
    assert declared.targets[0].table is table_of(Events)
    assert declared.targets[0].write.mode == "merge"
    assert declared.targets[0].write.compare_columns == ("name",)
    assert declared.targets[0].column_map == {"name": "title"}
    assert declared.retry == Retry(2)
    assert declared.upstream_freshness == timedelta(hours=1)
    assert [type(step).__name__ for step in declared.transforms_post] == [
        "str", "TransformRef", "builtin_function_or_method"
    ]  # fmt: skip
    assert not declared.fan_out


def test_job_is_another_word_for_pipeline() -> None:
    ematix.job(target=Events, mode="append", name="nightly")(one)
    assert PROJECT.pipeline("nightly").schedule is None


def test_the_source_is_read_from_the_targets_connection_unless_one_is_named() -> None:
    ematix.pipeline(target=Events, mode="append", target_connection="warehouse")(one)
    assert PROJECT.pipeline("one").source_ref() == "warehouse"


@pytest.mark.parametrize(
    ("keywords", "function", "error", "message"),
    [
        ({"mode": "append"}, one, TypeError, "exactly one of target= and targets="),
        ({"target": Events, "targets": [Target(table=Events)], "mode": "append"}, one, TypeError, "exactly one"),
        ({"targets": [], "mode": "append"}, one, TypeError, "targets= is empty"),
        ({"targets": [Events], "mode": "append"}, one, TypeError, "is not a target"),
        ({"targets": [Target(table=("s", "t"))], "mode": "append"}, one, TypeError, "needs table="),
        ({"targets": [Target(table=Events, topic="x")], "mode": "append"}, one, TypeError, "no topic="),
        ({"target": Events}, one, TypeError, "needs a mode"),
        ({"target": "events", "mode": "append"}, one, TypeError, "'events' is not a table"),
        ({"target": Events, "mode": "append"}, three, TypeError, "takes 3 connections"),
        ({"target": Events, "mode": "append"}, none, TypeError, "no source_table="),
        ({"target": Events, "mode": "append", "key": ["event_id"]}, one, TypeError, "did you mean 'keys'?"),
        ({"target": Events, "mode": "upsert"}, one, NotImplementedError, "unknown mode 'upsert'"),
        ({"target": Events, "mode": "append", "schedule": "99 * * * *"}, one, ValueError, "never fires"),
        ({"target": Events, "mode": "append", "timezone": "Mars/X"}, one, ValueError, "IANA"),
        ({"target": Events, "mode": "append", "source_table": "events"}, none, ValueError, "is not schema.table"),
        ({"target": Events, "mode": "append", "source_table": "a.b.c"}, none, ValueError, "is not schema.table"),
        ({"target": Events, "mode": "append", "source_table": ".b"}, none, ValueError, "is not schema.table"),
        ({"target": Events, "mode": "append", "force_path": "fast"}, one, ValueError, "force_path='fast'"),
        ({"target": Events, "mode": "append", "on_drift": "x"}, one, ValueError, "on_drift='x'"),
        ({"target": Events, "mode": "append", "retry": {"max": 1}}, one, ValueError, "retry has no key 'max'"),
        ({"target": Events, "mode": "append", "depends_on": ["zzz"]}, one, ValueError, "not declared before it"),
        ({"target": Events, "mode": "append", "depends_on": "one"}, one, ValueError, "depends on itself"),
        ({"target": Events, "mode": "append", "transforms_pre": ["x > 1"]}, one, TypeError, "not a pre-load transform"),
        (
            {"target": Events, "mode": "append", "incremental_column": "event_id", "transforms_pre": [limit(5)]},
            one,
            ValueError,
            "limit() leaves rows out",
        ),
        (
            {"target": Events, "mode": "merge", "incremental": "files", "transforms_pre": [limit(5)]},
            one,
            ValueError,
            "limit() leaves rows out",
        ),
        ({"target": Events, "mode": "append", "transforms_post": [5]}, one, TypeError, "cannot be int"),
        ({"target": Events, "mode": "append", "transforms_post": "ANALYZE"}, one, TypeError, '["ANALYZE"]'),
        ({"target": Events, "mode": "append", "transforms_post": print}, one, TypeError, "takes a list of steps"),
        ({"target": Events, "mode": ["append"]}, one, TypeError, "mode= takes one word, not list"),
        ({"target": Events, "mode": "merge", "keys": 5}, one, TypeError, "keys= takes column names, not int"),
        ({"targets": Target(table=Events), "mode": "append"}, one, TypeError, "targets= takes a list, not Target"),
        ({"target": Events, "mode": "append", "depends_on": 5}, one, TypeError, "depends_on= takes names, not int"),
    ],
)
def test_a_wrong_declaration_is_refused_with_its_line(
    keywords: dict[str, Any], function: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        ematix.pipeline(**keywords)(function)
    assert isinstance(caught.value, FlowError)
    assert message in str(caught.value)
    assert caught.value.origin is not None
    assert caught.value.origin.file == __file__
    assert PROJECT.pipelines == {}


class Undecorated:
    kind = "sqlite"
    path = "x.db"


@pytest.mark.parametrize(
    ("value", "shown"), [(5, "5"), (Undecorated, "Undecorated"), ({"url": "postgres://me:secret@h/d"}, "dict")]
)
def test_what_is_no_connection_is_refused_where_it_is_written(value: Any, shown: str) -> None:
    for keyword in ("target_connection", "source_connection"):
        message = f"{keyword}={shown} is not a connection; is @ematix.connection missing"
        with pytest.raises(TypeError, match=message) as caught:
            ematix.pipeline(target=Events, mode="append", **{keyword: value})(one)
        assert "secret" not in str(caught.value)
    with pytest.raises(TypeError, match="is not a connection"):
        ematix.target(Events, mode="append", target_connection=value)
    with pytest.raises(TypeError, match="is not a connection") as caught:
        ematix.transform(target_connection=value)(one)
    assert f"At:   {__file__}" in str(caught.value)


def test_the_line_of_a_refusal_is_the_line_of_the_decorator() -> None:
    frame = inspect.currentframe()
    assert frame is not None
    line = frame.f_lineno + 3
    with pytest.raises(TypeError) as caught:

        @ematix.pipeline(
            target=Events,
            mode="append",
            shedule="* * * * *",
        )
        def late(conn: Any) -> str:
            return str(conn)

    assert str(caught.value).endswith(f"At:   {__file__}:{line}")


def test_a_name_is_used_once_per_process() -> None:
    ematix.pipeline(target=Events, mode="append")(one)
    with pytest.raises(ValueError, match="a pipeline named 'one' is declared already"):
        ematix.pipeline(target=Archive, mode="append")(one)
    ematix.pipeline(target=Archive, mode="append", name="two")(one)
    assert sorted(PROJECT.pipelines) == ["one", "two"]


# Fan-out


def test_both_spellings_of_a_target_list_mean_the_same() -> None:
    ematix.pipeline(
        targets=[Target(table=Events, connection="warehouse"), Target(table=Archive, connection="lake")],
        mode="merge",
        name="seed",
    )(one)
    ematix.pipeline(
        targets=[
            ematix.target(Events, mode="merge", target_connection="warehouse"),
            ematix.target(Archive, mode="merge", target_connection="lake"),
        ],
        name="other",
    )(one)
    assert PROJECT.pipeline("seed").targets == PROJECT.pipeline("other").targets
    assert PROJECT.pipeline("seed").fan_out


def test_a_target_may_say_more_than_its_pipeline() -> None:
    ematix.pipeline(
        targets=[Target(table=Events, mode="append"), Target(table=Archive, connection="lake")],
        mode="truncate",
        target_connection="warehouse",
        continue_on_target_failure=True,
    )(one)
    first, second = PROJECT.pipeline("one").targets
    assert (first.write.mode, first.connection) == ("append", "warehouse")
    assert (second.write.mode, second.connection) == ("truncate", "lake")
    assert PROJECT.pipeline("one").continue_on_failure


def test_a_target_without_any_mode_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="needs a mode"):
        ematix.target(Events)


# Dependencies


def test_depends_on_takes_names_and_pipelines() -> None:
    first = ematix.pipeline(target=Events, mode="append", name="first")(one)
    ematix.pipeline(target=Events, mode="append", name="second", depends_on=first)(one)
    ematix.pipeline(target=Events, mode="append", name="third", depends_on=[first, "second"])(one)
    assert PROJECT.pipeline("second").depends_on == ("first",)
    assert PROJECT.pipeline("third").depends_on == ("first", "second")


# Transforms


def test_a_transform_takes_a_connection_and_perhaps_its_parent() -> None:
    @ematix.transform
    def bare(conn: Any) -> str:
        return f"ran on {conn}"

    @ematix.transform(name="named", target_connection="warehouse", schedule="0 3 * * *")
    def with_parent(conn: Any, parent: Any) -> tuple[Any, Any]:
        return conn, parent

    assert bare("x") == "ran on x"
    assert with_parent(1, 2) == (1, 2)
    assert PROJECT.transform("named").connection == "warehouse"
    assert sorted(PROJECT.transforms) == ["bare", "named"]


@pytest.mark.parametrize("function", [none, three])
def test_a_transform_of_another_arity_is_a_type_error(function: Any) -> None:
    with pytest.raises(TypeError, match=r"a transform takes \(conn\) or \(conn, parent\)"):
        ematix.transform(function)


def test_a_transform_name_is_used_once() -> None:
    ematix.transform(one)
    with pytest.raises(ValueError, match="a transform named 'one' is declared already") as caught:
        ematix.transform(one)
    assert isinstance(caught.value, FlowError)
    assert str(caught.value.origin).startswith(__file__)


# Plain functions


def test_a_plain_function_becomes_a_pipeline_and_stays_itself() -> None:
    @register(name="nightly", schedule="0 2 * * *", retry={"max_attempts": 2}, timezone="UTC")
    def nightly() -> str:
        return "done"

    assert nightly() == "done"
    assert PROJECT.pipeline("nightly").targets == ()
    assert PROJECT.pipeline("nightly").retry == Retry(2)


@pytest.mark.parametrize(
    ("keywords", "function", "error"),
    [
        ({"depends_on": ["n"]}, none, ValueError),
        ({"depends_on": ["unknown"]}, none, ValueError),
        ({"retry": {"max_attempts": 0}}, none, ValueError),
        ({"timezone": "Mars/X"}, none, ValueError),
        ({"upstream_freshness_secs": -1}, none, ValueError),
        ({}, one, TypeError),
    ],
)
def test_register_refuses_what_a_pipeline_refuses(keywords: Any, function: Any, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        register(name="n", schedule=None, **keywords)(function)
    assert isinstance(caught.value, FlowError)
    assert str(caught.value.origin).startswith(__file__)


def test_register_takes_a_name_once() -> None:
    register(name="n", schedule=None)(none)
    with pytest.raises(ValueError, match="declared already"):
        register(name="n", schedule=None)(none)

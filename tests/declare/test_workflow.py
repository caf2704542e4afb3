"""Workflows as declared: conditions, and everything that is refused before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow import AllOf, AnyOf, BigInt, Source, TriggerOp, ematix, register_connection  # noqa: TC001 - read from annotations
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.pipeline.function_pipeline import register
from ematix_flow.declare.project import PROJECT
from ematix_flow.workflow import Workflow, workflow

if TYPE_CHECKING:
    from pathlib import Path

HOURLY = "0 * * * *"


@pytest.fixture(autouse=True)
def pipelines() -> None:
    for name in ("raw", "clean", "mart"):
        register(name=name, schedule=None)(lambda: None)


@pytest.fixture
def stream(tmp_path: Path) -> str:
    register_connection(
        connection_from_fields("inbox", {"kind": "object_store_local", "path": str(tmp_path), "format": "csv"})
    )
    register_connection(connection_from_fields("lite", {"kind": "sqlite", "path": str(tmp_path / "lite.db")}))

    @ematix.table(schema="main", name="events")
    class Events:
        id: BigInt

    ematix.streaming_pipeline(
        name="events", source="inbox", source_query="*.csv", target=Events, target_connection="lite", mode="append"
    )(lambda: None)
    return "events"


def test_a_workflow_is_given_back_and_known_by_its_name() -> None:
    nightly = ematix.workflow(name="nightly", jobs=["raw", "clean"], schedule="0 2 * * *", timezone="Europe/Berlin")
    assert isinstance(nightly, Workflow)
    assert (nightly.name, nightly.jobs, nightly.schedule, nightly.timezone) == (
        "nightly",
        ("raw", "clean"),
        "0 2 * * *",
        "Europe/Berlin",
    )
    assert PROJECT.workflows == {"nightly": nightly}
    assert PROJECT.jobs == {"raw": nightly, "clean": nightly}
    assert nightly.origin is not None
    assert "test_workflow.py" in str(nightly.origin)


def test_conditions_nest_and_tell_their_names_once_in_order() -> None:
    condition = AllOf("a", AnyOf("b", AllOf("c", "a")), "d")
    assert condition == TriggerOp("all", ("a", TriggerOp("any", ("b", TriggerOp("all", ("c", "a")))), "d"))
    assert condition.leaves() == ("a", "b", "c", "d")
    assert str(condition) == "all(a, any(b, all(c, a)), d)"


@pytest.mark.parametrize("given", ["raw", ["raw"], AllOf("raw")])
def test_a_name_or_a_list_means_all_of_them(given: Any) -> None:
    assert workflow(name="w", jobs=["mart"], triggered_by=given).triggered_by == AllOf("raw")


def test_members_may_be_the_declared_things_themselves() -> None:
    first = workflow(name="first", jobs=[PROJECT.pipelines["raw"]], schedule=HOURLY)
    second = workflow(name="second", jobs=["mart"], triggered_by=AnyOf(first, PROJECT.pipelines["clean"]))
    assert first.jobs == ("raw",)
    assert second.triggered_by == AnyOf("first", "clean")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": ""}, "name='' must be a name"),
        ({"name": 7}, "name=7 must be a name"),
        ({"jobs": []}, "needs at least one job"),
        ({"jobs": "mart"}, "needs at least one job"),
        ({"jobs": ["mart", "mart"]}, "job 'mart' stands there twice"),
        ({"jobs": ["marts"]}, "job 'marts' is not declared(.|\n)*mart"),
        ({"triggered_by": ["raw", "raw"]}, "upstream 'raw' stands there twice"),
        ({"triggered_by": "row"}, "triggered by 'row', which is not declared before it(.|\n)*raw"),
        ({"schedule": None}, "nothing sets workflow 'w' off"),
        ({"schedule": None, "triggered_by": "raw", "timezone": "UTC"}, "timezone= belongs to schedule="),
        ({"schedule": "every hour"}, "is not a cron expression"),
        ({"timezone": "Mars/Olympus"}, "is not an IANA time zone"),
        ({"on_message": Source("inbox", query="*")}, "on_message= cannot be combined"),
        (
            {"schedule": None, "on_message": Source("inbox", query="*"), "triggered_by": "raw"},
            "on_message= cannot be combined",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_its_place(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        workflow(**{"name": "w", "jobs": ["mart"], "schedule": HOURLY, **given})
    assert "test_workflow.py" in str(caught.value)
    assert not PROJECT.workflows
    assert not PROJECT.jobs


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"depends_on": ["raw"]}, "no keyword 'depends_on'(.|\n)*triggered_by="),
        ({"scedule": HOURLY}, "no keyword 'scedule'(.|\n)*schedule"),
        ({"on_message": "topic"}, "on_message= takes Source"),
    ],
)
def test_words_that_a_workflow_does_not_take_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        workflow(**{"name": "w", "jobs": ["mart"], **given})


@pytest.mark.parametrize("operator", [AllOf, AnyOf])
def test_a_condition_needs_members_and_each_once(operator: Any) -> None:
    with pytest.raises(ValueError, match="needs at least one pipeline"):
        operator()
    with pytest.raises(ValueError, match="'raw' stands there twice"):
        operator("raw", "clean", "raw")


def test_a_second_workflow_of_the_same_name_is_refused() -> None:
    workflow(name="w", jobs=["mart"], schedule=HOURLY)
    with pytest.raises(ValueError, match="workflow named 'w' is declared already"):
        workflow(name="w", jobs=["raw"], schedule=HOURLY)
    assert PROJECT.jobs.keys() == {"mart"}


def test_a_job_that_moves_to_another_workflow_is_warned_of() -> None:
    workflow(name="old", jobs=["mart", "raw"], schedule=HOURLY)
    with pytest.warns(UserWarning, match="job 'mart' moves from workflow 'old' to 'new'"):
        new = workflow(name="new", jobs=["mart"], schedule=HOURLY)
    assert PROJECT.jobs["mart"] is new
    assert PROJECT.jobs["raw"].name == "old"


def test_a_workflow_with_a_stream_takes_no_trigger(stream: str) -> None:
    with pytest.raises(ValueError, match="'events' is a stream, which runs all the time"):
        workflow(name="w", jobs=[stream, "mart"], schedule=HOURLY)
    declared = workflow(name="w", jobs=[stream, "mart"])
    assert declared.jobs == ("events", "mart")


def test_a_workflow_that_sets_itself_off_through_its_jobs_is_refused_and_the_circle_is_named() -> None:
    for name in ("p1", "p2", "p3"):
        register(name=name, schedule=None)(lambda: None)
    with pytest.raises(ValueError, match="'own' sets itself off for ever: workflow own -> p1 -> workflow own"):
        workflow(name="own", jobs=["p1", "p2"], triggered_by=AnyOf("p3", "p1"))
    assert "own" not in PROJECT.workflows
    workflow(name="first", jobs=["p2"], triggered_by="p1")
    workflow(name="second", jobs=["p3"], triggered_by="first")
    circle = "workflow third -> p1 -> workflow first -> workflow second -> workflow third"
    with pytest.raises(ValueError, match=f"'third' sets itself off for ever: {circle}"):
        workflow(name="third", jobs=["p1"], triggered_by="second")
    workflow(name="third", jobs=["p1"], schedule="0 * * * *")  # what nothing of its own sets off may be a job

"""Workflows that run: what sets them off fires once, whoever looks and how often, and what their jobs do ends them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow import AllOf, AnyOf, Source, register_connection
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.schedule.workflow import workflow
from ematix_flow.engine.schedule import actions, message_triggers
from ematix_flow.plan.schedule.cron import slot_text
from ematix_flow.plan.schedule.retry import begun
from tests.engine.schedules import HOURLY, NOON, ticked
from tests.services.topics import fill

if TYPE_CHECKING:
    from pathlib import Path

    from tests.engine.schedules import Rig
    from tests.services.kafka import KafkaBroker


def succeed(rig: Rig, *names: str) -> None:
    """Let pipelines that nobody schedules run once, each at a second of its own."""
    for name in names:
        rig.pass_time(1)
        rig.log.record_run(name, rig.now, success=True)


def unscheduled(rig: Rig, *names: str) -> None:
    for name in names:
        rig.add(name, None)


@pytest.mark.slow
def test_a_schedule_sets_the_jobs_off_once_in_their_order(rig: Rig) -> None:
    rig.add("mart", None)
    rig.add("raw", None, priority=5)
    workflow(name="hourly", jobs=["mart", "raw"], schedule=HOURLY)
    for _ in range(3):
        rig.due()
    assert rig.ran == ["raw", "mart"]
    assert (rig.workflow("hourly").slot_status, rig.workflow("hourly").last_slot) == ("succeeded", slot_text(NOON))
    rig.pass_time(3600)
    rig.due()
    assert rig.ran == ["raw", "mart"] * 2


def test_jobs_wait_for_each_other_by_depends_on(rig: Rig) -> None:
    rig.add("raw", None)
    rig.add("mart", None, depends_on=["raw"], priority=9)
    workflow(name="w", jobs=["mart", "raw"], schedule=HOURLY)
    first = rig.scheduler()
    ticked(first)
    assert rig.ran == ["raw"]
    assert rig.skipped() == {"mart": "upstream not fresh: raw"}
    ticked(first)
    assert rig.ran == ["raw", "mart"]


@pytest.mark.slow
def test_an_upstream_sets_a_workflow_off_once_for_each_success(rig: Rig) -> None:
    unscheduled(rig, "job")
    rig.add("up", "*/10 * * * *")
    workflow(name="w", jobs=["job"], triggered_by="up")
    one, two = rig.scheduler("one"), rig.scheduler("two")
    for _ in range(4):
        ticked(one)
        ticked(two)
    assert rig.ran == ["up", "job"]
    rig.pass_time(600)
    for _ in range(4):
        ticked(two)
        ticked(one)
    assert rig.ran == ["up", "job"] * 2


def test_all_of_waits_for_everybody_since_the_last_time(rig: Rig) -> None:
    unscheduled(rig, "a", "b", "job")
    workflow(name="w", jobs=["job"], triggered_by=AllOf("a", "b"))
    succeed(rig, "a", "a")
    rig.due()
    assert rig.ran == []
    succeed(rig, "b")
    rig.due()
    assert rig.ran == ["job"]
    succeed(rig, "b")
    rig.due()
    assert rig.ran == ["job"]  # a has not succeeded since
    succeed(rig, "a")
    rig.due()
    assert rig.ran == ["job", "job"]


@pytest.mark.slow
def test_any_of_fires_for_each_of_them(rig: Rig) -> None:
    unscheduled(rig, "a", "b", "job")
    workflow(name="w", jobs=["job"], triggered_by=AnyOf("a", "b"))
    for name in ("a", "b", "b"):
        succeed(rig, name)
        rig.due()
        rig.due()
    assert rig.ran == ["job"] * 3
    succeed(rig, "a", "b")  # both before anybody looked
    rig.due()
    rig.due()
    assert rig.ran == ["job"] * 4


@pytest.mark.parametrize(
    ("successes", "fires"),
    [(["a"], False), (["a", "b"], True), (["a", "c"], False), (["a", "c", "d"], True), (["c", "d"], False)],
)
def test_conditions_nest(rig: Rig, successes: list[str], fires: bool) -> None:
    unscheduled(rig, "a", "b", "c", "d", "job")
    workflow(name="w", jobs=["job"], triggered_by=AllOf("a", AnyOf("b", AllOf("c", "d"))))
    succeed(rig, *successes)
    rig.due()
    assert rig.ran == (["job"] if fires else [])


@pytest.mark.slow
def test_a_failure_of_an_upstream_sets_nothing_off(rig: Rig) -> None:
    rig.add("up")
    unscheduled(rig, "job")
    workflow(name="w", jobs=["job"], triggered_by="up")
    rig.broken.add("up")
    rig.due()
    rig.due()
    assert rig.ran == ["up"]
    rig.broken.clear()
    rig.pass_time(3600)
    rig.due()
    assert rig.ran == ["up", "up", "job"]


@pytest.mark.slow
def test_a_job_that_fails_fails_the_workflow_and_the_next_slot_runs(rig: Rig) -> None:
    unscheduled(rig, "good", "bad", "after")
    workflow(name="w", jobs=["good", "bad"], schedule=HOURLY)
    workflow(name="then", jobs=["after"], triggered_by="w")
    rig.broken.add("bad")
    rig.due()
    rig.due()
    state = rig.workflow("w")
    assert (state.slot_status, state.last_outcome, state.error) == ("gave_up", "failure", "bad failed")
    assert rig.ran == ["good", "bad"]
    rig.broken.clear()
    rig.pass_time(3600)
    rig.due()
    rig.due()
    assert rig.ran == ["good", "bad", "good", "bad", "after"]
    assert rig.workflow("w").slot_status == "succeeded"


def test_a_job_is_tried_again_before_the_workflow_fails(rig: Rig) -> None:
    rig.add("job", None, retry={"max_attempts": 2, "base_secs": 30})
    workflow(name="w", jobs=["job"], schedule=HOURLY)
    rig.broken.add("job")
    rig.due()
    assert rig.workflow("w").slot_status == "running"
    rig.broken.clear()
    rig.pass_time(30)
    rig.due()
    rig.due()
    assert rig.ran == ["job", "job"]
    assert rig.workflow("w").slot_status == "succeeded"


@pytest.mark.slow
def test_workflows_follow_each_other_in_one_round(rig: Rig) -> None:
    unscheduled(rig, "a", "b", "c")
    first = workflow(name="first", jobs=["a"], schedule=HOURLY)
    second = workflow(name="second", jobs=["b"], triggered_by=first)
    workflow(name="third", jobs=["c"], triggered_by=AllOf(first, second))
    rig.due()
    assert rig.ran == ["a", "b", "c"]
    for _ in range(3):
        rig.due()
    assert rig.ran == ["a", "b", "c"]


def test_a_paused_workflow_is_not_set_off_and_catches_up_once(rig: Rig) -> None:
    unscheduled(rig, "up", "job")
    declared = workflow(name="w", jobs=["job"], triggered_by="up")
    actions.pause(rig.log, declared.key, "anna")
    succeed(rig, "up", "up")
    rig.due()
    assert rig.ran == []
    actions.unpause(rig.log, declared.key, "anna")
    rig.due()
    rig.due()
    assert rig.ran == ["job"]


def test_a_success_while_the_workflow_runs_sets_it_off_again(rig: Rig) -> None:
    unscheduled(rig, "up")
    rig.add("job", None, work=lambda: succeed(rig, "up") if rig.ran.count("job") == 1 else None)
    workflow(name="w", jobs=["job"], triggered_by="up")
    succeed(rig, "up")
    rig.due()
    rig.due()
    assert rig.ran == ["job", "job"]


@pytest.mark.slow
def test_a_schedule_and_upstreams_beside_each_other(rig: Rig) -> None:
    unscheduled(rig, "up", "job")
    workflow(name="w", jobs=["job"], triggered_by="up", schedule=HOURLY)
    rig.due()
    rig.pass_time(60)
    succeed(rig, "up")
    rig.due()
    rig.due()
    assert rig.ran == ["job", "job"]
    rig.now = NOON + timedelta(hours=1, seconds=1)
    rig.due()
    rig.due()
    assert rig.ran == ["job"] * 3


def inbox(tmp_path: Path) -> Source:
    fields = {"kind": "object_store_local", "path": str(tmp_path), "format": "csv"}
    return Source(register_connection(connection_from_fields("inbox", fields)), query="*.csv")


@pytest.mark.slow
def test_new_files_set_a_workflow_off_once(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_text("id\n1\n")
    unscheduled(rig, "job")
    workflow(name="w", jobs=["job"], on_message=inbox(tmp_path))
    rig.due()
    rig.due()
    assert rig.ran == []  # what was there before anybody looked is not news
    for number in range(2):
        rig.pass_time(1)
        (tmp_path / f"new{number}.csv").write_text("id\n2\n")
        (tmp_path / "ignored.txt").write_text(str(number))
        for _ in range(3):
            rig.due()
        assert rig.ran == ["job"] * (number + 1)


@pytest.mark.slow
def test_files_that_come_while_the_jobs_run_are_seen_afterwards(rig: Rig, tmp_path: Path) -> None:
    rig.add("job", None, work=lambda: (tmp_path / f"during{min(2, len(rig.ran))}.csv").write_text("id\n3\n"))
    workflow(name="w", jobs=["job"], on_message=inbox(tmp_path))
    rig.due()
    (tmp_path / "first.csv").write_text("id\n1\n")
    for _ in range(3):
        rig.due()
    assert rig.ran[:2] == ["job", "job"]


def test_a_source_that_is_away_holds_up_its_own_workflow_only(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_triggers, "WAIT_SECONDS", 0.01)
    rig.add("other")
    unscheduled(rig, "job")
    away = connection_from_fields("away", {"kind": "kafka", "bootstrap_servers": "127.0.0.1:1"})
    workflow(name="w", jobs=["job"], on_message=Source(register_connection(away), query="t"))
    for _ in range(2):  # the same look is asked for its answer, and nothing waits for it
        with pytest.warns(UserWarning, match="workflow 'w' cannot be checked for messages: t has not answered"):
            rig.due()
        rig.pass_time(3600)
    assert rig.ran == ["other", "other"]


@pytest.mark.slow
def test_messages_set_jobs_off_when_the_clock_was_set_back(rig: Rig, tmp_path: Path) -> None:
    unscheduled(rig, "job")
    workflow(name="w", jobs=["job"], on_message=inbox(tmp_path))
    rig.due()
    for number in range(3):
        rig.pass_time(-3600)
        (tmp_path / f"new{number}.csv").write_text("id\n2\n")
        rig.due()
    assert rig.ran == ["job"] * 3


def test_a_queue_that_cannot_be_looked_at_says_so(rig: Rig) -> None:
    unscheduled(rig, "job")
    queue = connection_from_fields("queue", {"kind": "rabbitmq", "url": "amqp://127.0.0.1:1"})
    workflow(name="w", jobs=["job"], on_message=Source(register_connection(queue), query="q"))
    with pytest.warns(UserWarning, match="cannot watch rabbitmq without consuming messages"):
        rig.due()


@pytest.mark.service
def test_messages_of_a_topic_set_a_workflow_off_and_stay_there(rig: Rig, kafka_broker: KafkaBroker) -> None:
    topic = kafka_broker.create_topic()
    fields: dict[str, Any] = {"kind": "kafka", "bootstrap_servers": kafka_broker.address}
    unscheduled(rig, "job")
    source = Source(register_connection(connection_from_fields("events", fields)), query=topic)
    workflow(name="w", jobs=["job"], on_message=source)
    fill(kafka_broker.address, topic, [b"1"])
    rig.due()
    assert rig.ran == []
    for expected in (1, 2):
        rig.pass_time(1)
        fill(kafka_broker.address, topic, [b"2", b"3"])
        rig.due()
        rig.due("two")
        assert rig.ran == ["job"] * expected


def test_a_cancelled_workflow_sets_no_further_job_off(rig: Rig) -> None:
    rig.add("first", None)
    rig.add("second", None, depends_on=["first"])
    workflow(name="both", jobs=["first", "second"], schedule=HOURLY)
    rig.broken.add("first")
    rig.log.change_state("workflow:both", lambda state: begun(state, slot_text(NOON), NOON))
    assert actions.cancel(rig.log, "workflow:both", "anna")
    assert (rig.workflow("both").slot_status, rig.workflow("both").error) == ("cancelled", "cancelled by anna")
    rig.due()
    assert rig.ran == []

"""What operators ask for: pause, resume, cancel and run again, by name, by slot and by the beginning of a run's id."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.commit.runlog.open import sqlite_run_log
from ematix_flow.commit.runlog.records import Action
from ematix_flow.declare.project import load_module
from ematix_flow.engine.schedule.run_due import run_due
from ematix_flow.engine.schedule.slot_run import SlotRunner
from ematix_flow.plan.schedule.cron import around, slot_text
from ematix_flow.records import PipelineState

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.commit.runlog.log import RunLog

    Flow = Callable[..., Any]

FLOWS = """
from pathlib import Path
from ematix_flow import ematix, pipeline

@pipeline.register(name="fragile", schedule="0 9 2 3 *")
def fragile():
    if Path("broken").exists():
        raise ValueError("broken")
    return {"rows": 1}

@pipeline.register(name="job", schedule=None)
def job():
    return {}

ematix.workflow(name="daily", jobs=["job"], schedule="0 6 * * *")
"""
LAST = around("0 9 2 3 *", None, datetime.now(UTC))[0] or datetime.min.replace(tzinfo=UTC)
NOW, SLOT = LAST + timedelta(seconds=5), slot_text(LAST)
LOG = ("--run-log-path", "log.db")


@pytest.fixture
def log(project: Path) -> RunLog:
    (project / "yearly.py").write_text(FLOWS, encoding="utf-8")
    load_module("yearly")
    return sqlite_run_log("log.db")


def state(log: RunLog, name: str = "fragile") -> PipelineState:
    record = log.find(PipelineState, name)
    assert record is not None
    return record


def test_a_paused_pipeline_waits_until_it_is_let_go(flow: Flow, log: RunLog) -> None:
    assert flow("pause", "fragile", "-m", "yearly", *LOG).code == 0
    run = run_due(SlotRunner(log, now=NOW))
    assert [(event.name, event.reason) for event in run.skipped] == [("fragile", "paused")]
    assert flow("unpause", "fragile", "-m", "yearly", *LOG).code == 0
    assert [event.name for event in run_due(SlotRunner(log, now=NOW)).fired] == ["fragile"]


def test_a_workflow_rests_under_its_own_name(flow: Flow, log: RunLog) -> None:
    flow("pause", "daily", "-m", "yearly", *LOG)
    assert state(log, "workflow:daily").paused
    assert flow("unpause", "daily", *LOG).code == 0  # the run log knows it by now, without a module
    assert not state(log, "workflow:daily").paused


@pytest.mark.parametrize("slot_name", ["fragile", f"fragile@{SLOT}"], ids=["pipeline", "slot"])
def test_a_slot_that_was_given_up_is_tried_again_at_once(flow: Flow, log: RunLog, slot_name: str) -> None:
    Path("broken").touch()
    run_due(SlotRunner(log, now=NOW))
    assert state(log).slot_status == "gave_up"
    Path("broken").unlink()
    result = flow("runs", "resume", slot_name, *LOG)
    assert (result.code, result.err) == (
        0,
        f"fragile: slot {SLOT} is tried again by the next scheduler or flow run-due.\n",
    )
    assert [event.name for event in run_due(SlotRunner(log)).fired] == ["fragile"]
    assert (state(log).slot_status, state(log).attempt, state(log).last_slot) == ("succeeded", 1, SLOT)


def test_a_slot_that_is_named_is_repeated_in_its_own_interval(flow: Flow, log: RunLog) -> None:
    run_due(SlotRunner(log, now=NOW))
    assert flow("runs", "rerun", f"fragile@{SLOT}", *LOG).code == 0
    assert [action.run_id for action in log.all(Action)] == [f"fragile@{SLOT}"]
    result = flow("runs", "rerun", "fragile@2001-03-02T09:00:00Z", *LOG)
    assert result.code == 2
    assert "no run of slot 2001-03-02T09:00:00Z of fragile" in result.err


def test_a_run_that_is_not_the_one_that_runs_is_left_alone(flow: Flow, log: RunLog) -> None:
    run_due(SlotRunner(log, now=NOW))
    result = flow("runs", "cancel", f"fragile@{SLOT}", *LOG)
    assert (result.code, "has ended, so there is nothing to stop" in result.err) == (1, True)
    result = flow("runs", "resume", "fragile@2001-03-02T09:00:00Z", *LOG)
    assert (result.code, "flow backfill fragile --from 2001-03-02T09:00:00Z" in result.err) == (1, True)


def test_there_is_nothing_to_resume_after_a_success(flow: Flow, log: RunLog) -> None:
    run_due(SlotRunner(log, now=NOW))
    result = flow("runs", "resume", "fragile", *LOG)
    assert result.code == 1
    assert "nothing to resume" in result.err


def test_a_cancelled_run_keeps_its_lease_until_it_has_stopped_and_its_slot_rests(flow: Flow, log: RunLog) -> None:
    token = log.claim("fragile", "worker-1", 60).token
    assert token is not None
    log.change_state("fragile", lambda _: PipelineState("fragile", last_slot=SLOT, slot_status="running", attempt=1))
    result = flow("runs", "cancel", "fragile", *LOG)
    assert (result.code, "fragile: worker-1 is requested to stop" in result.err) == (0, True)
    held = log.held(token)
    assert held is not None
    assert "@" in held.cancelled_by
    assert log.heartbeat(token, 60)
    log.release(token)  # the process ended without a word
    run = run_due(SlotRunner(log, now=NOW + timedelta(seconds=5)))
    assert [event.name for event in run.fired] == []
    assert "flow runs resume fragile" in run.skipped[0].reason
    assert state(log).slot_status == "cancelled"
    assert state(log).error.startswith("cancelled by ")
    result = flow("runs", "cancel", "fragile", *LOG)
    assert (result.code, "nothing of fragile runs" in result.err) == (1, True)
    assert flow("runs", "resume", "fragile", *LOG).code == 0
    assert [event.name for event in run_due(SlotRunner(log)).fired] == ["fragile"]


def test_a_run_is_asked_for_again_by_the_beginning_of_its_id(flow: Flow, project: Path) -> None:
    run_id = json.loads(flow("run", "copy", "-m", "flows", *LOG).out)["run_id"]
    assert flow("runs", "rerun", run_id[:10], *LOG).code == 0
    wishes = sqlite_run_log("log.db").all(Action)
    assert [(one.kind, one.pipeline, one.run_id, one.state) for one in wishes] == [("rerun", "copy", run_id, "asked")]
    assert "@" in wishes[0].asked_by


def test_what_was_changed_is_recorded_with_who_did_it(flow: Flow, log: RunLog) -> None:
    token = log.claim("fragile", "worker-1", 60).token
    assert token is not None
    commands = [
        ("pause", "fragile"),
        ("unpause", "fragile"),
        ("runs", "resume", "fragile"),
        ("runs", "cancel", "fragile"),
    ]
    for command in commands:
        flow(*command, "-m", "yearly", *LOG)
    log.release(token)
    flow("runs", "cancel", "fragile", "-m", "yearly", *LOG)  # nothing runs, so nothing is done
    recorded = sorted(log.all(Action), key=lambda action: action.asked_at)
    assert [(one.kind, one.pipeline, one.state, one.note) for one in recorded] == [
        ("pause", "fragile", "done", ""), ("unpause", "fragile", "done", ""),
        ("resume", "fragile", "done", "no slot had failed"), ("cancel", "fragile", "done", "worker-1"),
    ]  # fmt: skip
    assert all("@" in one.asked_by and one.ended_at for one in recorded)


@pytest.mark.parametrize(
    "command", [("pause",), ("unpause",), ("runs", "resume"), ("runs", "cancel"), ("runs", "rerun")]
)
def test_an_unknown_name_is_refused_with_the_nearest_one(flow: Flow, log: RunLog, command: tuple[str, ...]) -> None:
    result = flow(*command, "fragil", "-m", "yearly", *LOG)
    assert (result.code, result.out) == (2, "")
    assert "did you mean 'fragile'?" in result.err
    assert log.all(PipelineState) == []

"""How everything declared stands: the reasons are those of the scheduler, and nothing is changed by looking."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow import ematix, pipeline
from ematix_flow.commit.runlog.open import sqlite_run_log
from ematix_flow.commit.runlog.records import Claim
from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.stream.stream import Stream
from ematix_flow.engine.schedule.run_due import run_due
from ematix_flow.engine.schedule.slot_run import SlotRunner
from ematix_flow.engine.schedule.status import status_snapshot
from ematix_flow.records import PipelineState, RunRecord

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.commit.runlog.log import RunLog

NOW = datetime(2026, 3, 2, 9, 0, 30, tzinfo=UTC)
KEYS = [
    "name",
    "kind",
    "schedule",
    "timezone",
    "last_run_at",
    "outcome",
    "attempt",
    "max_attempts",
    "next_eligible_at",
    "gave_up",
    "depends_on",
    "next_run_at",
    "state",
    "reason",
]


@pytest.fixture
def log(tmp_path: Path) -> RunLog:
    return sqlite_run_log(tmp_path / "log.db")


def nothing() -> dict[str, Any]:
    return {}


def hourly(name: str, work: Any = nothing, **options: Any) -> None:
    pipeline.register(name=name, schedule="0 * * * *", **options)(work)


def at(log: RunLog, now: datetime = NOW) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in status_snapshot(log, now)}


def fail() -> None:
    raise ValueError("no")


def test_everything_has_the_same_keys_and_is_sorted_by_name(log: RunLog) -> None:
    hourly("b")
    hourly("a", depends_on=["b"])
    ematix.workflow(name="c", jobs=["a"], triggered_by="b")
    snapshot = status_snapshot(log, NOW)
    assert [one["name"] for one in snapshot] == ["a", "b", "c"]
    assert [list(one) for one in snapshot] == [KEYS] * 3
    assert [one["kind"] for one in snapshot] == ["pipeline", "pipeline", "workflow"]


def test_the_reason_is_what_run_due_says(log: RunLog) -> None:
    hourly("up", fail, retry={"max_attempts": 3, "base_secs": 600})
    hourly("down", depends_on=["up"])
    hourly("resting")
    log.change_state("resting", lambda state: replace(state, paused=True))
    foretold = {name: one["reason"] for name, one in at(log).items() if one["state"] != "due"}
    run = run_due(SlotRunner(log, now=NOW))
    assert {event.name: event.reason for event in run.skipped} == foretold == {
        "down": "upstream not fresh: up",
        "resting": "paused",
    }  # fmt: skip
    later = NOW + timedelta(seconds=20)
    again = {name: one["reason"] for name, one in at(log, later).items()}
    assert {event.name: event.reason for event in run_due(SlotRunner(log, now=later)).skipped} == again
    assert again["up"] == "retry backoff (attempt 1/3; next eligible at 2026-03-02T09:10:30Z)"


def test_a_failure_shows_its_attempts_until_it_is_given_up(log: RunLog) -> None:
    hourly("up", fail, retry={"max_attempts": 2, "base_secs": 60})
    run_due(SlotRunner(log, now=NOW))
    one = at(log)["up"]
    assert (one["outcome"], one["attempt"], one["max_attempts"], one["gave_up"]) == ("failure", 1, 2, False)
    assert one["next_eligible_at"] == one["next_run_at"] == "2026-03-02T09:01:30Z"
    run_due(SlotRunner(log, now=NOW + timedelta(seconds=61)))
    one = at(log, NOW + timedelta(seconds=90))["up"]
    assert (one["attempt"], one["gave_up"], one["next_eligible_at"], one["state"]) == (2, True, None, "gave_up")
    assert one["next_run_at"] == "2026-03-02T10:00:00Z"


def test_a_success_is_idle_until_the_next_slot(log: RunLog) -> None:
    hourly("up", retry={"max_attempts": 2})
    assert at(log)["up"]["state"] == "due"
    run_due(SlotRunner(log, now=NOW))
    one = at(log)["up"]
    assert (one["state"], one["reason"], one["outcome"], one["attempt"]) == ("idle", None, "success", 0)
    assert (one["last_run_at"], one["next_run_at"]) == ("2026-03-02T09:00:30Z", "2026-03-02T10:00:00Z")


def test_whoever_holds_the_lease_is_named_until_it_ends(log: RunLog) -> None:
    hourly("up")
    log.claim("up", "worker-7", 60)
    assert (at(log)["up"]["state"], at(log)["up"]["reason"]) == ("running", "running on worker-7")
    held = log.find(Claim, "up")
    assert held is not None
    log.swap(held, replace(held, expires_at="2020-01-01T00:00:00+00:00"))
    assert at(log)["up"]["state"] == "due"


def test_a_workflow_says_what_it_waits_for_and_its_jobs_are_due_when_it_is_set_off(log: RunLog) -> None:
    pipeline.register(name="first", schedule=None)(nothing)
    pipeline.register(name="second", schedule=None)(nothing)
    pipeline.register(name="job", schedule=None)(nothing)
    ematix.workflow(name="flow", jobs=["job"], triggered_by=["first", "second"])
    log.record_run("first", NOW - timedelta(minutes=5), True)
    assert (at(log)["flow"]["state"], at(log)["flow"]["reason"]) == ("waiting", "waits for second")
    log.record_run("second", NOW - timedelta(minutes=1), True)
    before = log.all(PipelineState)
    assert (at(log)["flow"]["state"], at(log)["job"]["state"]) == ("running", "due")
    assert log.all(PipelineState) == before


def test_a_stream_that_went_silent_is_interrupted(log: RunLog) -> None:
    PROJECT.add_stream(Stream("clicks", (), ()))
    assert at(log)["clicks"]["state"] == "idle"
    snapshot = {"snapshot_at": (NOW - timedelta(seconds=40)).isoformat()}
    log.record(RunRecord("clicks-1", "clicks", "running", NOW.isoformat(), kind="streaming", extras=snapshot))
    assert (at(log)["clicks"]["state"], at(log)["clicks"]["outcome"]) == ("running", None)
    later = at(log, NOW + timedelta(minutes=10))["clicks"]
    assert (later["state"], later["reason"]) == ("interrupted", "silent since 2026-03-02T08:59:50Z")


def test_looking_asks_once_for_each_kind_of_record_however_much_there_is(
    log: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(50):
        hourly(f"p{number}", depends_on=[f"p{number - 1}"] if number else [])
    queried: list[str] = []
    everything = type(log.backend).all
    monkeypatch.setattr(
        type(log.backend), "all", lambda backend, kind: queried.append(kind.__name__) or everything(backend, kind)
    )
    assert len(at(log)) == 50
    assert queried == ["PipelineState", "Claim", "RequestRow"]

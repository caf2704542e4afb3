"""The scheduler: what it begins, in which order and how much of it at a time, and that nothing ends it but its owner."""

from __future__ import annotations

import threading
import time
from concurrent.futures import wait
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.commit.runlog.log import RunLog
from ematix_flow.commit.runlog.open import sqlite_backend
from ematix_flow.commit.runlog.project_backend import ProjectBackend
from ematix_flow.commit.runlog.records import Claim
from ematix_flow.connect.config.project_name import ProjectName
from ematix_flow.declare.decorators import ematix
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine.schedule.pools import pool_sizes
from ematix_flow.engine.schedule.run_due import run_due, run_named
from ematix_flow.engine.schedule.scheduler import LEADER
from ematix_flow.engine.schedule.status import pipeline_statuses
from ematix_flow.errors import RunLogError
from ematix_flow.events import SchedulerEvent
from tests.engine.schedules import NOON, ticked

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from ematix_flow.engine.schedule.scheduler import Scheduler
    from ematix_flow.events import Event
    from tests.engine.schedules import Rig


class Gate:
    """Work that waits until a test lets it end."""

    def __init__(self) -> None:
        self.entered, self.open = threading.Semaphore(0), threading.Event()

    def __call__(self) -> None:
        self.entered.release()
        assert self.open.wait(30)

    def wait_for(self, count: int = 1) -> None:
        for _ in range(count):
            assert self.entered.acquire(timeout=30)


class Moody:
    """A book that refuses every call while it is told to."""

    def __init__(self, log: RunLog) -> None:
        # The log is kept too: the file of a run log that nobody has is removed.
        self._log, self._backend, self.away = log, log.backend, False

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._backend, name)
        if not callable(attribute):
            return attribute

        def call(*arguments: Any, **keywords: Any) -> Any:
            if self.away:
                raise RunLogError("the run log does not answer")
            return attribute(*arguments, **keywords)

        return call


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.mark.slow
def test_what_is_depended_on_comes_first_then_the_greater_priority(rig: Rig) -> None:
    rig.add("low", priority=-1)
    rig.add("base")
    rig.add("top", depends_on=["base"], priority=99)
    rig.add("high", priority=5)
    scheduler = rig.scheduler(workers=1)
    ticked(scheduler)
    assert rig.ran == ["high"]
    assert rig.skipped()["base"] == "no place is free, of 1"
    ticked(scheduler, 3)
    assert rig.ran == ["high", "base", "top", "low"]
    ticked(scheduler, 2)
    assert len(rig.ran) == 4


@pytest.mark.slow
def test_a_dependent_waits_until_its_upstream_has_the_same_slot(rig: Rig, gate: Gate) -> None:
    rig.add("base", work=gate)
    rig.add("top", depends_on=["base"])
    scheduler = rig.scheduler()
    scheduler.tick()
    gate.wait_for()
    scheduler.tick()
    assert rig.skipped() == {"top": "upstream not fresh: base"}
    gate.open.set()
    ticked(scheduler, 2)
    assert rig.ran == ["base", "top"]
    rig.pass_time(3600)
    ticked(scheduler, 2)
    assert rig.ran == ["base", "top"] * 2


def test_no_more_runs_than_workers_and_a_place_that_is_free_is_used(rig: Rig, gate: Gate) -> None:
    for name in ("a", "b", "c"):
        rig.add(name, work=gate)
    scheduler = rig.scheduler(workers=2)
    scheduler.tick()
    gate.wait_for(2)
    scheduler.tick()
    assert sorted(rig.ran) == ["a", "b"]
    assert rig.skipped() == {"c": "no place is free, of 2"}
    gate.open.set()
    ticked(scheduler, 2)
    assert sorted(rig.ran) == ["a", "b", "c"]


@pytest.mark.slow
def test_a_pool_is_shared_by_everybody_who_uses_the_run_log(rig: Rig, gate: Gate) -> None:
    ematix.pool("warehouse", 2)
    for name in ("a", "b", "c"):
        rig.add(name, work=gate, pool="warehouse")
    rig.add("free", work=gate)
    one = rig.scheduler()
    one.runner = rig.runner(sizes=pool_sizes(PROJECT))
    one.tick()
    gate.wait_for(3)
    assert rig.skipped() == {"c": "pool warehouse is full (a, b)"}
    result = run_due(rig.runner("cron", sizes=pool_sizes(PROJECT)))
    assert {event.name: event.reason for event in result.skipped}["c"] == "pool warehouse is full (a, b)"
    gate.open.set()
    ticked(one, 2)
    assert sorted(rig.ran) == ["a", "b", "c", "free"]


def test_one_scheduler_leads_and_another_takes_over(rig: Rig) -> None:
    rig.add("a")
    one, two = rig.scheduler("one"), rig.scheduler("two")
    ticked(one)
    ticked(two)
    assert [event.text for event in rig.events_of("leader")] == ["one leads"]
    rig.pass_time(3600)
    ticked(two)
    assert rig.ran == ["a"]  # the second one does nothing while the first one leads
    lead = rig.log.find(Claim, LEADER)
    assert lead is not None
    rig.log.release(lead.claim_token)  # the first one was silent for too long
    ticked(two)
    assert rig.ran == ["a", "a"]
    rig.pass_time(3600)
    ticked(one)
    assert rig.ran == ["a", "a"]
    assert [event.text for event in rig.events_of("leader")] == ["one leads", "two leads", "two leads"]


def test_schedulers_of_two_projects_both_lead(rig: Rig, tmp_path: Path) -> None:
    backend = sqlite_backend(tmp_path / "log.db")
    backend.ensure()
    rig.add("a")
    for project in (ProjectName("/srv/one"), ProjectName("two", explicit=True)):
        rig.log = RunLog(ProjectBackend(backend, project))
        ticked(rig.scheduler(worker=project.name))
    assert rig.ran == ["a", "a"]
    assert [event.text for event in rig.events_of("leader")] == ["/srv/one leads", "two leads"]


def test_a_scheduler_that_ends_gives_the_lead_away(rig: Rig) -> None:
    rig.add("a")
    rig.scheduler("one", max_iterations=1).run()
    rig.pass_time(3600)
    rig.scheduler("two", max_iterations=1).run()
    assert rig.ran == ["a", "a"]


def test_a_look_that_fails_or_hangs_holds_nothing_up(rig: Rig) -> None:
    free, checks = threading.Event(), []

    def check(now: datetime) -> None:
        checks.append(now)
        free.wait(30)
        message = "no table"
        raise OSError(message)

    rig.add("a")
    scheduler = replace(rig.scheduler(), checks=(check,))
    ticked(scheduler, 2)
    assert rig.ran == ["a"], "the look still waits"
    free.set()
    for _ in range(100):
        ticked(scheduler)
        if rig.events_of("tick_error"):
            break
        time.sleep(0.01)
    assert [event.text for event in rig.events_of("tick_error")][:1] == ["OSError: no table"]
    assert len(checks) >= 2


def test_nothing_begins_while_the_run_log_is_away_and_everything_afterwards(rig: Rig) -> None:
    moody = Moody(rig.log)
    rig.log = RunLog(moody)  # type: ignore[arg-type]
    rig.add("a")
    rig.add("b", "30 * * * *")
    scheduler = rig.scheduler()
    moody.away = True
    ticked(scheduler, 3)
    assert rig.ran == []
    assert {event.text for event in rig.events_of("tick_error")} == {
        "the run log does not answer; nothing is begun until the run log answers"
    }
    moody.away = False
    ticked(scheduler, 2)
    assert rig.ran == ["a"]
    moody.away = True
    rig.pass_time(3600)
    ticked(scheduler, 2)
    moody.away = False
    ticked(scheduler, 2)
    assert rig.ran == ["a", "a"]


def test_a_run_log_that_goes_away_during_a_run_does_not_stop_it(rig: Rig, gate: Gate) -> None:
    moody = Moody(rig.log)
    rig.log = RunLog(moody)  # type: ignore[arg-type]
    rig.add("a", work=gate, idempotent=True)
    scheduler = rig.scheduler()
    scheduler.tick()
    gate.wait_for()
    moody.away = True
    gate.open.set()
    with pytest.warns(UserWarning, match="the run log"):
        ended = scheduler.begun()[0].result(30)
    assert ended.success  # type: ignore[attr-defined]
    moody.away = False
    assert rig.state("a").slot_status == "running"  # nobody could write it down


def test_a_stop_waits_for_runs_and_begins_nothing_more(rig: Rig, gate: Gate) -> None:
    rig.add("a", work=gate)
    scheduler = rig.scheduler(drain_seconds=30)
    thread = threading.Thread(target=scheduler.run)
    thread.start()
    gate.wait_for()
    rig.add("late")
    scheduler.stop.set()
    gate.open.set()
    thread.join(30)
    assert not thread.is_alive()
    assert rig.ran[0] == "a"
    assert rig.state("a").slot_status == "succeeded"
    assert rig.log.claim(LEADER, "next", 5).acquired


def test_a_run_that_does_not_end_in_time_is_left_to_others(rig: Rig, gate: Gate) -> None:
    rig.add("a", work=gate)
    scheduler = rig.scheduler(drain_seconds=0.0)
    scheduler.tick()
    gate.wait_for()
    scheduler.stop.set()
    with pytest.warns(UserWarning, match="1 run had no time to end"):
        scheduler.run()
    gate.open.set()
    scheduler.begun()[0].result(30)


def test_a_run_that_ends_wakes_the_scheduler(rig: Rig, gate: Gate) -> None:
    rig.add("base", work=gate)
    rig.add("top", depends_on=["base"])
    scheduler = rig.scheduler()
    scheduler.settings = type(scheduler.settings)(poll_seconds=600.0)
    _until_it_ran(scheduler, rig, ["base", "top"], gate)


def test_a_run_that_ends_while_the_scheduler_decides_wakes_it_too(rig: Rig) -> None:
    rig.add("base")
    rig.add("top", depends_on=["base"])
    scheduler = rig.scheduler()
    scheduler.settings = type(scheduler.settings)(poll_seconds=600.0)

    def delay(event: Event) -> None:
        if isinstance(event, SchedulerEvent) and (event.what, event.pipeline) == ("dispatched", "base"):
            wait(scheduler.begun(), 30)

    scheduler.runner.options.bus.subscribe(delay)
    _until_it_ran(scheduler, rig, ["base", "top"])


def _until_it_ran(scheduler: Scheduler, rig: Rig, names: list[str], gate: Gate | None = None) -> None:
    thread = threading.Thread(target=scheduler.run)
    thread.start()
    try:
        if gate is not None:
            gate.wait_for()
            gate.open.set()
        _until(lambda: rig.ran == names)
    finally:
        scheduler.stop.set()
        thread.join(30)
    assert not thread.is_alive()


def _until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not true() and time.monotonic() < until:
        threading.Event().wait(0.02)
    assert true()


@pytest.mark.parametrize(
    ("catchup", "slots"),
    [("all", ["13:00", "14:00", "15:00"]), ("last", ["15:00"]), ("none", [])],
)
def test_missed_slots_are_caught_up_as_declared(rig: Rig, catchup: str, slots: list[str]) -> None:
    rig.add("a", catchup=catchup)
    scheduler = rig.scheduler()
    ticked(scheduler)
    rig.now = NOON + timedelta(hours=3, minutes=10)
    ticked(scheduler, 5)
    assert [event.slot[-9:-4] for event in rig.ended()][1:] == slots
    rig.now = NOON + timedelta(hours=4, seconds=1)
    ticked(scheduler, 2)
    assert len(rig.ended()) == len(slots) + 2


def test_the_option_decides_over_what_pipelines_say(rig: Rig) -> None:
    rig.add("a", catchup="all")
    rig.due()
    rig.now = NOON + timedelta(hours=3, minutes=10)
    assert rig.due(catchup="none").fired == []
    assert len(rig.due(catchup="last").fired) == 1
    assert rig.due().fired == []


@pytest.mark.slow
def test_a_clock_that_is_set_back_repeats_nothing_and_one_set_forward_catches_up(rig: Rig) -> None:
    rig.add("a")
    scheduler = rig.scheduler()
    ticked(scheduler)
    rig.pass_time(-3600)
    ticked(scheduler, 3)
    rig.pass_time(3590)
    ticked(scheduler, 3)
    assert rig.ran == ["a"]
    rig.pass_time(3610)
    ticked(scheduler, 3)
    assert rig.ran == ["a", "a"]


@pytest.mark.parametrize(
    ("more", "after"),
    [({"idempotent": True}, "it is begun again"), ({}, "it is not repeated by itself: flow runs resume a")],
)
def test_a_lease_that_ended_is_told_with_its_worker_its_slot_and_what_comes_next(
    rig: Rig, more: dict[str, Any], after: str
) -> None:
    rig.add("a", **more)
    slot = "2026-03-01T12:00:00Z"
    token = rig.log.claim("a", "scheduler-x", 0.01).token
    assert token is not None
    assert rig.log.heartbeat(token, 0.01, "worker-h7-4711")  # it has begun what the scheduler claimed
    rig.log.change_state("a", lambda s: replace(s, last_slot=slot, slot_status="running", attempt=2))
    time.sleep(0.02)
    ticked(rig.scheduler())
    (event,) = rig.events_of("lease_expired")
    assert event.text == f"worker-h7-4711 was silent for too long and lost slot {slot}, attempt 2; {after}"


@pytest.mark.parametrize("catchup", ["last", "all", "none"])
def test_a_new_pipeline_waits_for_an_upstream_that_takes_longer_than_the_window(
    rig: Rig, gate: Gate, catchup: str
) -> None:
    rig.add("up", work=gate)
    rig.add("down", depends_on=["up"], catchup=catchup)
    scheduler = rig.scheduler()
    scheduler.tick()
    gate.wait_for()
    rig.pass_time(300)
    scheduler.tick()
    (down,) = [one for one in pipeline_statuses(rig.log, rig.now) if one.name == "down"]
    assert (down.state, down.reason) == ("waiting", "upstream not fresh: up")
    gate.open.set()
    ticked(scheduler, 2)
    assert rig.ran == ["up", "down"]
    assert rig.state("down").last_slot == "2026-03-01T12:00:00Z"


def test_a_first_slot_is_remembered_by_rounds_of_different_processes(rig: Rig) -> None:
    rig.add("up", retry={"max_attempts": 3, "base_secs": 120})
    rig.add("down", depends_on=["up"])
    rig.broken.add("up")
    assert [event.reason for event in rig.due().skipped] == ["upstream not fresh: up"]
    rig.broken.clear()
    rig.pass_time(180)
    assert [event.name for event in rig.due("two").fired] == ["up", "down"]


def test_what_a_caller_finds_due_is_his_to_remember(rig: Rig) -> None:
    rig.add("a")
    rig.add("b")
    run_named(["a"], rig.runner())
    rig.pass_time(300)
    assert rig.due().fired == []

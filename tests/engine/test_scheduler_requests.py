"""What operators ask for: pause, resume, cancel, run and run again are done once by whoever runs slots."""

from __future__ import annotations

import threading
from concurrent.futures import wait as wait_for
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.commit.runlog.records import Action
from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.schedule.slot import Slot, current_slot
from ematix_flow.engine.batch import run as conductor
from ematix_flow.engine.schedule import actions, requests
from ematix_flow.engine.schedule.run_due import run_due
from ematix_flow.errors import RunError, UnknownNameError
from ematix_flow.records import RunRecord
from tests.engine.schedules import NOON, ticked

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.declare.pipeline.pipeline import Pipeline
    from ematix_flow.engine.schedule.scheduler import Scheduler
    from tests.engine.conftest import Warehouse
    from tests.engine.schedules import Rig

HOUR = timedelta(hours=1)


def test_a_paused_pipeline_begins_nothing_and_catches_up_the_last_slot(rig: Rig) -> None:
    rig.add("a")
    rig.due()
    actions.pause(rig.log, "a", "anna")
    rig.pass_time(3 * 3600)
    assert [event.reason for event in rig.due().skipped] == ["paused"]
    actions.unpause(rig.log, "a", "anna")
    rig.due()
    rig.due()
    assert rig.ran == ["a", "a"]


@pytest.mark.slow
def test_resume_tries_a_slot_that_was_given_up_with_all_its_attempts(rig: Rig) -> None:
    rig.add("a", "0 12 1 3 *", retry={"max_attempts": 2})
    rig.broken.add("a")
    for _ in range(4):
        rig.due()
    assert rig.ran == ["a", "a"]
    state = rig.state("a")
    assert (state.slot_status, state.attempt) == ("gave_up", 2)
    actions.resume(rig.log, "a", "anna")
    rig.now = rig.log.backend.now()  # what was resumed is due by the clock of the run log
    rig.due(catchup="none")
    assert rig.ran == ["a"] * 3
    rig.broken.clear()
    rig.pass_time(1)
    rig.due(catchup="none")
    assert rig.ran == ["a"] * 4
    assert (rig.state("a").slot_status, rig.state("a").last_slot) == ("succeeded", state.last_slot)


def test_resume_finds_a_pipeline_by_a_run_and_refuses_unknown_names(rig: Rig) -> None:
    rig.add("a")
    rig.broken.add("a")
    rig.due()
    slot = rig.state("a").last_slot
    assert actions.resume(rig.log, f"a@{slot}", "anna").slot_status == "failed"
    with pytest.raises(UnknownNameError, match="no pipeline and no single run is named 'nobody'"):
        actions.resume(rig.log, "nobody", "anna")


def scheduler_with_run(rig: Rig) -> tuple[Scheduler, threading.Event]:
    """Return a scheduler whose run of `a` goes on until the event is set."""
    entered, leave = threading.Event(), threading.Event()

    def wait() -> None:
        entered.set()
        assert leave.wait(30)

    rig.add("a", work=wait)
    scheduler = rig.scheduler()
    scheduler.tick()
    assert entered.wait(30)
    return scheduler, leave


def test_the_next_slot_waits_until_a_cancelled_run_has_stopped_and_its_slot_is_not_repeated(rig: Rig) -> None:
    scheduler, leave = scheduler_with_run(rig)
    assert actions.cancel(rig.log, "a", "anna") == "one"
    rig.pass_time(3600)
    second = rig.due("two")  # the next slot is due, and the cancelled run has not stopped yet
    assert [event.reason for event in second.skipped] == ["running on one"]
    leave.set()
    wait_for(scheduler.begun(), 30)
    state = rig.state("a")
    assert (state.slot_status, state.error, state.cancelled_by) == ("cancelled", "cancelled by anna", "")
    assert rig.ran == ["a"]
    (run,), _ = rig.log.list_runs(pipeline="a")
    assert (run.status, run.error_summary) == (
        "cancelled",
        "the run of a was cancelled by anna\nHint: nothing of it was committed.",
    )
    assert not actions.cancel(rig.log, "a", "anna")
    ticked(scheduler)
    assert rig.ran == ["a", "a"]
    assert rig.state("a").last_slot == "2026-03-01T13:00:00Z"


@pytest.mark.slow
def test_a_cancelled_load_changes_nothing(
    rig: Rig, duck: Warehouse, declare: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(duck, schedule="0 * * * *")
    real = conductor.load_target

    def cancelled_first(*arguments: object, **keywords: object) -> object:
        actions.cancel(rig.log, "load", "anna")
        return real(*arguments, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr(conductor, "load_target", cancelled_first)
    runner = rig.runner(lease_seconds=0.03)  # beats every hundredth of a second, so that the loss is seen
    assert run_due(runner).fired == []
    there = duck.rows("SELECT 1 FROM information_schema.tables WHERE table_schema = 'mart' AND table_name = 'orders'")
    assert not there or duck.rows("SELECT count(*) FROM mart.orders") == [(0,)]
    assert rig.state("load").slot_status == "cancelled"
    (run,), _ = rig.log.list_runs(pipeline="load")
    assert run.status == "cancelled"


@pytest.mark.parametrize("kind", [actions.RUN, actions.RERUN])
def test_a_run_that_was_asked_for_happens_once_and_says_how_it_went(rig: Rig, kind: str) -> None:
    rig.add("a", None)
    request = actions.request_run(rig.log, kind, "a", by="anna")
    one, two = rig.scheduler("one"), rig.scheduler("two")
    for _ in range(3):
        ticked(one)
        ticked(two)
    assert rig.ran == ["a"]
    done = rig.log.find(Action, request.id)
    assert done is not None
    assert (done.state, done.taken_by, done.outcome) == ("done", "one", "")
    assert [event.text for event in rig.events_of("dispatched")] == [f"{kind} requested by anna"]
    assert rig.state("a").last_outcome == "success"


def test_a_failure_of_what_was_asked_for_is_written_down(rig: Rig) -> None:
    rig.add("a", None)
    rig.broken.add("a")
    request = actions.request_run(rig.log, actions.RUN, "a")
    ticked(rig.scheduler())
    done = rig.log.find(Action, request.id)
    assert done is not None
    assert (done.state, done.outcome) == ("failed", "a is broken")
    assert [(event.error_type, event.gave_up) for event in rig.ended()] == [("OSError", True)]


def test_run_due_does_what_was_asked_for_and_what_is_due(rig: Rig) -> None:
    rig.add("a")
    actions.request_run(rig.log, actions.RERUN, "a", by="anna")
    result = rig.due()
    assert [event.name for event in result.fired] == ["a", "a"]
    assert rig.state("a").last_slot == "2026-03-01T12:00:00Z", "what was asked for uses up no slot"
    assert rig.due().fired == []


def left_of_the_dead(rig: Rig, kind: str = actions.RUN, **more: Any) -> Action:
    request = actions.request_run(rig.log, kind, "a", **more)
    claimed = rig.log.swap(request, replace(request, state="taken", taken_by="dead"))
    assert claimed is not None
    name = f"a@{claimed.id}"
    extras: dict[str, object] = {"leased": True}
    rig.log.record(RunRecord(name, "a", "running", NOON.isoformat(), request_id=name, extras=extras))
    return claimed


@pytest.mark.parametrize("kind", [actions.RUN, actions.RERUN, actions.RESTART])
def test_what_a_dead_scheduler_took_is_not_repeated_by_itself_where_that_could_do_it_twice(rig: Rig, kind: str) -> None:
    rig.add("a", None)
    claimed = left_of_the_dead(rig, kind)
    (failed,) = rig.due().failed
    ticked(rig.scheduler(), 2)
    assert rig.ran == []
    text = "interrupted: its process ended without a report"
    assert (failed.name, failed.error_type, failed.error_message) == ("a", "InterruptedRun", text)
    after = rig.log.find(Action, claimed.id)
    assert after is not None
    assert (after.state, after.outcome) == ("failed", text)
    assert [(event.slot, event.error_type, event.gave_up) for event in rig.ended()] == [
        (f"a@{claimed.id}", "InterruptedRun", True)
    ]
    assert [run.status for run in rig.log.list_runs(pipeline="a")[0]] == ["interrupted"]
    assert rig.state("a").last_outcome == "failure"


def test_what_a_program_claimed_for_itself_is_left_to_it(rig: Rig) -> None:
    rig.add("a", idempotent=True)
    rig.due()
    request = rig.log.enqueue_rerun(f"a@{rig.state('a').last_slot}")
    assert rig.log.consume_requested_run(request) is not None
    rig.due()
    assert rig.ran == ["a"]


def test_what_kills_every_process_that_takes_it_is_left_alone_after_a_while(rig: Rig) -> None:
    rig.add("a", None, idempotent=True)
    claimed = left_of_the_dead(rig)
    assert rig.log.swap(claimed, replace(claimed, interruptions=9)) is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests, "_run", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            rig.due()
    assert [event.error_type for event in rig.due().failed] == ["InterruptedRun"]
    assert rig.ran == []


def test_what_a_dead_scheduler_took_is_taken_up_where_it_may_be_repeated(rig: Rig) -> None:
    rig.add("a", None, idempotent=True)
    request = actions.request_run(rig.log, actions.RUN, "a")
    assert rig.log.swap(request, replace(request, state="taken", taken_by="dead")) is not None
    ticked(rig.scheduler(), 2)
    assert rig.ran == ["a"]


def test_asked_and_scheduled_runs_of_a_pipeline_never_overlap(rig: Rig) -> None:
    at_work: list[int] = []
    most = 0

    def work() -> None:
        nonlocal most
        at_work.append(1)
        most = max(most, len(at_work))
        threading.Event().wait(0.05)
        at_work.pop()

    rig.add("a", work=work)
    actions.request_run(rig.log, actions.RUN, "a")
    scheduler = rig.scheduler()
    ticked(scheduler, 3)
    assert rig.ran == ["a", "a"]
    assert most == 1


@pytest.mark.slow
def test_a_restart_loads_under_the_name_of_the_run_before_it(
    rig: Rig, duck: Warehouse, declare: Callable[..., Pipeline]
) -> None:
    declare(duck, schedule="0 * * * *")
    rig.due()
    (before, *_), total = rig.log.list_runs(pipeline="load")
    assert total == 1
    actions.request_run(rig.log, actions.RESTART, "load", run_id=before.run_id)
    actions.request_run(rig.log, actions.RERUN, "load", run_id=before.run_id)
    scheduler = rig.scheduler()
    ticked(scheduler, 3)
    runs, _ = rig.log.list_runs(pipeline="load")
    assert {run.run_id for run in runs} > {before.run_id}
    # The restart is a second attempt, which found its load in the target; the other one was a new load.
    again = [run for run in runs if run.run_id == before.run_id]
    assert sorted((run.attempt, run.extras["recovered"]) for run in again) == [(1, False), (2, True)]
    assert len(runs) == 3
    assert [event.error_type for event in rig.ended()] == ["", "", ""]


def test_what_was_resumed_is_due_by_the_clock_of_the_decision(rig: Rig) -> None:
    rig.add("a", "0 12 1 3 *")
    rig.broken.add("a")
    rig.due()
    rig.broken.clear()
    actions.resume(rig.log, "a", "anna")
    assert [event.name for event in rig.due().fired] == ["a"], "the test's clock is years before that of the run log"


def test_a_slot_that_runs_elsewhere_is_told_as_skipped(rig: Rig) -> None:
    scheduler, leave = scheduler_with_run(rig)
    assert [(event.name, event.reason) for event in rig.due("two").skipped] == [("a", "running on one")]
    rig.pass_time(120)
    assert rig.due("two").skipped == [], "its window is over"
    leave.set()
    wait_for(scheduler.begun(), 30)


@pytest.mark.parametrize("kind", [actions.RESTART, actions.RERUN])
def test_a_run_that_is_repeated_reads_the_slot_of_the_run_before_it(rig: Rig, kind: str) -> None:
    slots: list[Slot | None] = []
    rig.add("a", work=lambda: slots.append(current_slot()))
    rig.broken.add("a")
    rig.due()
    rig.broken.clear()
    rig.pass_time(2 * 3600)
    rig.due()
    (newest, before), _ = rig.log.list_runs(pipeline="a")
    assert before.status == "failed"
    actions.request_run(rig.log, kind, "a", run_id=before.run_id)
    rig.due()
    assert slots == [Slot(NOON + HOUR, NOON + 2 * HOUR), Slot(NOON - HOUR, NOON)]
    (again,) = [run for run in rig.log.list_runs(pipeline="a")[0] if run not in (newest, before)]
    actions.request_run(rig.log, kind, "a", run_id=again.run_id)
    rig.due()
    assert slots[2:] == [Slot(NOON - HOUR, NOON)], "also when what is repeated was a repetition"


@pytest.mark.slow
def test_a_restart_loads_the_rows_of_its_own_slot(rig: Rig, duck: Warehouse, declare: Callable[..., Pipeline]) -> None:
    broken = True

    def rows(conn: object) -> str:
        if broken:
            raise OSError("the source is away")
        slot = current_slot()
        return f"SELECT {slot.end.hour if slot else 99} AS id, 'x' AS name"

    load = declare(duck, schedule="0 * * * *", mode="append")
    PROJECT.pipelines["load"] = replace(load, function=rows)
    rig.due()
    (before,), _ = rig.log.list_runs(pipeline="load")
    broken = False
    actions.request_run(rig.log, actions.RESTART, "load", run_id=before.run_id)
    rig.due()
    assert duck.rows("SELECT id, name FROM mart.orders") == [(12, "x")]


def test_a_run_by_hand_is_repeated_without_a_slot(rig: Rig) -> None:
    slots: list[Slot | None] = []
    rig.add("a", None, work=lambda: slots.append(current_slot()))
    conductor.run_pipeline(PROJECT.pipeline("a"), rig.runner().options)
    (before,), _ = rig.log.list_runs(pipeline="a")
    actions.request_run(rig.log, actions.RERUN, "a", run_id=before.run_id)
    rig.due()
    assert slots == [None, None]


def test_a_run_that_has_ended_is_not_cancelled_and_neither_is_another_one(rig: Rig) -> None:
    scheduler, leave = scheduler_with_run(rig)
    running = rig.state("a").last_slot
    (run,), _ = rig.log.list_runs(pipeline="a")
    ended = replace(run, run_id="earlier", request_id="a@2026-03-01T11:00:00Z", started_at=NOON.isoformat())
    rig.log.record(replace(ended, status="succeeded", finished_at=NOON.isoformat()))
    rig.log.record(replace(ended, run_id="dead", request_id="a@act-1"))
    for name in ("earlier", "dead", "a@2026-03-01T11:00:00Z", "a@2026-03-01T10:00:00Z"):
        with pytest.raises(RunError, match=r"so there is nothing to stop\nHint: flow runs cancel a"):
            actions.cancel(rig.log, name, "anna")
    assert not rig.state("a").cancelled_by
    assert actions.cancel(rig.log, f"a@{running}", "anna") == "one"
    assert rig.state("a").cancelled_by == "anna"
    leave.set()
    wait_for(scheduler.begun(), 30)


def test_a_run_that_is_named_is_cancelled_and_nothing_beside_it(rig: Rig) -> None:
    scheduler, leave = scheduler_with_run(rig)
    by_hand = rig.log.open_request("a", rig.now)
    rig.log.record(RunRecord("by-hand", "a", "running", rig.now.isoformat(), request_id=by_hand.id))
    assert "process" in actions.cancel(rig.log, "by-hand", "anna")
    assert not rig.state("a").cancelled_by
    assert actions.cancel(rig.log, f"a@{rig.state('a').last_slot}", "anna") == "one"
    leave.set()
    wait_for(scheduler.begun(), 30)


def test_a_slot_is_cancelled_in_an_attempt_that_has_no_record_yet(rig: Rig) -> None:
    rig.add("a")
    slot = "a@2026-03-01T12:00:00Z"
    rig.log.change_state("a", lambda state: replace(state, last_slot=slot[2:], slot_status="running", attempt=2))
    rig.log.record(RunRecord(slot, "a", "failed", NOON.isoformat(), NOON.isoformat(), request_id=slot))
    rig.log.claim("a", "worker", 60)
    assert actions.cancel(rig.log, slot, "anna") == "worker"


def test_a_slot_that_died_can_be_cancelled_before_it_is_taken_up(rig: Rig) -> None:
    rig.add("a", idempotent=True)
    rig.log.change_state("a", lambda state: replace(state, last_slot="2026-03-01T12:00:00Z", slot_status="running"))
    extras: dict[str, object] = {"leased": True}
    slot = "a@2026-03-01T12:00:00Z"
    rig.log.record(RunRecord(slot, "a", "running", NOON.isoformat(), request_id=slot, extras=extras))
    assert actions.cancel(rig.log, slot, "anna") == "no process (it has ended)"
    rig.due()
    assert (rig.ran, rig.state("a").slot_status) == ([], "cancelled")


def test_only_the_last_slot_can_be_resumed(rig: Rig) -> None:
    rig.add("a")
    rig.broken.add("a")
    rig.due()
    rig.pass_time(3600)
    rig.due()
    first, last = "2026-03-01T12:00:00Z", "2026-03-01T13:00:00Z"
    hint = f"flow backfill a --from {first} --to 2026-03-01T12:00:01Z runs it"
    with pytest.raises(RunError, match=f"slot {first} of a cannot be resumed: the last one is {last}\nHint: {hint}"):
        actions.resume(rig.log, f"a@{first}", "anna")
    assert (rig.state("a").slot_status, rig.state("a").next_attempt_at) == ("gave_up", "")
    assert actions.resume(rig.log, f"a@{last}", "anna").next_attempt_at == last
    rig.log.record(RunRecord("by-hand", "a", "failed", rig.now.isoformat(), request_id="req-1"))
    with pytest.raises(RunError, match="run by-hand has no slot that could be resumed"):
        actions.resume(rig.log, "by-hand", "anna")


def test_the_pause_of_a_pipeline_ends_by_any_of_its_runs_where_that_is_meant(rig: Rig) -> None:
    rig.add("a")
    rig.due()
    rig.pass_time(3600)
    rig.broken.add("a")
    rig.due()
    actions.pause(rig.log, "a", "anna")
    state = actions.resume(rig.log, "a@2026-03-01T12:00:00Z", "anna", or_unpause=True)
    assert (state.paused, state.slot_status) == (False, "gave_up")

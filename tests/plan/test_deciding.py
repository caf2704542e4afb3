"""What runs now, as a table of situations: slots, catching up, attempts, what comes first, and what died."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ematix_flow.declare.pipeline.pipeline import Pipeline, Retry
from ematix_flow.declare.project import Project
from ematix_flow.errors import DeclareError
from ematix_flow.plan.schedule import retry as retrying
from ematix_flow.plan.schedule.cron import slot_text
from ematix_flow.plan.schedule.decide import Fire, Lose, Situation, Skip, decide, with_waiting_slot
from ematix_flow.records import PipelineState

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)


def hourly(name: str = "load", **more: Any) -> Pipeline:
    return Pipeline(name, lambda: None, (), schedule="0 * * * *", **more)


def at(now: datetime, *states: PipelineState, pipelines: tuple[Pipeline, ...] = (), **more: Any) -> Situation:
    project = Project()
    for pipeline in pipelines:
        project.add_pipeline(pipeline)
    return Situation(project, now, {state.pipeline: state for state in states}, **more)


def ran(slot: datetime, name: str = "load") -> PipelineState:
    return retrying.succeeded(retrying.begun(PipelineState(name), slot_text(slot), slot), "run", slot + SECOND)


def broken(slot: datetime, retry: Retry | None = None, when: datetime | None = None, **more: Any) -> PipelineState:
    begun = retrying.begun(PipelineState("load"), slot_text(slot), slot)
    return retrying.failed(begun, retry, "away", when or slot + SECOND, **more)


def test_a_slot_of_the_window_fires_and_then_never_again() -> None:
    assert decide(hourly(), at(NOON + SECOND)) == Fire("load", "2026-01-01T12:00:00Z")
    assert decide(hourly(), at(NOON + SECOND, ran(NOON))) is None
    assert decide(hourly(), at(NOON - SECOND, ran(NOON - HOUR))) is None


def test_a_clock_that_is_set_back_fires_nothing_twice() -> None:
    for back in (timedelta(minutes=1), HOUR, timedelta(days=1)):
        assert decide(hourly(), at(NOON - back, ran(NOON))) is None


@pytest.mark.parametrize(
    ("catchup", "slot"), [("last", "2026-01-01T12:00:00Z"), ("all", "2026-01-01T07:00:00Z"), ("none", None)]
)
def test_missed_slots_are_caught_up_as_the_pipeline_says(catchup: str, slot: str | None) -> None:
    late = at(NOON + timedelta(minutes=20), ran(NOON - 6 * HOUR))
    expected = None if slot is None else Fire("load", slot)
    assert decide(hourly(catchup=catchup), late) == expected
    assert decide(hourly(), replace(late, catchup=catchup)) == expected


def test_a_pipeline_that_was_never_run_catches_nothing_up() -> None:
    assert decide(hourly(catchup="all"), at(NOON + timedelta(minutes=20))) is None


def test_a_failed_slot_waits_is_tried_again_and_given_up() -> None:
    retry = Retry(3, "linear", timedelta(minutes=5))
    pipeline, state = hourly(retry=retry), broken(NOON, retry)
    waiting = decide(pipeline, at(NOON + timedelta(minutes=5), state))
    assert waiting == Skip("load", "retry backoff (attempt 1/3; next eligible at 2026-01-01T12:05:01Z)")
    assert decide(pipeline, at(NOON + timedelta(minutes=6), state)) == Fire("load", "2026-01-01T12:00:00Z", 2)
    for _ in range(2):
        begun = retrying.begun(state, state.last_slot, NOON + timedelta(minutes=6))
        state = retrying.failed(begun, retry, "away", NOON + timedelta(minutes=6))
    assert state.slot_status == retrying.GAVE_UP
    decision = decide(pipeline, at(NOON + timedelta(seconds=59), state))
    assert decision == Skip("load", "gave up after 3 retry attempts (max_attempts=3)")
    assert decide(pipeline, at(NOON + timedelta(minutes=30), state)) is None
    assert decide(pipeline, at(NOON + HOUR, state)) == Fire("load", "2026-01-01T13:00:00Z"), (
        "the next slot starts afresh"
    )


def test_a_newer_slot_takes_the_place_of_one_that_waits_unless_all_are_wanted() -> None:
    retry = Retry(5, "fixed", timedelta(hours=3))
    state, now = broken(NOON, retry), NOON + HOUR
    assert decide(hourly(retry=retry), at(now, state)) == Fire("load", "2026-01-01T13:00:00Z")
    assert isinstance(decide(hourly(retry=retry, catchup="all"), at(now, state)), Skip)


def test_what_runs_elsewhere_is_left_alone_and_what_died_is_taken_up() -> None:
    running = retrying.begun(PipelineState("load"), slot_text(NOON), NOON)
    loads, plain = hourly(idempotent=True), hourly()
    held = at(NOON + HOUR, running, held={"load": "host-1"})
    assert decide(loads, held) == Skip("load", "running on host-1")
    assert decide(loads, replace(held, now=NOON + SECOND)) is None
    free = at(NOON + SECOND, running)
    assert decide(loads, free) == Fire("load", "2026-01-01T12:00:00Z", 2, interrupted=True)
    assert decide(plain, free) == Lose("load", "2026-01-01T12:00:00Z")
    worn = replace(running, interruptions=retrying.INTERRUPTIONS)
    assert decide(loads, at(NOON + SECOND, worn)) == Lose("load", "2026-01-01T12:00:00Z")
    lost = retrying.interrupted(running, NOON + SECOND)
    assert decide(plain, at(NOON + 2 * SECOND, lost)) == Skip(
        "load", "interrupted, and not repeated by itself; flow runs resume load"
    )


def test_a_paused_pipeline_rests() -> None:
    assert decide(hourly(), at(NOON, replace(PipelineState("load"), paused=True))) == Skip("load", "paused")


def test_an_upstream_has_to_be_fresh() -> None:
    first, second = hourly("a"), hourly("b", depends_on=("a",), upstream_freshness=timedelta(minutes=30))
    both = (first, second)
    stale = Skip("b", "upstream not fresh: a")
    fire = Fire("b", "2026-01-01T12:00:00Z")
    assert decide(second, at(NOON, pipelines=both)) == stale, "it never ran"
    assert decide(second, at(NOON, ran(NOON - HOUR, "a"), pipelines=both)) == stale, "its own slot comes first"
    assert decide(second, at(NOON + 2 * SECOND, ran(NOON, "a"), pipelines=both)) == fire
    failed = replace(broken(NOON), pipeline="a", last_success_at=(NOON - HOUR).isoformat())
    assert decide(second, at(NOON, failed, pipelines=both)) == stale, "its last run failed"
    old = at(NOON + timedelta(minutes=31, seconds=2), ran(NOON, "a"), ran(NOON - HOUR, "b"), pipelines=both)
    assert decide(second, old) == stale, "it is too long ago"


def test_a_slot_that_was_skipped_is_not_used_up() -> None:
    first, second = hourly("a"), hourly("b", depends_on=("a",))
    later = at(NOON + timedelta(minutes=10), ran(NOON, "a"), ran(NOON - HOUR, "b"), pipelines=(first, second))
    assert decide(second, later) == Fire("b", "2026-01-01T12:00:00Z")


@pytest.mark.parametrize("catchup", ["last", "all", "none"])
def test_a_first_slot_that_was_seen_waits_longer_than_the_window(catchup: str) -> None:
    pipeline, later = hourly(catchup=catchup), NOON + timedelta(minutes=10)
    waiting = with_waiting_slot(pipeline, at(NOON + SECOND))
    assert waiting == PipelineState("load", waiting_slot="2026-01-01T12:00:00Z")
    assert with_waiting_slot(pipeline, at(later, waiting)) is None, "it is known"
    assert decide(pipeline, at(later, waiting)) == Fire("load", "2026-01-01T12:00:00Z")
    assert (
        decide(pipeline, at(later, retrying.succeeded(retrying.begun(waiting, slot_text(NOON), NOON), "", later)))
        is None
    )
    assert decide(pipeline, at(NOON - HOUR, waiting)) == Fire("load", "2026-01-01T11:00:00Z"), "the clock was set back"


def test_a_slot_that_waits_gives_way_to_newer_ones_as_missed_slots_do() -> None:
    waiting, at_two = PipelineState("load", waiting_slot="2026-01-01T12:00:00Z"), NOON + 2 * HOUR
    fired = {one: decide(hourly(catchup=one), at(at_two, waiting)) for one in ("last", "all", "none")}
    slots = {one: decision.slot for one, decision in fired.items() if isinstance(decision, Fire)}
    assert slots == {"last": slot_text(at_two), "all": slot_text(NOON), "none": slot_text(at_two)}
    past = at(at_two + timedelta(minutes=20), waiting)
    assert decide(hourly(catchup="none"), past) == Fire("load", slot_text(NOON)), "slots nobody saw stay missed"


def test_with_nothing_caught_up_a_slot_waits_that_was_seen_and_only_that() -> None:
    none, later, state = hourly(catchup="none"), NOON + timedelta(minutes=10), ran(NOON - HOUR)
    assert decide(none, at(later, state)) is None
    waiting = with_waiting_slot(none, at(NOON, state))
    assert waiting is not None
    assert decide(none, at(later, waiting)) == Fire("load", "2026-01-01T12:00:00Z")
    assert with_waiting_slot(none, at(NOON, replace(state, paused=True))) is None
    moved = Pipeline("load", lambda: None, (), schedule="30 * * * *", catchup="none")
    assert decide(moved, at(later, waiting)) is None, "the schedule has it no more"
    assert with_waiting_slot(hourly(), at(NOON, state)) is None, "the last slot tells that one is missing"


def test_priorities_order_what_may_run_at_the_same_time() -> None:
    project = Project()
    for pipeline in (hourly("a"), hourly("b", priority=5), hourly("c", depends_on=("a",), priority=9)):
        project.add_pipeline(pipeline)
    assert project.order(["a", "b", "c"]) == ["b", "a", "c"]
    project.pipelines["a"] = hourly("a", depends_on=("c",))
    with pytest.raises(DeclareError, match=r"circle: (a -> c -> a|c -> a -> c)"):
        project.order(["a", "b", "c"])


@pytest.mark.slow
@given(st.lists(st.integers(0, 600), min_size=1, max_size=40), st.sampled_from(["last", "all", "none"]))
def test_whenever_it_is_looked_every_slot_fires_at_most_once_and_with_all_none_is_missed(
    minutes: list[int], catchup: str
) -> None:
    pipeline, state, fired = hourly(catchup=catchup), PipelineState("load"), []
    for minute in sorted(minutes):
        now = NOON + timedelta(minutes=minute)
        while isinstance(decision := decide(pipeline, at(now, state)), Fire):
            fired.append(decision.slot)
            state = retrying.succeeded(retrying.begun(state, decision.slot, now), "", now)
    assert len(fired) == len(set(fired))
    assert fired == sorted(fired)
    if catchup == "all" and fired:
        first, last = (datetime.fromisoformat(fired[index]) for index in (0, -1))
        assert len(fired) == (last - first) / HOUR + 1

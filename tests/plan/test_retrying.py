"""How long a failed slot waits, and when it is given up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from ematix_flow.declare.pipeline.pipeline import Retry
from ematix_flow.plan.schedule import retry as retrying
from ematix_flow.plan.schedule.retry import pause
from ematix_flow.records import PipelineState

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
BASE = timedelta(seconds=30)


@pytest.mark.parametrize(
    ("backoff", "seconds"),
    [("fixed", [30, 30, 30, 30]), ("linear", [30, 60, 90, 120]), ("exponential", [30, 60, 120, 240])],
)
def test_pauses_grow_as_declared(backoff: str, seconds: list[int]) -> None:
    policy = Retry(5, backoff, BASE)
    assert [pause(policy, tried, "x").total_seconds() for tried in (1, 2, 3, 4)] == seconds


def test_pauses_are_bound_and_never_too_large_for_a_clock() -> None:
    assert pause(Retry(99, "exponential", BASE, max_backoff=timedelta(minutes=5)), 20, "x") == timedelta(minutes=5)
    assert pause(Retry(9999, "exponential", BASE), 5000, "x") == timedelta(days=3650)


def test_jitter_differs_between_slots_and_not_between_hosts() -> None:
    policy = Retry(5, "fixed", BASE, jitter=0.5)
    waits = {pause(policy, 1, f"p@{number}") for number in range(50)}
    assert len(waits) == 50
    assert all(BASE / 2 <= wait <= BASE for wait in waits)
    assert pause(policy, 1, "p@7") == pause(policy, 1, "p@7")


def test_the_total_time_bounds_the_attempts() -> None:
    policy = Retry(100, "fixed", BASE, max_total=timedelta(seconds=70))
    state, now, tried = PipelineState("p"), NOON, 0
    while state.slot_status != retrying.GAVE_UP:
        state = retrying.failed(retrying.begun(state, "2026-01-01T12:00:00Z", now), policy, "away", now)
        now, tried = now + BASE, tried + 1
    assert tried == 3


def test_an_attempt_whose_process_died_costs_no_attempt() -> None:
    policy = Retry(2, "fixed", BASE)
    state = retrying.begun(PipelineState("p"), "2026-01-01T12:00:00Z", NOON)
    for _ in range(4):
        state = retrying.begun(state, state.last_slot, NOON, interrupted=True)
    assert (state.attempt, state.interruptions) == (5, 4)
    state = retrying.failed(state, policy, "away", NOON)
    assert state.slot_status == retrying.FAILED
    state = retrying.failed(retrying.begun(state, state.last_slot, NOON), policy, "away", NOON)
    assert state.slot_status == retrying.GAVE_UP


def test_what_no_policy_tries_again_is_given_up_at_once() -> None:
    begun = retrying.begun(PipelineState("p"), "2026-01-01T12:00:00Z", NOON)
    assert retrying.failed(begun, Retry(9), "wrong", NOON, repeatable=False).slot_status == retrying.GAVE_UP


def test_a_new_slot_begins_its_own_count() -> None:
    state = retrying.begun(PipelineState("p"), "2026-01-01T12:00:00Z", NOON)
    state = retrying.begun(state, state.last_slot, NOON)
    assert state.attempt == 2
    begun = retrying.begun(state, "2026-01-01T13:00:00Z", NOON + timedelta(hours=1))
    assert (begun.attempt, begun.first_attempt_at) == (1, (NOON + timedelta(hours=1)).isoformat())


@pytest.mark.parametrize("backoff", ["fixed", "linear", "exponential"])
def test_no_pause_is_longer_than_a_calendar(backoff: str) -> None:
    policy = Retry(10**9, backoff, timedelta(days=3650), factor=1e300)
    assert pause(policy, 10**8, "a") == timedelta(days=3650)

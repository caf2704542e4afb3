"""What becomes of a slot after an attempt at it: done, tried again later, or given up.

Whether it runs is decided in `plan.schedule.decide`.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC, timedelta
from typing import TYPE_CHECKING

from ematix_flow.declare.pipeline.pipeline import Retry
from ematix_flow.declare.schedule.schedule import LONGEST_PAUSE
from ematix_flow.plan.schedule.cron import instant_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from ematix_flow.records import PipelineState

RUNNING, SUCCEEDED, FAILED, GAVE_UP, INTERRUPTED = "running", "succeeded", "failed", "gave_up", "interrupted"
CANCELLED = "cancelled"
SUCCESS, FAILURE = "success", "failure"

INTERRUPTIONS = 10
"""A slot whose process has died so often is not begun by itself again: it may be what kills it."""

INTERRUPTED_TEXT = "interrupted: its process ended without a report"

ERROR_LENGTH = 1000

MIN_SLOT_GAP = timedelta(seconds=1)
"""Slots are at least so far apart."""

_ONCE = Retry()


def begun(state: PipelineState, slot: str, now: datetime, *, interrupted: bool = False) -> PipelineState:
    """Return the state in which the next attempt at a slot runs."""
    again = slot == state.last_slot and bool(state.slot_status)
    return replace(
        state,
        last_slot=slot,
        slot_status=RUNNING,
        attempt=state.attempt + 1 if again else 1,
        interruptions=(state.interruptions if again else 0) + int(interrupted),
        first_attempt_at=state.first_attempt_at if again else written(now),
        last_attempt_at=written(now),
        next_attempt_at="",
        error="",
        cancelled_by="",
        retained="",
    )


def succeeded(state: PipelineState, run_id: str, now: datetime) -> PipelineState:
    """Return the state after a success."""
    at = written(now)
    return replace(
        state,
        slot_status=SUCCEEDED,
        next_attempt_at="",
        last_run_at=at,
        last_outcome=SUCCESS,
        last_success_at=at,
        run_id=run_id,
        error="",
        cancelled_by="",
    )


def failed(
    state: PipelineState, retry: Retry | None, error: str, now: datetime, *, repeatable: bool = True
) -> PipelineState:
    """Return the state after a failure: when it is tried again, or that it was given up."""
    policy = retry or _ONCE
    tried = state.attempt - state.interruptions
    due = now + pause(policy, tried, f"{state.pipeline}@{state.last_slot}")
    spent = tried >= policy.max_attempts or not repeatable
    if policy.max_total is not None and state.first_attempt_at:
        spent = spent or due > instant_of(state.first_attempt_at) + policy.max_total
    return replace(
        state,
        slot_status=GAVE_UP if spent else FAILED,
        next_attempt_at="" if spent else written(due),
        last_run_at=written(now),
        last_outcome=FAILURE,
        error=error[:ERROR_LENGTH],
    )


def not_begun(state: PipelineState, due: datetime) -> PipelineState:
    """Return the state of a slot whose attempt did not happen after all, to be begun at an instant."""
    return replace(state, slot_status=FAILED, attempt=state.attempt - 1, next_attempt_at=written(due))


def set_aside(state: PipelineState, now: datetime) -> PipelineState:
    """Return the state of a slot that another run of its pipeline kept from its commit: begun again, which is no attempt."""
    return replace(
        state, slot_status=FAILED, interruptions=state.interruptions + 1, next_attempt_at=written(now), error=""
    )


def interrupted(state: PipelineState, now: datetime) -> PipelineState:
    """Return the state of a slot whose process died and that is not taken up by itself."""
    ended = replace(state, slot_status=INTERRUPTED, next_attempt_at="", last_run_at=written(now))
    return replace(ended, last_outcome=FAILURE, error=INTERRUPTED_TEXT)


def cancelled(state: PipelineState, now: datetime) -> PipelineState:
    """Return the state of a slot that was cancelled: it is used up unless it is resumed."""
    text = f"cancelled by {state.cancelled_by or 'somebody'}"
    ended = replace(state, slot_status=CANCELLED, next_attempt_at="", last_run_at=written(now), error=text)
    return replace(ended, last_outcome=FAILURE, cancelled_by="")


def pause(policy: Retry, tried: int, name: str) -> timedelta:
    """Return how long to wait after so many attempts; `name` makes the jitter differ between slots but not between hosts."""
    number = max(1, tried)
    match policy.backoff:
        case "linear":
            wait = _bounded(lambda: policy.base * number)
        case "exponential":
            wait = _bounded(lambda: policy.base * policy.factor ** (number - 1))
        case _:
            wait = policy.base
    if policy.max_backoff is not None:
        wait = min(wait, policy.max_backoff)
    if policy.jitter:
        digest = hashlib.sha256(f"{name}#{number}".encode()).digest()
        wait *= 1 - policy.jitter * int.from_bytes(digest[:4]) / 2**32
    return wait


def _bounded(wait: Callable[[], timedelta]) -> timedelta:
    """Return a pause that a calendar can hold."""
    try:
        return min(LONGEST_PAUSE, wait())
    except OverflowError:
        return LONGEST_PAUSE


def written(instant: datetime) -> str:
    """Return an instant as the run log keeps it."""
    return instant.astimezone(UTC).isoformat()

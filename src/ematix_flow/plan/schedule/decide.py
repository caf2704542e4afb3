"""Decides what runs now: a pure function of declarations, of what the run log knows and of the clock; it starts nothing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from ematix_flow.plan.schedule.cron import around, instant_of, latest_slot, next_slot, slot_text, slots_after
from ematix_flow.plan.schedule.retry import (
    CANCELLED,
    FAILED,
    GAVE_UP,
    INTERRUPTED,
    INTERRUPTIONS,
    MIN_SLOT_GAP,
    RUNNING,
    SUCCESS,
)
from ematix_flow.plan.schedule.workflows import retained_jobs
from ematix_flow.records import PipelineState

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from ematix_flow.declare.pipeline.pipeline import Pipeline
    from ematix_flow.declare.project import Project


@dataclass(frozen=True, slots=True)
class Fire:
    """A slot runs now."""

    pipeline: str
    slot: str
    attempt: int = 1
    interrupted: bool = False
    """True when the attempt before this one died."""


@dataclass(frozen=True, slots=True)
class Skip:
    """A slot is due and does not run now."""

    pipeline: str
    reason: str


@dataclass(frozen=True, slots=True)
class Lose:
    """A slot whose process died is not taken up by itself: it was cancelled, or an operator has to decide."""

    pipeline: str
    slot: str


Decision = Fire | Skip | Lose


@dataclass(frozen=True, slots=True)
class Situation:
    """What a decision is made from."""

    project: Project
    now: datetime
    states: Mapping[str, PipelineState]
    held: Mapping[str, str] = field(default_factory=dict)
    """Who runs a pipeline right now, by its name."""
    window: timedelta = timedelta(seconds=60)
    catchup: str | None = None
    """What to catch up, in place of what pipelines declare."""
    requested: Mapping[str, str] = field(default_factory=dict)
    """Slots that were requested by hand, by pipeline."""

    def state(self, name: str) -> PipelineState:
        """Return the state of a pipeline; an empty one before its first slot."""
        return self.states.get(name) or PipelineState(name)


def decide(pipeline: Pipeline, at: Situation) -> Decision | None:
    """Return what happens with a pipeline now; None when nothing is due."""
    state = at.state(pipeline.name)
    if state.slot_status == RUNNING:
        return _running(pipeline, state, at)
    decision = _next_decision(pipeline, state, at)
    if not isinstance(decision, Fire):
        return decision
    if state.paused:
        return Skip(pipeline.name, "paused")
    if pipeline.name in at.held:
        return Skip(pipeline.name, f"running on {at.held[pipeline.name]}")
    stale = [name for name in pipeline.depends_on if not _is_up_to_date(name, pipeline, decision.slot, at)]
    return Skip(pipeline.name, f"upstream not fresh: {','.join(stale)}") if stale else decision


def due_slot(pipeline: Pipeline, at: Situation) -> str | None:
    """Return the slot that is to run next, not counting attempts at the last one; None when none is due."""
    state = at.state(pipeline.name)
    catchup = at.catchup or pipeline.catchup
    slots = (at.requested.get(pipeline.name), _workflow_slot(pipeline, at), _own_slot(pipeline, state, catchup, at))
    slot = max(filter(None, slots), key=instant_of, default=None)
    return slot if slot is not None and _is_later(slot, state.last_slot) else None


def with_waiting_slot(pipeline: Pipeline, at: Situation) -> PipelineState | None:
    """Return the state that remembers a due slot which would be forgotten with the window; None when there is none.

    With a last slot every later one is known to be missing, unless nothing is caught up.
    """
    state, catchup = at.state(pipeline.name), at.catchup or pipeline.catchup
    known = bool(state.last_slot) and catchup != "none"
    if known or (state.paused and catchup == "none"):
        return None
    slot = _own_slot(pipeline, state, catchup, at)
    if slot is None or slot == state.waiting_slot or not _is_later(slot, state.last_slot):
        return None
    return replace(state, waiting_slot=slot)


def next_fire(pipeline: Pipeline, at: Situation) -> datetime | None:
    """Return when a pipeline fires next if nothing fails; None for what only runs on request."""
    if pipeline.schedule is None:
        return None
    return next_slot(pipeline.schedule, pipeline.timezone, at.now)


def _own_slot(pipeline: Pipeline, state: PipelineState, catchup: str, at: Situation) -> str | None:
    if pipeline.schedule is None:
        return None
    since, schedule, zone = _since(state, catchup, at), pipeline.schedule, pipeline.timezone
    newest, _ = around(schedule, zone, at.now)
    if newest is not None and newest > since:
        return slot_text(next(slots_after(schedule, zone, since)) if catchup == "all" else newest)
    return _waiting_slot(schedule, zone, state, at) if catchup == "none" else None


def _since(state: PipelineState, catchup: str, at: Situation) -> datetime:
    """Return the instant after which slots are due: the last slot, what was seen of a first one, or the window's beginning."""
    window_start = at.now - at.window
    if state.last_slot:
        last = instant_of(state.last_slot)
        return max(window_start, last) if catchup == "none" else last
    if state.waiting_slot and catchup != "none":
        return min(window_start, instant_of(state.waiting_slot) - MIN_SLOT_GAP)
    return window_start


def _waiting_slot(schedule: str, zone: str | None, state: PipelineState, at: Situation) -> str | None:
    """Return a slot that was due and has waited since; None when it has run, or when the schedule has it no more."""
    if not state.waiting_slot:
        return None
    waiting = instant_of(state.waiting_slot)
    still_there = latest_slot(schedule, zone, waiting - MIN_SLOT_GAP, waiting) is not None
    return state.waiting_slot if waiting <= at.now and still_there else None


def _workflow_slot(pipeline: Pipeline, at: Situation) -> str | None:
    workflow = at.project.jobs.get(pipeline.name)
    if workflow is None:
        return None
    state = at.state(workflow.key)
    return state.last_slot if state.slot_status == RUNNING and pipeline.name not in retained_jobs(state) else None


def _running(pipeline: Pipeline, state: PipelineState, at: Situation) -> Decision | None:
    """Decide about a slot that has begun: left alone while a process holds it, else taken up or lost."""
    holder = at.held.get(pipeline.name)
    if holder is not None:
        return Skip(pipeline.name, f"running on {holder}") if due_slot(pipeline, at) else None
    if state.cancelled_by or not pipeline.resumes or state.interruptions >= INTERRUPTIONS:
        return Lose(pipeline.name, state.last_slot)
    if state.paused:
        return Skip(pipeline.name, "paused")
    return Fire(pipeline.name, state.last_slot, state.attempt + 1, interrupted=True)


def _next_decision(pipeline: Pipeline, state: PipelineState, at: Situation) -> Decision | None:
    """Return the slot that is to run, or why the last one is not tried again."""
    waits = state.slot_status == FAILED and bool(state.next_attempt_at)
    slot = due_slot(pipeline, at)
    if slot is not None and not (waits and (at.catchup or pipeline.catchup) == "all"):
        return Fire(pipeline.name, slot)
    if waits and instant_of(state.next_attempt_at) <= at.now:
        return Fire(pipeline.name, state.last_slot, state.attempt + 1)
    if waits:
        return Skip(pipeline.name, backoff_text(pipeline, state))
    if state.last_slot and instant_of(state.last_slot) > at.now - at.window:
        return _ended(pipeline, state)
    return None


def _ended(pipeline: Pipeline, state: PipelineState) -> Skip | None:
    """Return why a slot of the present window that failed is left alone."""
    if state.slot_status == GAVE_UP and attempts_of(pipeline) > 1:
        tried, most = state.attempt - state.interruptions, attempts_of(pipeline)
        return Skip(pipeline.name, f"gave up after {tried} retry attempts (max_attempts={most})")
    if state.slot_status == INTERRUPTED:
        return Skip(pipeline.name, f"interrupted, and not repeated by itself; flow runs resume {pipeline.name}")
    if state.slot_status == CANCELLED:
        return Skip(pipeline.name, f"{state.error}; flow runs resume {pipeline.name}")
    return None


def backoff_text(pipeline: Pipeline, state: PipelineState) -> str:
    """Return when a failed slot is tried again."""
    tried, when = state.attempt - state.interruptions, slot_text(instant_of(state.next_attempt_at))
    return f"retry backoff (attempt {tried}/{attempts_of(pipeline)}; next eligible at {when})"


def attempts_of(pipeline: Pipeline) -> int:
    """Return how often a slot is tried at most."""
    return pipeline.retry.max_attempts if pipeline.retry is not None else 1


def _is_up_to_date(upstream: str, pipeline: Pipeline, slot: str, at: Situation) -> bool:
    """Return whether an upstream has what a slot needs: a last run that succeeded lately, and nothing due before."""
    state, declared = at.state(upstream), at.project.pipelines[upstream]
    if state.last_outcome != SUCCESS or state.slot_status in (RUNNING, FAILED):
        return False
    limit = pipeline.upstream_freshness
    if limit is not None and at.now - instant_of(state.last_success_at) > limit:
        return False
    pending = due_slot(declared, at)
    return pending is None or _is_later(pending, slot) or state.paused


def _is_later(slot: str, other: str) -> bool:
    return not other or instant_of(slot) > instant_of(other)

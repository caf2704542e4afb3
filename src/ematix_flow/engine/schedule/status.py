"""The status of everything declared: read from the run log once, decided as a scheduler would; it changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ematix_flow.commit.runlog import requests
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine.schedule.lease import held_now
from ematix_flow.engine.schedule.pools import full, pool_sizes
from ematix_flow.plan.schedule import retry as retrying
from ematix_flow.plan.schedule.cron import instant_of, next_slot, slot_text
from ematix_flow.plan.schedule.decide import Fire, Lose, Situation, Skip, attempts_of, decide, next_fire
from ematix_flow.plan.schedule.workflows import advanced, missing
from ematix_flow.records import PipelineState

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.declare.pipeline.pipeline import Pipeline
    from ematix_flow.declare.schedule.workflow import Workflow
    from ematix_flow.declare.stream.stream import Stream
    from ematix_flow.records import RunRecord

WINDOW = timedelta(seconds=60)
SILENCE = timedelta(minutes=3)
"""A stream that has written nothing about itself for so long has died."""

_MANY = 1000
"""Runs that are read to find those that go on."""

_TRIED = (retrying.RUNNING, retrying.FAILED, retrying.GAVE_UP, retrying.INTERRUPTED, retrying.CANCELLED)
"""States of a slot in which its attempts count."""


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """The status of one pipeline, workflow or stream; instants are in ISO form, None where there is none."""

    name: str
    kind: str
    schedule: str | None
    timezone: str | None
    last_run_at: str | None
    outcome: str | None
    attempt: int
    max_attempts: int
    next_eligible_at: str | None
    gave_up: bool
    depends_on: tuple[str, ...]
    next_run_at: str | None
    state: str
    """running, due, waiting, paused, backoff, gave_up, interrupted, cancelled or idle."""
    reason: str | None
    """Why it does not run now although it is due, or where it runs."""
    backoff: str | None = None
    """How pauses between attempts grow; None without a policy."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        fields = {name: getattr(self, name) for name in self.__slots__ if name != "backoff"}
        return {**fields, "depends_on": list(self.depends_on)}


def status_snapshot(log: RunLog, now: datetime) -> list[dict[str, Any]]:
    """Return the status of everything declared, by name, as plain data."""
    return [one.as_dict() for one in pipeline_statuses(log, now)]


def pipeline_statuses(log: RunLog, now: datetime) -> list[PipelineStatus]:
    """Return the status of everything declared, by name."""
    states = {state.pipeline: state for state in log.all(PipelineState)}
    at = foreseen(Situation(PROJECT, now, states, held_now(log), WINDOW))
    sizes, by_hand = pool_sizes(PROJECT), requests.worked_on(log.backend)
    statuses = [_of_pipeline(pipeline, at, sizes, by_hand) for pipeline in PROJECT.pipelines.values()]
    statuses += [_of_workflow(workflow, at) for workflow in PROJECT.workflows.values()]
    statuses += [_of_stream(stream, log, now) for stream in PROJECT.streams.values()]
    return sorted(statuses, key=lambda one: (one.name, one.kind))


def foreseen(at: Situation) -> Situation:
    """Return the situation as a scheduler would see it: workflows started or ended; messages are not checked."""
    states = dict(at.states)
    for _ in at.project.workflows:
        changed = False
        for workflow in at.project.workflows.values():
            after = None if workflow.on_message else advanced(workflow, replace(at, states=states))
            if after is not None:
                states[workflow.key], changed = after, True
        if not changed:
            break
    return replace(at, states=states)


def running_now(log: RunLog) -> set[str]:
    """Return the pipelines that run, under a lease or by a request on this machine, and the streams."""
    return {*held_now(log), *requests.worked_on(log.backend), *_streams_running(log)}


def _streams_running(log: RunLog) -> set[str]:
    now = log.backend.now()
    runs, _ = log.list_runs(status="running", limit=_MANY)
    return {run.pipeline for run in runs if run.kind == "streaming" and now - _heard(run) <= SILENCE}


def _heard(run: RunRecord) -> datetime:
    """Return when a stream last wrote something about its run."""
    return instant_of(str(run.extras.get("snapshot_at") or run.started_at))


def _of_pipeline(
    pipeline: Pipeline, at: Situation, sizes: Mapping[str, int], by_hand: Mapping[str, str]
) -> PipelineStatus:
    state = at.state(pipeline.name)
    what, reason = _now(pipeline, state, at, sizes, by_hand)
    counts = state.slot_status in _TRIED
    eligible = state.next_attempt_at if state.slot_status == retrying.FAILED else ""
    return PipelineStatus(
        name=pipeline.name,
        kind="pipeline",
        schedule=pipeline.schedule,
        timezone=pipeline.timezone,
        last_run_at=_normalized_instant(state.last_run_at),
        outcome=state.last_outcome or None,
        attempt=state.attempt - state.interruptions if counts else 0,
        max_attempts=attempts_of(pipeline),
        next_eligible_at=_normalized_instant(eligible),
        gave_up=state.slot_status == retrying.GAVE_UP,
        depends_on=pipeline.depends_on,
        next_run_at=None if state.paused else _next(eligible, next_fire(pipeline, at)),
        state=what,
        reason=reason,
        backoff=pipeline.retry.backoff if pipeline.retry is not None and attempts_of(pipeline) > 1 else None,
    )


def _now(
    pipeline: Pipeline, state: PipelineState, at: Situation, sizes: Mapping[str, int], by_hand: Mapping[str, str]
) -> tuple[str, str | None]:
    """Return the state of a pipeline, and why."""
    if pipeline.name in at.held:
        stopping = f", and requested to stop by {state.cancelled_by}" if state.cancelled_by else ""
        return "running", f"running on {at.held[pipeline.name]}{stopping}"
    if pipeline.name in by_hand:
        return "running", f"run by hand, {by_hand[pipeline.name]}"
    decided = decide(pipeline, at)
    if state.paused:
        return "paused", "paused"
    match decided:
        case Fire():
            pool_reason = full(pipeline, at.held, at.project, sizes)
            return ("waiting", pool_reason) if pool_reason else ("due", f"slot {decided.slot} is due")
        case Lose():
            return (
                ("cancelled", f"cancelled by {state.cancelled_by}; its process is gone")
                if state.cancelled_by
                else (
                    "interrupted",
                    "interrupted, and not repeated by itself",
                )
            )
        case Skip():
            return _state_name(state), decided.reason
    return _state_name(state, "idle"), None


def _state_name(state: PipelineState, otherwise: str = "waiting") -> str:
    names = {retrying.GAVE_UP: "gave_up", retrying.INTERRUPTED: "interrupted", retrying.CANCELLED: "cancelled"}
    if state.slot_status == retrying.FAILED and state.next_attempt_at:
        return "backoff"
    return names.get(state.slot_status, otherwise)


def _of_workflow(workflow: Workflow, at: Situation) -> PipelineStatus:
    state = at.state(workflow.key)
    running = state.slot_status == retrying.RUNNING
    trigger = workflow.triggered_by
    waits = missing(trigger, state.last_slot, at) if trigger is not None and not running else ()
    upcoming = workflow.schedule and next_slot(workflow.schedule, workflow.timezone, at.now)
    what = "running" if running else "paused" if state.paused else "waiting" if waits else "idle"
    reasons = {"running": f"slot {state.last_slot}", "paused": "paused", "waiting": f"waits for {', '.join(waits)}"}
    return PipelineStatus(
        name=workflow.name,
        kind="workflow",
        schedule=workflow.schedule,
        timezone=workflow.timezone,
        last_run_at=_normalized_instant(state.last_run_at),
        outcome=state.last_outcome or None,
        attempt=0,
        max_attempts=1,
        next_eligible_at=None,
        gave_up=False,
        depends_on=() if trigger is None else trigger.leaves(),
        next_run_at=None if state.paused else _next("", upcoming or None),
        state=what,
        reason=reasons.get(what),
    )


def _of_stream(stream: Stream, log: RunLog, now: datetime) -> PipelineStatus:
    runs, _ = log.list_runs(pipeline=stream.name, limit=1)
    run = runs[0] if runs else None
    heard = None if run is None else _heard(run)
    open_ = run is not None and run.status == "running"
    silent = open_ and heard is not None and now - heard > SILENCE
    running = open_ and not silent
    return PipelineStatus(
        name=stream.name,
        kind="stream",
        schedule=None,
        timezone=None,
        last_run_at=None if run is None else _normalized_instant(run.finished_at or run.started_at),
        outcome=None if run is None or open_ else "success" if run.status == "succeeded" else "failure",
        attempt=0,
        max_attempts=1,
        next_eligible_at=None,
        gave_up=False,
        depends_on=(),
        next_run_at=None,
        state="running" if running else "interrupted" if silent else "idle",
        reason=f"silent since {slot_text(heard)}" if silent and heard else None,
    )


def _next(eligible: str, upcoming: datetime | None) -> str | None:
    """Return the earlier of the next attempt and the next slot."""
    instants = [instant_of(eligible)] if eligible else []
    instants += [upcoming] if upcoming is not None else []
    return slot_text(min(instants)) if instants else None


def _normalized_instant(text: str) -> str | None:
    return slot_text(instant_of(text)) if text else None

"""When a workflow is set off, and when it is done: a pure function of the states of pipelines.

Messages are received elsewhere.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from ematix_flow.declare.schedule.workflow import TriggerOp, workflow_key
from ematix_flow.plan.schedule import retry as retrying
from ematix_flow.plan.schedule.cron import instant_of, latest_slot, slot_text

if TYPE_CHECKING:
    from datetime import datetime

    from ematix_flow.declare.schedule.workflow import Workflow
    from ematix_flow.plan.schedule.decide import Situation
    from ematix_flow.records import PipelineState

SHORTEST = timedelta(microseconds=1)


def advanced(workflow: Workflow, at: Situation) -> PipelineState | None:
    """Return the next state of a workflow: ended, or set off anew; None when it stays as it is."""
    state = at.state(workflow.key)
    if state.slot_status == retrying.RUNNING:
        return _ended(workflow, state, at)
    if state.paused:
        return None
    slot = _due(workflow, state, at)
    return None if slot is None else retrying.begun(state, slot, at.now)


def set_off(workflow: Workflow, trigger: str, at: Situation) -> PipelineState:
    """Return the state of a workflow that messages have set off; `trigger` has the position up to which they were seen.

    Its slot is now, or right behind the last one where the clock does not advance or was set back: an older one would
    run no job.
    """
    used = [at.state(name).last_slot for name in (workflow.key, *workflow.jobs)]
    slot = max([at.now, *(instant_of(text) + SHORTEST for text in used if text)])
    return replace(retrying.begun(at.state(workflow.key), written_slot(slot), at.now), trigger=trigger)


def restarted(workflow: Workflow, job: str, at: Situation) -> PipelineState:
    """Return the state of a workflow that is set off anew from one of its jobs on; jobs that do not follow it are kept."""
    again = jobs_from(workflow, job, at)
    retained = [name for name in workflow.jobs if name not in again]
    return replace(
        set_off(workflow, at.state(workflow.key).trigger, at), retained=json.dumps(retained) if retained else ""
    )


def jobs_from(workflow: Workflow, job: str, at: Situation) -> list[str]:
    """Return a job and those of its workflow that depend on it, in the order they run."""
    reached = {job}
    ordered = at.project.order(list(workflow.jobs))
    for name in ordered:
        if reached.intersection(at.project.pipelines[name].depends_on):
            reached.add(name)
    return [name for name in ordered if name in reached]


def retained_jobs(state: PipelineState) -> frozenset[str]:
    """Return the jobs of a workflow that do not run in its slot."""
    return frozenset(json.loads(state.retained)) if state.retained else frozenset()


def is_done(job: PipelineState, workflow: PipelineState) -> bool:
    """Return whether a job has what the last slot of its workflow needed: it has been through it, and its last run succeeded."""
    through = bool(job.last_slot) and instant_of(job.last_slot) >= instant_of(workflow.last_slot)
    retained = job.pipeline in retained_jobs(workflow)
    ended = job.slot_status not in (retrying.RUNNING, retrying.FAILED)
    return (through or retained) and ended and job.last_outcome == retrying.SUCCESS


def holds(trigger: TriggerOp, since: str, at: Situation) -> datetime | None:
    """Return when a condition came true after an instant: the last success that it needed; None while it does not hold."""
    instants = [_satisfied_at(member, since, at) for member in trigger.members]
    known = [instant for instant in instants if instant is not None]
    if trigger.kind == "all":
        return max(known) if len(known) == len(instants) else None
    return max(known, default=None)


def missing(trigger: TriggerOp, since: str, at: Situation) -> tuple[str, ...]:
    """Return the names that a condition still waits for."""
    return tuple(name for name in trigger.leaves() if _satisfied_at(name, since, at) is None)


def _satisfied_at(member: str | TriggerOp, since: str, at: Situation) -> datetime | None:
    if isinstance(member, TriggerOp):
        return holds(member, since, at)
    state = at.state(workflow_key(member) if member in at.project.workflows else member)
    if not state.last_success_at:
        return None
    instant = instant_of(state.last_success_at)
    return instant if not since or instant > instant_of(since) else None


def _due(workflow: Workflow, state: PipelineState, at: Situation) -> str | None:
    if workflow.triggered_by is not None:
        instant = holds(workflow.triggered_by, state.last_slot, at)
        if instant is not None:
            return written_slot(instant)
    if workflow.schedule is None:
        return None
    since = at.now - at.window
    if state.last_slot:
        since = instant_of(state.last_slot)
    slot = latest_slot(workflow.schedule, workflow.timezone, since, at.now)
    return None if slot is None else slot_text(slot)


def written_slot(instant: datetime) -> str:
    """Return an instant that no cron gave as it is written down, to the last digit: two of them may share a second."""
    return retrying.written(instant).replace("+00:00", "Z")


def _ended(workflow: Workflow, state: PipelineState, at: Situation) -> PipelineState | None:
    """Return the state of a workflow whose jobs have all been through its slot; None while one is under way."""
    retained = retained_jobs(state)
    jobs = [at.state(name) for name in workflow.jobs if name in at.project.pipelines and name not in retained]
    slot = instant_of(state.last_slot)
    through = [job for job in jobs if job.last_slot and instant_of(job.last_slot) >= slot]
    broken = [job for job in through if job.slot_status in (retrying.GAVE_UP, retrying.INTERRUPTED, retrying.CANCELLED)]
    if broken:
        error_text = f"{', '.join(job.pipeline for job in broken)} failed"
        return retrying.failed(state, None, error_text, at.now)
    if len(through) < len(jobs) or any(job.slot_status != retrying.SUCCEEDED for job in through):
        return None
    last = max((instant_of(job.last_success_at) for job in through), default=at.now)
    return retrying.succeeded(state, "", last)

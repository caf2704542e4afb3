"""What operators start by hand from a page or a program: a job with what depends on it, or a whole workflow."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from ematix_flow.commit.runlog.records import Action, format_instant
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine.schedule.actions import (
    CASCADE,
    DONE,
    RERUN,
    RESTART,
    RUN,
    record_action,
    request_run,
    resume,
    workflow_of,
)
from ematix_flow.engine.schedule.lease import held_now
from ematix_flow.engine.schedule.run_names import Meant
from ematix_flow.engine.schedule.status import WINDOW
from ematix_flow.errors import RunError, UnknownNameError, did_you_mean
from ematix_flow.plan.schedule import retry as retrying
from ematix_flow.plan.schedule.cron import slot_id
from ematix_flow.plan.schedule.decide import Situation
from ematix_flow.plan.schedule.workflows import is_done, jobs_from, restarted, retained_jobs, set_off
from ematix_flow.records import PipelineState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.declare.schedule.workflow import Workflow
    from ematix_flow.records import RunRecord

FIRST_STEP = "first"
"""What a run that failed before its first step is restarted from."""


def actions_of(log: RunLog, limit: int) -> list[Action]:
    """Return what operators requested and did, the newest first."""
    return sorted(log.all(Action), key=lambda action: (action.asked_at, action.id), reverse=True)[:limit]


def run_now(log: RunLog, name: str, by: str, *, cascade: bool = False) -> Action:
    """Request a run of a pipeline; with `cascade` also of everything that depends on it, each after what it waits for."""
    PROJECT.pipeline(name)
    return _request_in_order(log, [name, *(_downstream(name) if cascade else ())], by)


def _request_in_order(log: RunLog, names: Sequence[str], by: str) -> Action:
    """Request runs of several pipelines, each after those that it depends on; return the first request."""
    first = request_run(log, RUN, names[0], by=by)
    for name in names[1:]:
        note = f"{CASCADE}{first.id}"
        log.add_action(Action("", RUN, name, note=note, asked_at=first.asked_at, asked_by=by))
    return first


def _downstream(name: str) -> list[str]:
    """Return everything that depends on a pipeline, in the order it runs."""
    reached = {name}
    for pipeline in PROJECT.pipelines.values():  # what is depended on is declared before
        if reached.intersection(pipeline.depends_on):
            reached.add(pipeline.name)
    return PROJECT.order(sorted(reached - {name}))


def rerun(log: RunLog, pipeline: str, by: str, *, run_id: str = "", from_step: str = "") -> tuple[str, list[str]]:
    """Repeat a pipeline or workflow from the beginning, or a workflow from a job on; return the id and what runs."""
    workflow = workflow_of(pipeline)
    if workflow is None and from_step:
        refuse_step(pipeline, from_step)
    if workflow is None:
        return request_run(log, RERUN, pipeline, run_id=run_id, by=by).id, [pipeline]
    if from_step:
        return restart_workflow(log, workflow.name, from_step, by)
    return start_workflow(log, workflow.name, by)


def restart(log: RunLog, run: RunRecord, from_step: str, by: str) -> tuple[str, list[str]]:
    """Take a run up again where it failed, or a workflow from a job on; return the id and what runs."""
    workflow = workflow_of(run.pipeline)
    if workflow is None:
        if from_step not in ("", run.failed_step or FIRST_STEP):
            refuse_step(run.pipeline, from_step)
        action = request_run(log, RESTART, run.pipeline, run_id=run.run_id, from_step=from_step, by=by)
        return action.id, [run.pipeline]
    if from_step:
        return restart_workflow(log, workflow.name, from_step, by)
    state = resume(log, Meant(run.pipeline, run), by)
    return slot_id(workflow.key, state.last_slot), list(workflow.jobs)


def refuse_step(pipeline: str, step: str) -> NoReturn:
    """Refuse to begin a load in the middle: its token tells what is committed, and rows are staged and committed as one."""
    hint = (
        "a load that failed goes on by its token, and one that is repeated begins anew; workflows restart from a job."
    )
    raise RunError(f"the load of {pipeline} cannot be begun at {step!r}", hint=hint)


def start_workflow(log: RunLog, name: str, by: str, jobs: Sequence[str] = ()) -> tuple[str, list[str]]:
    """Set a workflow off now, or request some of its jobs only; return the id of the start and the jobs."""
    workflow = _workflow(name, jobs)
    if jobs:
        ordered = PROJECT.order([job for job in workflow.jobs if job in jobs])
        return _request_in_order(log, ordered, by).id, ordered
    state = _started(log, workflow, "")
    record_action(log, RUN, workflow.key, by, note=f"slot {state.last_slot}")
    return slot_id(workflow.key, state.last_slot), list(workflow.jobs)


def restart_workflow(log: RunLog, name: str, job: str, by: str) -> tuple[str, list[str]]:
    """Set a workflow off from one of its jobs on: that and what depends on it is loaded again, the others are kept.

    Return the id of the start and the jobs that run.
    """
    workflow = _workflow(name, [job])
    state = _started(log, workflow, job)
    at = format_instant(log.backend.now())
    done = Action("", RESTART, workflow.key, from_step=job, note=f"slot {state.last_slot}", state=DONE)
    log.add_action(replace(done, asked_at=at, ended_at=at, asked_by=by))
    retained = retained_jobs(state)
    return slot_id(workflow.key, state.last_slot), [one for one in workflow.jobs if one not in retained]


def _workflow(name: str, jobs: Sequence[str]) -> Workflow:
    """Return a workflow that has these jobs."""
    workflow = PROJECT.workflows.get(name)
    if workflow is None:
        raise UnknownNameError(f"no workflow named {name!r}", hint=did_you_mean(name, PROJECT.workflows))
    for job in jobs:
        if job not in workflow.jobs:
            raise UnknownNameError(f"workflow {name!r} has no job {job!r}", hint=did_you_mean(job, workflow.jobs))
    return workflow


def _started(log: RunLog, workflow: Workflow, job: str) -> PipelineState:
    """Write that a workflow is set off, from a job on where one is named, also while a scheduler changes its state."""
    if any(one in PROJECT.streams for one in workflow.jobs):
        raise RunError(f"workflow {workflow.name!r} has a stream", hint="flow consume runs streams.")
    while True:
        states = {state.pipeline: state for state in log.all(PipelineState)}
        before = states.get(workflow.key)
        if before is not None and before.slot_status == retrying.RUNNING:
            raise RunError(f"workflow {workflow.name!r} runs already, slot {before.last_slot}")
        at = Situation(PROJECT, log.backend.now(), states, held_now(log), WINDOW)
        if job:
            _refuse_unfinished(workflow, job, at)
            after = restarted(workflow, job, at)
        else:
            after = set_off(workflow, at.state(workflow.key).trigger, at)
        stored = log.swap(before, after)
        if stored is not None:
            return stored


def _refuse_unfinished(workflow: Workflow, job: str, at: Situation) -> None:
    """Refuse a restart that would keep the result of a job which has none."""
    state = at.state(workflow.key)
    if not state.last_slot:
        raise RunError(f"workflow {workflow.name!r} has not run yet", hint="set it off as a whole.")
    again = jobs_from(workflow, job, at)
    missing = [name for name in workflow.jobs if name not in again and not is_done(at.state(name), state)]
    if missing:
        text = f"workflow {workflow.name!r} cannot be restarted from {job}: {', '.join(missing)} has not succeeded"
        raise RunError(
            text, hint=f"flow runs resume {workflow.name} goes on where it failed, or restart it from there."
        )

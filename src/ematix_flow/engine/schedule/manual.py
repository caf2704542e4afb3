"""What operators start by hand from a page or a program: a job with what depends on it, or a whole workflow."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ematix_flow.commit.runlog.records import Action
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine.schedule.actions import CASCADE, RUN, record_action, request_run
from ematix_flow.engine.schedule.lease import held_now
from ematix_flow.engine.schedule.status import WINDOW
from ematix_flow.errors import RunError, UnknownNameError, did_you_mean
from ematix_flow.plan.schedule import retry as retrying
from ematix_flow.plan.schedule.cron import slot_id
from ematix_flow.plan.schedule.decide import Situation
from ematix_flow.plan.schedule.workflows import set_off
from ematix_flow.records import PipelineState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.declare.schedule.workflow import Workflow


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


def start_workflow(log: RunLog, name: str, by: str, jobs: Sequence[str] = ()) -> tuple[str, list[str]]:
    """Set a workflow off now, or request some of its jobs only; return the id of the start and the jobs."""
    workflow = PROJECT.workflows.get(name)
    if workflow is None:
        raise UnknownNameError(f"no workflow named {name!r}", hint=did_you_mean(name, PROJECT.workflows))
    for job in jobs:
        if job not in workflow.jobs:
            raise UnknownNameError(f"workflow {name!r} has no job {job!r}", hint=did_you_mean(job, workflow.jobs))
    if jobs:
        ordered = PROJECT.order([job for job in workflow.jobs if job in jobs])
        return _request_in_order(log, ordered, by).id, ordered
    state = _started(log, workflow)
    record_action(log, "run", workflow.key, by, note=f"slot {state.last_slot}")
    return slot_id(workflow.key, state.last_slot), list(workflow.jobs)


def _started(log: RunLog, workflow: Workflow) -> PipelineState:
    """Write that a workflow is set off, also while a scheduler changes its state."""
    if any(job in PROJECT.streams for job in workflow.jobs):
        raise RunError(f"workflow {workflow.name!r} has a stream", hint="flow consume runs streams.")
    while True:
        states = {state.pipeline: state for state in log.all(PipelineState)}
        before = states.get(workflow.key)
        if before is not None and before.slot_status == retrying.RUNNING:
            raise RunError(f"workflow {workflow.name!r} runs already, slot {before.last_slot}")
        at = Situation(PROJECT, log.backend.now(), states, held_now(log), WINDOW)
        after = replace(set_off(workflow, at.state(workflow.key).trigger, at), cancelled_by="")
        stored = log.swap(before, after)
        if stored is not None:
            return stored

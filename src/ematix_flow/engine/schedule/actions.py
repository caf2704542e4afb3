"""Actions of operators: pause, resume, cancel, run and rerun; each leaves a record with who did it in the run log."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ematix_flow.commit.runlog.legacy import ACTION_CLAIMED, ACTION_REQUESTED
from ematix_flow.commit.runlog.records import Action, Claim, RequestRow, format_instant
from ematix_flow.declare.project import PROJECT
from ematix_flow.errors import UnknownNameError
from ematix_flow.plan.schedule import retry as retrying
from ematix_flow.records import PipelineState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.declare.schedule.workflow import Workflow

DONE, FAILED = "done", "failed"
RUN, RERUN, RESTART = "run", "rerun", "restart"
CASCADE = "after "
"""Begins the note of a run that was requested together with one that it depends on; the id of that follows."""
_UNFINISHED = (ACTION_REQUESTED, ACTION_CLAIMED)
_RESUMABLE = (retrying.FAILED, retrying.GAVE_UP, retrying.INTERRUPTED, retrying.CANCELLED)


def record_action(log: RunLog, kind: str, name: str, by: str, *, run_id: str = "", note: str = "") -> Action:
    """Record what an operator did at once, so that the list of actions is complete."""
    at = format_instant(log.backend.now())
    return log.add_action(
        Action("", kind, name, run_id=run_id, note=note[:1000], asked_at=at, asked_by=by, state=DONE, ended_at=at)
    )


def pause(log: RunLog, name: str, by: str, *, run_id: str = "") -> PipelineState:
    """Pause a pipeline: no slot of it begins; one that runs is left alone."""
    state = log.change_state(name, lambda state: replace(state, paused=True))
    record_action(log, "pause", name, by, run_id=run_id)
    return state


def unpause(log: RunLog, name: str, by: str, *, run_id: str = "") -> PipelineState:
    """End the pause of a pipeline; what was missed meanwhile is caught up as the pipeline declares."""
    state = log.change_state(name, lambda state: replace(state, paused=False))
    record_action(log, "unpause", name, by, run_id=run_id)
    return state


def resume(log: RunLog, name: str, by: str, *, run_id: str = "") -> PipelineState:
    """Have a slot that failed, was given up or interrupted tried at once, as if for the first time.

    A workflow goes on in its slot: with the jobs that failed there, by their tokens, and those that have not run.
    """
    pipeline = pipeline_of(log, name)
    now = format_instant(log.backend.now())
    workflow, status = workflow_of(pipeline), retrying.FAILED
    if workflow is not None:
        status = retrying.RUNNING
        _resume_jobs(log, workflow, now)
    state = log.change_state(pipeline, lambda state: replace(_retried(state, status, now), paused=False))
    note = f"slot {state.last_slot}" if state.next_attempt_at else "no slot had failed"
    record_action(log, "resume", pipeline, by, run_id=run_id, note=note)
    return state


def _resume_jobs(log: RunLog, workflow: Workflow, now: str) -> None:
    """Have the jobs tried again because of which a workflow failed."""
    state = log.find(PipelineState, workflow.key)
    if state is None or state.slot_status not in _RESUMABLE:
        return
    for job in workflow.jobs:
        if log.find(PipelineState, job) is not None:
            log.change_state(job, lambda state: _retried(state, retrying.FAILED, now))


def _retried(state: PipelineState, status: str, now: str) -> PipelineState:
    """Return the state of a slot that is tried again, if it did not end well."""
    if state.slot_status not in _RESUMABLE:
        return state
    state = replace(state, attempt=0, interruptions=0, first_attempt_at="")
    # At once by any clock that sees the slot, also that of `flow run-due --now`.
    return replace(state, slot_status=status, next_attempt_at=state.last_slot or now)


def cancel(log: RunLog, name: str, by: str, *, run_id: str = "") -> str:
    """Request that the run of a pipeline stops; return its worker, empty when nothing of it runs.

    The run stops itself and then releases its lease: nothing else of the pipeline runs meanwhile.
    """
    pipeline = pipeline_of(log, name)
    notified = _cancel(log, pipeline, by)
    if notified:
        record_action(log, "cancel", pipeline, by, run_id=run_id, note=notified)
    return notified


def _cancel(log: RunLog, pipeline: str, by: str) -> str:
    state = log.find(PipelineState, pipeline)
    running = state is not None and state.slot_status == retrying.RUNNING
    workflow = workflow_of(pipeline)
    if workflow is not None and running:
        return _cancel_workflow(log, workflow, by)
    if running:
        # First, so that the slot is not taken up by itself when its process dies before it has stopped.
        log.change_state(pipeline, lambda current: _with_cancel(current, by))
    lease = log.cancel_lease(pipeline, by)
    request = log.cancel_request(pipeline, by)
    notified = [lease.worker_id] if lease is not None else []
    notified += [f"process {request.pid} on {request.host}"] if request is not None else []
    return " and ".join(notified) or ("no process (it has ended)" if running else "")


def _cancel_workflow(log: RunLog, workflow: Workflow, by: str) -> str:
    """End a workflow, so that it sets no further job off, and request that its running jobs stop."""
    now = log.backend.now()
    log.change_state(workflow.key, lambda state: retrying.cancelled(_with_cancel(state, by), now))
    notified = [_cancel(log, job, by) for job in workflow.jobs if log.find(Claim, job) is not None]
    return " and ".join(filter(None, notified)) or f"the scheduler of workflow {workflow.name}"


def workflow_of(key: str) -> Workflow | None:
    """Return the workflow that the run log knows under a name."""
    return next((one for one in PROJECT.workflows.values() if one.key == key), None)


def _with_cancel(state: PipelineState, by: str) -> PipelineState:
    return replace(state, cancelled_by=by) if state.slot_status == retrying.RUNNING else state


def request_run(
    log: RunLog, kind: str, pipeline: str, *, run_id: str = "", from_step: str = "", by: str = ""
) -> Action:
    """Request a run, which the next scheduler or `flow run-due` does."""
    at = format_instant(log.backend.now())
    return log.add_action(Action("", kind, pipeline, run_id=run_id, from_step=from_step, asked_at=at, asked_by=by))


def requested_runs(log: RunLog, held: Callable[[str], bool]) -> list[Action]:
    """Return the requested runs that no worker has claimed and that wait for nothing, oldest first."""
    everything = log.all(Action)
    requested = [one for one in everything if one.kind in (RUN, RERUN, RESTART) and one.state in _UNFINISHED]
    ready = [one for one in requested if not held(one.pipeline) and _is_ready(log, one, everything)]
    return sorted(ready, key=lambda one: one.asked_at)


def _is_ready(log: RunLog, action: Action, everything: Sequence[Action]) -> bool:
    """Return whether what was requested with a run, and what it depends on, is done; if that failed, so has this."""
    if not action.note.startswith(CASCADE) or action.pipeline not in PROJECT.pipelines:
        return True
    first = action.note.removeprefix(CASCADE)
    upstream = PROJECT.pipelines[action.pipeline].depends_on
    before = [one for one in everything if first in (one.id, one.note.removeprefix(CASCADE))]
    waits = [one for one in before if one.pipeline in upstream]
    failed = next((one for one in waits if one.state == FAILED), None)
    if failed is not None:
        ended = format_instant(log.backend.now())
        log.swap(action, replace(action, state=FAILED, ended_at=ended, outcome=f"{failed.pipeline} failed"))
    return all(one.state == DONE for one in waits)


def pipeline_of(log: RunLog, name: str) -> str:
    """Return the pipeline of a name or of a run's id."""
    if any(log.find(kind, name) is not None for kind in (PipelineState, Claim, RequestRow)):
        return name
    run = log.get_run(name)
    if run is not None:
        return run.pipeline
    before, separator, _ = name.rpartition("@")
    if separator and log.find(PipelineState, before) is not None:
        return before
    message = f"the run log knows neither a pipeline nor a run {name!r}"
    raise UnknownNameError(message, hint="flow status shows pipelines, flow runs list shows runs.")

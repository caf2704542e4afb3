"""Actions of operators: pause, resume, cancel, run and rerun; each leaves a record with who did it in the run log."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ematix_flow.commit.runlog.legacy import ACTION_CLAIMED, ACTION_REQUESTED, REQUESTED
from ematix_flow.commit.runlog.records import Action, Claim, format_instant
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine.batch.run_records import LEASED
from ematix_flow.engine.schedule.run_lists import is_running
from ematix_flow.engine.schedule.run_names import Meant, meant
from ematix_flow.errors import RunError
from ematix_flow.plan.schedule import retry as retrying
from ematix_flow.plan.schedule.cron import instant_of, slot_text
from ematix_flow.records import PipelineState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.declare.schedule.workflow import Workflow

DONE, FAILED = "done", "failed"
RUN, RERUN, RESTART = "run", "rerun", "restart"
CASCADE = "after "
"""Begins the note of a run that was requested together with one that it depends on; the id of that follows."""
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


def resume(log: RunLog, name: str | Meant, by: str, *, or_unpause: bool = False) -> PipelineState:
    """Have a slot that failed, was given up or interrupted tried at once, as if for the first time.

    A workflow goes on in its slot: with the jobs that failed there, by their tokens, and those that have not run. A run
    or slot that is not the last one is refused; with `or_unpause` the pause of its pipeline ends, if there is one.
    """
    what = name if isinstance(name, Meant) else meant(log, name)
    pipeline, now = what.pipeline, format_instant(log.backend.now())
    before = log.find(PipelineState, pipeline) or PipelineState(pipeline)
    if (what.run or what.slot) and not what.is_of(before.last_slot):
        if not (or_unpause and before.paused):
            raise _not_the_last(what, before)
        state = log.change_state(pipeline, lambda state: replace(state, paused=False))
        record_action(log, "resume", pipeline, by, run_id=what.run_id, note="its pause has ended")
        return state
    workflow, status = workflow_of(pipeline), retrying.FAILED
    if workflow is not None:
        status = retrying.RUNNING
        _resume_jobs(log, workflow, now)
    state = log.change_state(pipeline, lambda state: replace(_retried(state, status, now), paused=False))
    note = f"slot {state.last_slot}" if state.next_attempt_at else "no slot had failed"
    record_action(log, "resume", pipeline, by, run_id=what.run_id, note=note)
    return state


def _not_the_last(what: Meant, state: PipelineState) -> RunError:
    """Return why a run or slot is not resumed, and what is to be done with it instead."""
    slot, workflow = what.named_slot, workflow_of(what.pipeline)
    if not slot:
        return RunError(f"{what} has no slot that could be resumed", hint=f"flow runs rerun {what.run_id} repeats it.")
    last = f"the last one is {state.last_slot}" if state.last_slot else "none has begun"
    hint = f"flow runs rerun {workflow.name} repeats it." if workflow is not None else ""
    end = slot_text(instant_of(slot) + retrying.MIN_SLOT_GAP)
    hint = hint or f"flow backfill {what.pipeline} --from {slot} --to {end} runs it."
    return RunError(f"slot {slot} of {what.pipeline} cannot be resumed: {last}", hint=hint)


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


def cancel(log: RunLog, name: str | Meant, by: str) -> str:
    """Request that a run stops, or whatever runs of a pipeline; return its worker, empty when nothing of it runs.

    The run stops itself and then releases its lease: nothing else of the pipeline runs meanwhile.
    """
    what = name if isinstance(name, Meant) else meant(log, name)
    if (what.run or what.slot) and not _goes_on(log, what):
        ended = what.run is not None and what.run.status != REQUESTED
        hint = f"flow runs cancel {what.pipeline} stops what runs of it."
        raise RunError(f"{what} {'has ended' if ended else 'does not run'}, so there is nothing to stop", hint=hint)
    notified = _cancel_by_hand(log, what.pipeline, by) if _is_by_hand(what) else _cancel(log, what, by)
    if notified:
        record_action(log, "cancel", what.pipeline, by, run_id=what.run_id, note=notified)
    return notified


def _is_by_hand(what: Meant) -> bool:
    """Return whether a run was named that has neither a slot nor a lease."""
    run = what.run
    return run is not None and not what.named_slot and not run.extras.get(LEASED) and run.kind == "batch"


def _goes_on(log: RunLog, what: Meant) -> bool:
    """Return whether what was named has begun and has not ended, also if its process died and another takes it up."""
    state, run = log.find(PipelineState, what.pipeline), what.run
    slot_runs = state is not None and state.slot_status == retrying.RUNNING and what.is_of(state.last_slot)
    if run is None or run.finished_at is not None:  # a slot has other attempts than the newest that is recorded
        return slot_runs and bool(what.slot)
    return slot_runs or is_running(log, run)


def _cancel(log: RunLog, what: Meant, by: str) -> str:
    pipeline = what.pipeline
    state = log.find(PipelineState, pipeline)
    running = state is not None and state.slot_status == retrying.RUNNING
    workflow = workflow_of(pipeline)
    if workflow is not None and running:
        return _cancel_workflow(log, workflow, by)
    named = bool(what.run or what.slot)
    if running and (not named or (state is not None and what.is_of(state.last_slot))):
        # First, so that the slot is not taken up by itself when its process dies before it has stopped.
        log.change_state(pipeline, lambda current: _with_cancel(current, by))
    lease = log.cancel_lease(pipeline, by)
    notified = [lease.worker_id] if lease is not None else []
    notified += [] if named else filter(None, [_cancel_by_hand(log, pipeline, by)])
    return " and ".join(notified) or ("no process (it has ended)" if running else "")


def _cancel_by_hand(log: RunLog, pipeline: str, by: str) -> str:
    """Request that a run by hand stops; return its process, empty when there is none."""
    request = log.cancel_request(pipeline, by)
    return "" if request is None else f"process {request.pid} on {request.host}"


def _cancel_workflow(log: RunLog, workflow: Workflow, by: str) -> str:
    """End a workflow, so that it sets no further job off, and request that its running jobs stop."""
    now = log.backend.now()
    log.change_state(workflow.key, lambda state: retrying.cancelled(_with_cancel(state, by), now))
    notified = [_cancel(log, Meant(job), by) for job in workflow.jobs if log.find(Claim, job) is not None]
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
    """Return the requested runs that no worker works on and that wait for nothing, oldest first.

    Those that a worker had claimed before it died are among them; what becomes of them depends on the pipeline.
    """
    everything = log.all(Action)
    requested = [one for one in everything if one.kind in (RUN, RERUN, RESTART) and _is_unfinished(one)]
    ready = [one for one in requested if not held(one.pipeline) and _is_ready(log, one, everything)]
    return sorted(ready, key=lambda one: one.asked_at)


def _is_unfinished(action: Action) -> bool:
    """Return whether a worker has to do a run or was doing it; one that a program claimed for itself has no worker."""
    return action.state == ACTION_REQUESTED or (action.state == ACTION_CLAIMED and bool(action.taken_by))


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

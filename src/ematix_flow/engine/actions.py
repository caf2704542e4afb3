"""What operators ask for: pause, resume, cancel, run and run again; told to the run log, where whoever runs pipelines sees it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ematix_flow.commit.runlog.former import ASKED, TAKEN
from ematix_flow.commit.runlog.records import Action, Claim, told
from ematix_flow.errors import UnknownNameError
from ematix_flow.plan import retrying
from ematix_flow.records import PipelineState

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.commit.runlog.log import RunLog

DONE, FAILED = "done", "failed"
RUN, RERUN, RESTART = "run", "rerun", "restart"
_RESUMABLE = (retrying.FAILED, retrying.GAVE_UP, retrying.INTERRUPTED)


def pause(log: RunLog, name: str) -> PipelineState:
    """Let no slot of a pipeline begin; one that runs is left alone."""
    return log.change_state(name, lambda state: replace(state, paused=True))


def unpause(log: RunLog, name: str) -> PipelineState:
    """Let slots begin again; what was missed meanwhile is caught up as the pipeline says."""
    return log.change_state(name, lambda state: replace(state, paused=False))


def resume(log: RunLog, name: str) -> PipelineState:
    """Have a slot that failed, was given up or interrupted tried at once, as if for the first time."""
    pipeline = pipeline_of(log, name)
    now = told(log.book.now())

    def again(state: PipelineState) -> PipelineState:
        state = replace(state, paused=False)
        if state.slot_status not in _RESUMABLE:
            return state
        state = replace(state, attempt=0, interruptions=0, first_attempt_at="")
        return replace(state, slot_status=retrying.FAILED, next_attempt_at=now)

    return log.change_state(pipeline, again)


def cancel(log: RunLog, name: str, by: str) -> bool:
    """Take the lease of a running pipeline away, so that its run commits nothing any more; False when none runs."""
    pipeline = pipeline_of(log, name)
    freed = log.revoke(pipeline)

    def ended(state: PipelineState) -> PipelineState:
        if state.slot_status != retrying.RUNNING:
            return state
        return replace(retrying.interrupted(state, log.book.now()), error=f"cancelled by {by}")

    before = log.find(PipelineState, pipeline)
    running = before is not None and before.slot_status == retrying.RUNNING
    if running:
        log.change_state(pipeline, ended)
    return freed or running


def ask(log: RunLog, kind: str, pipeline: str, *, run_id: str = "", from_step: str = "", by: str = "") -> Action:
    """Ask for a run, which the next scheduler or `flow run-due` does."""
    at = told(log.book.now())
    return log.ask(Action("", kind, pipeline, run_id=run_id, from_step=from_step, asked_at=at, asked_by=by))


def asked_runs(log: RunLog, held: Callable[[str], bool]) -> list[Action]:
    """Give the runs that were asked for and that nobody is at work on, oldest first."""
    found = [one for one in log.all(Action) if one.kind in (RUN, RERUN, RESTART) and one.state in (ASKED, TAKEN)]
    return sorted((one for one in found if not held(one.pipeline)), key=lambda one: one.asked_at)


def pipeline_of(log: RunLog, name: str) -> str:
    """Give the pipeline of a name or of a run's id."""
    if log.find(PipelineState, name) is not None or log.find(Claim, name) is not None:
        return name
    run = log.get_run(name)
    if run is not None:
        return run.pipeline
    before, separator, _ = name.rpartition("@")
    if separator and log.find(PipelineState, before) is not None:
        return before
    message = f"the run log knows neither a pipeline nor a run {name!r}"
    raise UnknownNameError(message, hint="flow status shows pipelines, flow runs list shows runs.")

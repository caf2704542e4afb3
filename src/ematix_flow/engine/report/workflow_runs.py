"""A run of a workflow as plain data: its jobs are its steps; one before the last is known by the runs of its jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ematix_flow.engine.batch.run_records import CANCELLED, FAILED, RUNNING, SUCCEEDED
from ematix_flow.engine.report.run_lines import duration_ms, run_summary
from ematix_flow.engine.schedule.actions import workflow_of
from ematix_flow.engine.schedule.run_lists import current_run
from ematix_flow.plan.schedule import retry as retrying
from ematix_flow.plan.schedule.cron import slot_id
from ematix_flow.plan.schedule.workflows import retained_jobs
from ematix_flow.records import PipelineState, RunRecord

if TYPE_CHECKING:
    from ematix_flow.commit.runlog.log import RunLog

WORKFLOW, RETAINED, WAITING, NOT_RUN = "workflow", "retained", "waiting", "not run"
_STATUSES = {retrying.RUNNING: RUNNING, retrying.SUCCEEDED: SUCCEEDED, retrying.CANCELLED: CANCELLED}


def workflow_run(log: RunLog, run_id: str) -> RunRecord | None:
    """Return a run of a workflow by its id, `workflow:NAME@SLOT`; None for any other."""
    key, _, slot = run_id.rpartition("@")
    workflow = workflow_of(key)
    if workflow is None:
        return None
    state = log.find(PipelineState, key)
    if state is not None and state.last_slot == slot:
        ended = None if state.slot_status == retrying.RUNNING else state.last_run_at or None
        status, began = _STATUSES.get(state.slot_status, FAILED), state.last_attempt_at or slot
        return RunRecord(run_id, key, status, began, ended, kind=WORKFLOW, error_summary=state.error or None)
    last = [attempts[-1] for attempts in (_attempts(log, job, slot) for job in workflow.jobs) if attempts]
    if not last:
        return None
    status = SUCCEEDED if all(run.status == SUCCEEDED for run in last) else FAILED
    began, over = min(run.started_at for run in last), max(run.finished_at or run.started_at for run in last)
    return RunRecord(run_id, key, status, began, over, kind=WORKFLOW)


def workflow_detail(log: RunLog, run: RunRecord) -> dict[str, Any]:
    """Return a run of a workflow with its jobs as steps; the last one can be restarted from any of them."""
    workflow, slot = workflow_of(run.pipeline), run.run_id.rpartition("@")[2]
    state = log.find(PipelineState, run.pipeline) or PipelineState(run.pipeline)
    jobs, last = () if workflow is None else workflow.jobs, state.last_slot == slot
    over = last and run.status != RUNNING
    return {
        **run_summary(run),
        "request_id": "",
        "project": run.project,
        "failed_watermark": None,
        "error_summary": run.error_summary,
        "origin": None,
        "extras": run.extras,
        "progress": None,
        "attempts": [run_summary(run)],
        "steps": [_step(log, job, slot, state if last else None) for job in jobs],
        "actions": {
            "pause": last and not state.paused,
            "resume": last and (state.paused or run.status in (FAILED, CANCELLED)),
            "restart_from_step": list(jobs) if over else [],
            "rerun_full": over,
            "resume_from_watermark": False,
            "cancel": last and not over,
        },
    }


def _step(log: RunLog, job: str, slot: str, state: PipelineState | None) -> dict[str, Any]:
    """Return one job: its last attempt at the slot, or that it kept its result or has yet to run.

    `state` is that of the workflow while the slot is its last one.
    """
    attempts = _attempts(log, job, slot)
    blank = {"step": job, "target": "", "started_at": None, "duration_ms": None, "run": None}
    if attempts:
        last = current_run(log, attempts[-1])
        known = {"status": last.status, "started_at": last.started_at, "duration_ms": duration_ms(last)}
        return {**blank, **known, "run": run_summary(last)["key"]}
    if state is None:
        return {**blank, "status": NOT_RUN}
    if job in retained_jobs(state):
        return {**blank, "status": RETAINED}
    return {**blank, "status": WAITING if state.slot_status == retrying.RUNNING else NOT_RUN}


def _attempts(log: RunLog, job: str, slot: str) -> list[RunRecord]:
    return log.runs_of_request(slot_id(job, slot), job)

"""Runs as plain data: lines of lists, and one run with its attempts, its steps and what can be done with it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ematix_flow.commit.runlog.records import Action
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine.batch.run_records import CANCELLED, FAILED, INTERRUPTED, RUNNING
from ematix_flow.engine.batch.step_times import STAGE
from ematix_flow.engine.report.counts import remembered
from ematix_flow.engine.report.run_lines import duration_ms, run_summary
from ematix_flow.engine.report.workflow_runs import WORKFLOW, workflow_detail, workflow_run
from ematix_flow.engine.schedule.manual import FIRST_STEP
from ematix_flow.engine.schedule.run_lists import current_run, list_current_runs
from ematix_flow.errors import UnknownNameError
from ematix_flow.plan.schedule.cron import slot_id
from ematix_flow.records import PipelineState, RunRecord

if TYPE_CHECKING:
    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.engine.schedule.run_lists import RunListQuery

REQUESTED = "requested"
_ENDED_BADLY = (FAILED, CANCELLED, INTERRUPTED)


def run_page(log: RunLog, query: RunListQuery) -> dict[str, Any]:
    """Return one page of runs, newest first; of a long history the total may be some seconds old."""
    listed, total = list_current_runs(log, replace(query, counted=query.status in (RUNNING, INTERRUPTED)))
    end = query.offset + len(listed)
    if query.status not in (RUNNING, INTERRUPTED):
        key = ("runs", query.pipeline, query.status, query.since, query.all_projects)
        total = remembered(log, key, lambda: list_current_runs(log, replace(query, limit=1, offset=0))[1])
        total = max(total, end if listed else 0)
    return {
        "runs": [run_summary(run) for run in listed],
        "total": total,
        "next_offset": end if listed and end < total else None,
    }


def find_run(log: RunLog, run_id: str) -> RunRecord:
    """Return a run by its id, a beginning of it, the id of the request that it answers, or that of a workflow's last run."""
    run = log.get_run(run_id)
    if run is not None:
        return current_run(log, run)
    of_workflow = workflow_run(log, run_id)
    if of_workflow is not None:
        return of_workflow
    action = log.find(Action, run_id)
    if action is None:
        raise UnknownNameError(f"no single run has the id {run_id!r}", hint="flow runs list shows the ids.")
    return run_of_action(log, action)


def run_of_action(log: RunLog, action: Action) -> RunRecord:
    """Return the run that an operator's request became, or a record that it waits."""
    attempts = log.runs_of_request(slot_id(action.pipeline, action.id), action.pipeline)
    if attempts:
        return current_run(log, attempts[-1])
    ended = {"done": "succeeded", "failed": FAILED}.get(action.state, REQUESTED)
    extras: dict[str, object] = {"action": action.kind, "requested_by": action.asked_by, "prior_run_id": action.run_id}
    return RunRecord(
        action.id,
        action.pipeline,
        ended,
        action.asked_at,
        action.ended_at or None,
        error_summary=action.outcome or None,
        extras=extras,
    )


def run_detail(log: RunLog, run: RunRecord) -> dict[str, Any]:
    """Return a run with its attempts, the steps of this attempt and what can be done with it."""
    if run.kind == WORKFLOW:
        return workflow_detail(log, run)
    siblings = log.runs_of_request(run.request_id, run.pipeline) if run.request_id else []
    own = [one for one in siblings if one.target == run.target] or [run]
    together = [one for one in siblings if one.attempt == run.attempt] or [run]
    state = log.find(PipelineState, run.pipeline) or PipelineState(run.pipeline)
    declared = PROJECT.pipelines.get(run.pipeline)
    return {
        **run_summary(run),
        "request_id": run.request_id,
        "project": run.project,
        "failed_watermark": run.failed_watermark,
        "error_summary": run.error_summary,
        "origin": None if declared is None or declared.origin is None else str(declared.origin),
        "extras": run.extras,
        "progress": progress_of(run),
        "attempts": [run_summary(current_run(log, one)) for one in own],
        "steps": [step for one in together for step in _steps(current_run(log, one))],
        "actions": _actions(run, state, declared=declared is not None),
    }


def _steps(run: RunRecord) -> list[dict[str, Any]]:
    """Return the steps of one target: those that were timed, or the whole load where none was."""
    stored, unfinished = run.extras.get("steps"), _unfinished(run)
    timed = stored if isinstance(stored, list) else []
    if not timed and not unfinished:
        whole = {"step": run.target or run.pipeline, "started_at": run.started_at, "duration_ms": duration_ms(run)}
        return [{**whole, "target": run.target, "status": run.status}]
    failed = run.failed_step if run.status in _ENDED_BADLY else None
    return [
        {
            "step": one["step"],
            "target": run.target,
            "status": FAILED if one["step"] == failed and one is timed[-1] else "succeeded",
            "started_at": one["started_at"],
            "duration_ms": int(float(one["seconds"]) * 1000),
        }
        for one in timed
        if isinstance(one, dict)
    ] + unfinished


def _unfinished(run: RunRecord) -> list[dict[str, Any]]:
    """Return the step that a run was in when it last wrote how far it is; none of a run whose end has the steps."""
    step = run.extras.get("current_step")
    if not isinstance(step, dict):
        return []
    until = run.extras.get("progress_at") if run.status != RUNNING else datetime.now(UTC).isoformat()
    took = datetime.fromisoformat(str(until)) - datetime.fromisoformat(step["started_at"])
    passed = max(int(took.total_seconds() * 1000), 0)
    return [{**step, "target": run.target, "status": run.status, "duration_ms": passed}]


def progress_of(run: RunRecord) -> dict[str, Any] | None:
    """Return the step that a running load is in and the rows that it has staged; None before it was written first."""
    step = run.extras.get("current_step")
    if run.status != RUNNING or not isinstance(step, dict):
        return None
    rows = run.extras.get("rows_staged")
    return {"step": step["step"], "since": step["started_at"], "rows_staged": rows if step["step"] == STAGE else None}


def _actions(run: RunRecord, state: PipelineState, *, declared: bool) -> dict[str, Any]:
    """Return what can be done with a run now."""
    over = run.status not in (RUNNING, REQUESTED)
    batch = declared and run.kind != "streaming"
    badly = batch and run.status in _ENDED_BADLY
    return {
        "pause": batch and not state.paused,
        "resume": batch and state.paused,
        "restart_from_step": [run.failed_step or FIRST_STEP] if badly else [],
        "rerun_full": batch and over,
        "resume_from_watermark": badly and run.failed_watermark is not None,
        "cancel": run.status == RUNNING and run.kind != "streaming",
    }

"""Workflows as plain data: their jobs, what sets them off and which of that has happened; nothing is changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.schedule.workflow import workflow_key
from ematix_flow.engine.schedule.lease import held_now
from ematix_flow.engine.schedule.status import WINDOW, foreseen
from ematix_flow.plan.schedule import retry as retrying
from ematix_flow.plan.schedule.cron import next_slot, slot_id, slot_text
from ematix_flow.plan.schedule.decide import Situation
from ematix_flow.plan.schedule.workflows import holds, missing
from ematix_flow.records import PipelineState

if TYPE_CHECKING:
    from datetime import datetime

    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.declare.pipeline.pipeline import Pipeline
    from ematix_flow.declare.schedule.workflow import TriggerOp, Workflow

READY, PENDING, FAILED = "ready", "pending", "failed"


def situation(log: RunLog, now: datetime) -> Situation:
    """Return what a scheduler would decide on now."""
    states = {state.pipeline: state for state in log.all(PipelineState)}
    return foreseen(Situation(PROJECT, now, states, held_now(log), WINDOW))


def workflow_entries(log: RunLog, now: datetime) -> list[dict[str, Any]]:
    """Return the declared workflows, then what is in none: pipelines and streams, each as a workflow of its own."""
    at = situation(log, now)
    entries = [_declared(workflow, at) for workflow in PROJECT.workflows.values()]
    entries += [_single(p, at) for p in PROJECT.pipelines.values() if p.name not in PROJECT.jobs]
    entries += [_entry(name, "streaming", [name]) for name in PROJECT.streams if name not in PROJECT.jobs]
    return entries


def _entry(name: str, kind: str, jobs: list[str], **known: Any) -> dict[str, Any]:
    blank: dict[str, Any] = {
        "edges": [],
        "triggered_by": None,
        "schedule": None,
        "timezone": None,
        "on_message": None,
        "triggers": [],
    }
    return {"name": name, "kind": kind, "jobs": jobs, **blank, "state": None, "run_id": None, **known}


def _declared(workflow: Workflow, at: Situation) -> dict[str, Any]:
    state, trigger = at.state(workflow.key), workflow.triggered_by
    edges = [
        {"from": first, "to": job}
        for job in workflow.jobs
        if job in PROJECT.pipelines
        for first in PROJECT.pipelines[job].depends_on
        if first in workflow.jobs
    ]
    source = workflow.on_message
    message = None if source is None else {"connection": str(source.connection), "query": source.query or source.table}
    running = state.slot_status == retrying.RUNNING
    return _entry(
        workflow.name,
        "declared",
        list(workflow.jobs),
        edges=edges,
        triggered_by=None if trigger is None else str(trigger),
        schedule=workflow.schedule,
        timezone=workflow.timezone,
        on_message=message,
        triggers=_triggers(workflow, at),
        run_id=slot_id(workflow.key, state.last_slot) if state.last_slot else None,
        state="running" if running else "paused" if state.paused else state.slot_status or "idle",
    )


def _single(pipeline: Pipeline, at: Situation) -> dict[str, Any]:
    triggers = [_schedule(pipeline.schedule, pipeline.timezone, at)] if pipeline.schedule else []
    state = at.state(pipeline.name)
    return _entry(
        pipeline.name,
        "single",
        [pipeline.name],
        schedule=pipeline.schedule,
        timezone=pipeline.timezone,
        triggers=triggers,
        state="paused" if state.paused else state.slot_status or "idle",
    )


def _triggers(workflow: Workflow, at: Situation) -> list[dict[str, Any]]:
    triggers = [_schedule(workflow.schedule, workflow.timezone, at)] if workflow.schedule else []
    if workflow.triggered_by is not None:
        triggers.append(_after(workflow, workflow.triggered_by, at))
    if workflow.on_message is not None:
        triggers.append({"kind": "on_message", "state": PENDING})
    return triggers


def _schedule(schedule: str, timezone: str | None, at: Situation) -> dict[str, Any]:
    upcoming = next_slot(schedule, timezone, at.now)
    next_at = slot_text(upcoming) if upcoming else None
    return {"kind": "schedule", "schedule": schedule, "timezone": timezone, "next_at": next_at, "state": PENDING}


def _after(workflow: Workflow, trigger: TriggerOp, at: Situation) -> dict[str, Any]:
    """Return a condition over successes: what it waits for, and whether that has failed."""
    since = at.state(workflow.key).last_slot
    waits = missing(trigger, since, at)
    upstream = [at.state(workflow_key(name) if name in PROJECT.workflows else name) for name in waits]
    failed = any(one.slot_status in (retrying.GAVE_UP, retrying.INTERRUPTED) for one in upstream)
    state = READY if holds(trigger, since, at) is not None else FAILED if failed else PENDING
    return {"kind": "after_expr", "expression": str(trigger), "waits_for": list(waits), "state": state}

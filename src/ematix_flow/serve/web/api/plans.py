"""Routes about plans: make one with the rows it would change, look at it, apply exactly that."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from ematix_flow.clock import SYSTEM_CLOCK
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine import Options, apply_plan, diff_pipeline
from ematix_flow.engine.review.diff import SAMPLE, plan_store, stored_diff
from ematix_flow.engine.schedule.actions import record_action
from ematix_flow.errors import FlowError
from ematix_flow.serve.web.answers import PlainJSON, Shared, Who, require
from ematix_flow.serve.web.jobs import Job
from ematix_flow.serve.web.settings import READ, WRITE
from ematix_flow.serve.web.state import WebState

router = APIRouter(prefix="/api/plans", tags=["plans"])

WAIT_SECONDS = 15.0
"""A plan that is ready by then is in the first response already."""


class NewPlan(BaseModel):
    """Which pipeline is planned."""

    model_config = ConfigDict(extra="forbid")

    pipeline: str
    sample: Annotated[int, Field(ge=0, le=1000)] = SAMPLE


@router.get("", summary="Plans that are stored", **require(READ))
def plans(shared: Shared) -> PlainJSON:
    """Return the plans that can be applied or were, and those that are being made."""
    return PlainJSON({"plans": plan_entries(shared), "jobs": [job.to_dict() for job in shared.jobs.all("plan")]})


def plan_entries(shared: WebState) -> list[dict[str, Any]]:
    """Return the stored plans, the newest first; one that cannot be read any more says so."""
    store, entries = plan_store(shared.log), []
    for plan_id in store.ids():
        try:
            stored = store.read(plan_id)
        except FlowError as error:
            entries.append({"plan_id": plan_id, "pipeline": None, "made_at": "", "problem": error.what})
            continue
        known = {"plan_id": plan_id, "pipeline": stored.pipeline, "made_at": stored.made_at.isoformat()}
        entries.append({**known, "expires_at": stored.expires_at.isoformat(), "problem": None})
    return sorted(entries, key=lambda one: str(one["made_at"]), reverse=True)


@router.post("", summary="Make a plan", **require(WRITE))
def new_plan(body: NewPlan, shared: Shared, viewer: Who) -> PlainJSON:
    """Stage a load and compare it with its targets; no table is changed. The plan waits to be applied."""
    pipeline = PROJECT.pipeline(body.pipeline)
    record_action(shared.log, "plan", pipeline.name, viewer.identity or "")

    def work() -> dict[str, Any]:
        return diff_pipeline(pipeline, Options(run_log=shared.log), body.sample).to_dict()

    return _outcome(shared.jobs.start("plan", pipeline.name, work))


@router.get("/{plan_id}", summary="One plan, or how far it is", **require(READ))
def plan(plan_id: str, shared: Shared) -> PlainJSON:
    """Return what a plan would change, by its id or by that of the job that makes it."""
    return PlainJSON(plan_facts(shared, plan_id))


def plan_facts(shared: WebState, plan_id: str) -> dict[str, Any]:
    """Return a plan as plain data."""
    job = shared.jobs.find(plan_id)
    if job is not None:
        return _job_facts(job)
    stored = plan_store(shared.log).read(plan_id)
    expired = stored.expires_at < SYSTEM_CLOCK.now()
    return {"id": plan_id, "status": "expired" if expired else "ready", "plan": stored_diff(stored).to_dict()}


@router.post("/{plan_id}/apply", summary="Load exactly what a plan has shown", **require(WRITE))
def apply(plan_id: str, shared: Shared, viewer: Who) -> PlainJSON:
    """Commit what a plan staged; a plan whose target changed since then is refused, and nothing is changed."""
    stored = plan_store(shared.log).read(plan_id)
    record_action(shared.log, "apply", stored.pipeline, viewer.identity or "", note=plan_id)

    def work() -> Any:
        return apply_plan(plan_id, Options(run_log=shared.log, bus=shared.bus))

    return _outcome(shared.jobs.start("apply", stored.pipeline, work))


def _outcome(job: Job) -> PlainJSON:
    """Return what became of a job, or that it goes on."""
    over = job.ended.wait(WAIT_SECONDS)
    if job.error is not None:
        return PlainJSON(job.error, status_code=409 if job.error["type"] == "StalePlanError" else 400)
    return PlainJSON(_job_facts(job), status_code=200 if over else 202)


def _job_facts(job: Job) -> dict[str, Any]:
    kind = "plan" if job.kind == "plan" else "result"
    known = {"id": job.id, "status": {"done": "ready", "error": "failed"}.get(job.status, "running")}
    if isinstance(job.result, dict) and "plan_id" in job.result:
        known["id"] = str(job.result["plan_id"])
    return {**known, "pipeline": job.name, "error": job.error, kind: job.result}

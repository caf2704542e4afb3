"""Routes about what waits for what: the graph, workflows with their triggers, and runs that are started by hand."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from ematix_flow.clock import SYSTEM_CLOCK
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine.report.graph import graph_dict, states_by_node
from ematix_flow.engine.report.workflows import workflow_entries
from ematix_flow.engine.schedule.manual import run_now, start_workflow
from ematix_flow.engine.schedule.status import pipeline_statuses
from ematix_flow.plan.schedule.graph import graph_of
from ematix_flow.serve.web.answers import PlainJSON, Shared, Who, require
from ematix_flow.serve.web.names import NAME
from ematix_flow.serve.web.settings import READ, WRITE

router = APIRouter(prefix="/api", tags=["workflows"])


class Jobs(BaseModel):
    """Which jobs of a workflow run; all of them without a list."""

    model_config = ConfigDict(extra="forbid")

    jobs: list[str] = Field(default_factory=list)


class Cascade(BaseModel):
    """Whether what depends on a pipeline runs too."""

    model_config = ConfigDict(extra="forbid")

    cascade_downstream: bool = False


@router.get("/dag", summary="What waits for what", **require(READ))
def dag(shared: Shared) -> PlainJSON:
    """Return pipelines, workflows and streams with their state, and the edges between them."""
    statuses = pipeline_statuses(shared.log, SYSTEM_CLOCK.now())
    graph = graph_dict(graph_of(PROJECT), states_by_node(statuses))
    schedules = {(one.name, one.kind): (one.schedule, one.timezone) for one in statuses}
    for node in graph["nodes"]:
        node["schedule"], node["timezone"] = schedules[node["name"], node["kind"]]
    return PlainJSON(graph)


@router.get("/workflows", summary="Workflows, and what sets them off", **require(READ))
def workflows(shared: Shared) -> PlainJSON:
    """Return declared workflows, and each pipeline and stream that is in none, with the states of their triggers."""
    return PlainJSON({"workflows": workflow_entries(shared.log, SYSTEM_CLOCK.now())})


@router.post(f"/workflows/{NAME}/run-now", summary="Set a workflow off", **require(WRITE))
def run_workflow(name: str, shared: Shared, viewer: Who, body: Jobs | None = None) -> PlainJSON:
    """Set a workflow off now, or request some of its jobs; a scheduler runs them."""
    new, jobs = start_workflow(shared.log, name, viewer.identity or "", body.jobs if body else ())
    return PlainJSON({"new_run_id": new, "selected_jobs": jobs})


@router.post(f"/jobs/{NAME}/run-now", summary="Run a pipeline", **require(WRITE))
def run_job(name: str, shared: Shared, viewer: Who, body: Cascade | None = None) -> PlainJSON:
    """Request a run of a pipeline, and of what depends on it; a scheduler runs it."""
    cascade = body is not None and body.cascade_downstream
    action = run_now(shared.log, name, viewer.identity or "", cascade=cascade)
    return PlainJSON({"new_run_id": action.id, "cascade_downstream": cascade})

"""The pages: each shows what a route of the API returns, read by the same functions."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request
from starlette.responses import HTMLResponse

from ematix_flow.clock import SYSTEM_CLOCK
from ematix_flow.commit.analytics import KINDS
from ematix_flow.commit.runlog.records import Backfill
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine.rejects import list_rejects
from ematix_flow.engine.report.graph import graph_dict, states_by_node
from ematix_flow.engine.report.overview import overview_facts
from ematix_flow.engine.report.pipelines import PipelineQuery, pipeline_page
from ematix_flow.engine.report.quality import quality_runs
from ematix_flow.engine.report.runs import find_run, run_detail, run_page
from ematix_flow.engine.report.workflows import workflow_entries
from ematix_flow.engine.schedule.freshness import evaluate_freshness
from ematix_flow.engine.schedule.manual import actions_of
from ematix_flow.engine.schedule.run_lists import RunListQuery
from ematix_flow.engine.schedule.status import pipeline_statuses
from ematix_flow.engine.stream.control import stream_status
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.errors import DeclareError, FlowError
from ematix_flow.plan.schedule.graph import graph_of
from ematix_flow.serve.web.answers import Shared, require, viewer_in
from ematix_flow.serve.web.api.pipelines import pipeline_facts
from ematix_flow.serve.web.api.plans import plan_entries, plan_facts
from ematix_flow.serve.web.api.query import limit_queries
from ematix_flow.serve.web.api.runs import as_utc
from ematix_flow.serve.web.api.saved import run_chart
from ematix_flow.serve.web.api.streams import dead_letter_counts, dead_letter_page, stream_summaries
from ematix_flow.serve.web.api.system import connection_entries, engine_facts
from ematix_flow.serve.web.names import NAME, RUN
from ematix_flow.serve.web.pages.render import render
from ematix_flow.serve.web.run_logs import log_part
from ematix_flow.serve.web.settings import READ

router = APIRouter(include_in_schema=False, dependencies=require(READ)["dependencies"])

PER_PAGE = 50
PIPELINES = 100
"""Pipelines of one page."""
HISTORY = 60
"""Runs that the chart of a pipeline shows."""
STATUSES = ("running", "succeeded", "failed", "cancelled", "interrupted", "requested")

Page = Annotated[int, Query(ge=1, le=1_000_000)]


@router.get("/")
def overview(request: Request, shared: Shared) -> HTMLResponse:
    """Show what is late, failing, running and next."""
    return render(request, "overview.html", **overview_facts(shared.log, SYSTEM_CLOCK.now()))


@router.get("/pipelines")
def pipelines(request: Request, shared: Shared, q: str = "", page: Page = 1) -> HTMLResponse:
    """Show every pipeline and stream with its recent history."""
    query = PipelineQuery(q, limit=PIPELINES, offset=(page - 1) * PIPELINES)
    listed, total = pipeline_page(shared.log, SYSTEM_CLOCK.now(), query)
    return render(request, "pipelines.html", pipelines=listed, total=total, text=q, page=page, per_page=PIPELINES)


@router.get(f"/pipelines/{NAME}")
def pipeline(request: Request, name: str, shared: Shared) -> HTMLResponse:
    """Show one pipeline: declaration, plan, lineage, runs and rejects."""
    facts = pipeline_facts(name)
    (status,) = [one for one in pipeline_statuses(shared.log, SYSTEM_CLOCK.now())
                 if one.name == name and one.kind != "workflow"]  # fmt: skip
    runs = run_page(shared.log, RunListQuery(name, limit=HISTORY))
    rejects, problem = _rejects(name)
    return render(request, "pipeline.html", name=name, facts=facts, status=status.as_dict(), runs=runs,
                  rejects=rejects, rejects_problem=problem)  # fmt: skip


def _rejects(name: str) -> tuple[list[dict[str, Any]], str]:
    """Return the rejected rows of a pipeline, or why they cannot be read now."""
    declared = PROJECT.pipelines.get(name)
    if declared is None or not declared.targets:
        return [], ""
    try:
        return [one.to_dict() for one in list_rejects(declared, limit=20)], ""
    except Exception as error:  # noqa: BLE001 - a target that is away must not take the page with it
        return [], f"{type(error).__name__}: {error}"


@router.get("/runs")
def runs(
    request: Request, shared: Shared, pipeline: str = "", status: str = "", since: str = "", page: Page = 1
) -> HTMLResponse:
    """Show runs, newest first, by pipeline, status and time."""
    chosen = status if status in STATUSES else None
    query = RunListQuery(pipeline or None, chosen, _instant(since), PER_PAGE, (page - 1) * PER_PAGE)
    return render(request, "runs.html", listed=run_page(shared.log, query), pipeline=pipeline, status=status,
                  since=since, page=page, per_page=PER_PAGE, statuses=STATUSES,
                  names=sorted((*PROJECT.pipelines, *PROJECT.streams)))  # fmt: skip


def _instant(text: str) -> datetime | None:
    try:
        return as_utc(datetime.fromisoformat(text) if text else None)
    except (ValueError, DeclareError):
        return None


@router.get(f"/runs/{RUN}")
def run(request: Request, run_id: str, shared: Shared) -> HTMLResponse:
    """Show one run: steps, attempts, log, counts and its error with a hint."""
    known = find_run(shared.log, run_id)
    return render(request, "run.html", run=run_detail(shared.log, known), log=log_part(known, 0))


@router.get("/workflows")
def workflows(request: Request, shared: Shared, name: str = "") -> HTMLResponse:
    """Show what waits for what, with states, and the triggers of workflows."""
    now = SYSTEM_CLOCK.now()
    graph = graph_dict(graph_of(PROJECT), states_by_node(pipeline_statuses(shared.log, now)))
    return render(request, "workflows.html", graph=graph, workflows=workflow_entries(shared.log, now), chosen=name)


@router.get("/streams")
def streams(request: Request, shared: Shared) -> HTMLResponse:
    """Show streams with their rates and lag."""
    return render(request, "streams.html", streams=stream_summaries(shared))


@router.get(f"/streams/{NAME}")
def stream(request: Request, name: str, shared: Shared, status: str = "pending", page: Page = 1) -> HTMLResponse:
    """Show one stream: positions, dead letters and runs."""
    declared = PROJECT.stream(name)
    (summary,) = [one for one in stream_summaries(shared) if one["name"] == name]
    chosen = status if status in ("pending", "parked", "replayed", "all") else "pending"
    targets: list[dict[str, Any]] = []
    counts, records, problem = None, None, ""
    try:
        targets = [one.to_dict() for one in stream_status(declared, StreamOptions())]
        counts = dead_letter_counts(shared, name)
        records = dead_letter_page(shared, name, chosen, page, PER_PAGE)
    except Exception as error:  # noqa: BLE001 - a broker that is away must not take the page with it
        problem = f"{type(error).__name__}: {error}"
    runs = run_page(shared.log, RunListQuery(name, limit=20))
    return render(request, "stream.html", name=name, summary=summary, targets=targets, counts=counts, records=records,
                  problem=problem, runs=runs, status=chosen)  # fmt: skip


@router.get("/plans")
def plans(request: Request, shared: Shared, pipeline: str = "") -> HTMLResponse:
    """Show plans that wait to be applied, and a form for a new one."""
    names = sorted(name for name, one in PROJECT.pipelines.items() if one.targets)
    return render(request, "plans.html", plans=plan_entries(shared), names=names, chosen=pipeline)


@router.get("/plans/{plan_id}")
def plan(request: Request, plan_id: str, shared: Shared) -> HTMLResponse:
    """Show one plan: what it would change, row by row."""
    return render(request, "plan.html", facts=plan_facts(shared, plan_id))


@router.get("/quality")
def quality(request: Request, shared: Shared, pipeline: str = "") -> HTMLResponse:
    """Show what was measured of recent loads, and how fresh tables are."""
    freshness = [one.to_dict() for one in evaluate_freshness(run_log=shared.log)]
    return render(request, "quality.html", measured=quality_runs(shared.log, pipeline, 50), freshness=freshness)


@router.get("/backfills")
def backfills(request: Request, shared: Shared) -> HTMLResponse:
    """Show backfills and a form for a new one."""
    names = sorted(name for name, one in PROJECT.pipelines.items() if one.schedule)
    entries = [asdict(one) for one in shared.log.all(Backfill)]
    return render(request, "backfills.html", backfills=entries, names=names, running=sorted(shared.backfills))


@router.get("/connections")
def connections(request: Request) -> HTMLResponse:
    """Show connections without secrets."""
    return render(request, "connections.html", connections=connection_entries())


@router.get("/sql")
def sql(request: Request, shared: Shared) -> HTMLResponse:
    """Show the SQL lab: a query, its rows, and what is saved."""
    entries, problem = [], ""
    try:
        entries = shared.queries.sources.entries()
    except FlowError as error:
        problem = error.what
    saved = {kind: shared.store.all(kind) for kind in KINDS}
    names = {one["id"]: one["name"] for one in saved["saved_queries"]}
    return render(request, "sql.html", datasources=entries, problem=problem, saved=saved, names=names)


@router.get("/dashboards/{key}")
def dashboard(request: Request, key: str, shared: Shared) -> HTMLResponse:
    """Show a dashboard with its charts."""
    if not viewer_in(request).may("query"):
        raise HTTPException(403, "a dashboard queries databases, which needs the permission 'query'")
    known = {chart["id"]: chart for chart in shared.store.all("charts")}
    limit_queries(shared, viewer_in(request))
    saved = shared.store.get("dashboards", key)
    shown = [run_chart(shared, known[chart]) for chart in saved["charts"] if chart in known]
    return render(request, "dashboard.html", dashboard=saved, charts=shown)


@router.get("/engine")
def engine(request: Request) -> HTMLResponse:
    """Show the warm engine and this machine."""
    return render(request, "engine.html", **engine_facts())


@router.get("/actions")
def actions(request: Request, shared: Shared) -> HTMLResponse:
    """Show what operators requested and did."""
    return render(request, "actions.html", actions=[asdict(action) for action in actions_of(shared.log, 200)])


@router.get("/api/docs")
def docs(request: Request) -> HTMLResponse:
    """Show the routes of the API."""
    return render(request, "docs.html", schema=request.app.openapi())

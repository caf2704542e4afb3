"""Routes about pipelines: what is declared, how each stands, its plan and lineage, and backfills."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from ematix_flow.clock import SYSTEM_CLOCK
from ematix_flow.commit.runlog.records import Backfill
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine.rejects import list_rejects
from ematix_flow.engine.report.declared import pipeline_declaration, stream_declaration
from ematix_flow.engine.report.pipelines import PipelineQuery, pipeline_page
from ematix_flow.engine.review.preview import lineage_of, preview_pipeline
from ematix_flow.engine.schedule.actions import record_action
from ematix_flow.errors import FlowError
from ematix_flow.serve.web.answers import Offset, PlainJSON, Shared, Who, require
from ematix_flow.serve.web.api.runs import as_utc, paused, resumed
from ematix_flow.serve.web.backfills import start_backfill
from ematix_flow.serve.web.names import NAME
from ematix_flow.serve.web.settings import READ, WRITE
from ematix_flow.wording import quantity

router = APIRouter(prefix="/api", tags=["pipelines"])


class Interval(BaseModel):
    """A range of the past."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    first: datetime = Field(alias="from", description="The first instant, which is included.")
    last: datetime = Field(alias="to", description="The last instant, which is not.")
    again: bool = Field(default=False, description="Load slots that have run before once more.")


@router.get("/pipelines", summary="Pipelines and streams with their recent history", **require(READ))
def pipelines(
    shared: Shared,
    q: str = "",
    limit: Annotated[int | None, Query(ge=1, le=10_000)] = None,
    offset: Offset = 0,
) -> PlainJSON:
    """Return pipelines and streams by name, all or a page, with newest runs, failures of a week and next run."""
    listed, total = pipeline_page(shared.log, SYSTEM_CLOCK.now(), PipelineQuery(q, limit=limit, offset=offset))
    return PlainJSON({"pipelines": listed, "total": total})


@router.get(f"/pipelines/{NAME}", summary="One pipeline: declaration, plan and lineage", **require(READ))
def pipeline(name: str) -> PlainJSON:
    """Return how a pipeline or stream is declared, its plan with reasons, and where its columns come from."""
    return PlainJSON(pipeline_facts(name))


def pipeline_facts(name: str) -> dict[str, Any]:
    """Return declaration, plan and lineage; what keeps a plan from being built is said in its place."""
    if name in PROJECT.streams:
        return {"name": name, "kind": "streaming", "declaration": stream_declaration(PROJECT.streams[name])}
    declared = PROJECT.pipeline(name)
    facts: dict[str, Any] = {"name": name, "kind": "batch", "declaration": pipeline_declaration(declared)}
    facts |= {"plan": None, "plan_text": "", "plan_error": None, "lineage": []}
    if not declared.targets:
        return facts | {"plan_error": "a plain function has no plan"}
    try:
        preview = preview_pipeline(declared)
        lineage = [_lineage(one) for one in lineage_of(declared)]
    except FlowError as error:
        return facts | {"plan_error": error.what}
    except Exception as error:  # noqa: BLE001 - the user's own function is called to plan it
        return facts | {"plan_error": f"{type(error).__name__}: {error}"}
    return facts | {"plan": preview.to_dict(), "plan_text": preview.text(verbose=True), "lineage": lineage}


def _lineage(facts: Any) -> dict[str, Any]:
    origins = {
        column: [
            {"dataset": f"{one.dataset.namespace}/{one.dataset.name}", "column": one.field, "changed": one.changed}
            for one in sources
        ]
        for column, sources in facts.origins.items()
    }
    return {
        "output": f"{facts.output.namespace}/{facts.output.name}",
        "inputs": [f"{one.namespace}/{one.name}" for one in facts.inputs],
        "columns": [{"name": name, "type": kind, "origins": origins.get(name, [])} for name, kind in facts.columns],
    }


@router.post(f"/pipelines/{NAME}/pause", summary="Pause a pipeline", **require(WRITE))
def pause(name: str, shared: Shared, viewer: Who) -> PlainJSON:
    """Let nothing of a pipeline begin; what runs goes on to its end."""
    PROJECT.pipeline(name)
    return PlainJSON(paused(shared, viewer, name))


@router.post(f"/pipelines/{NAME}/resume", summary="End the pause of a pipeline", **require(WRITE))
def resume(name: str, shared: Shared, viewer: Who) -> PlainJSON:
    """Let a pipeline go on; a slot of it that failed is tried again at once."""
    PROJECT.pipeline(name)
    return PlainJSON(resumed(shared, viewer, name))


@router.post(f"/pipelines/{NAME}/backfill", summary="Run the slots of a past interval", **require(WRITE))
def backfill(name: str, body: Interval, shared: Shared, viewer: Who) -> PlainJSON:
    """Start a backfill in the background; the same interval again goes on where it stopped."""
    first, last = as_utc(body.first), as_utc(body.last)
    assert first is not None  # noqa: S101 - the schema requires it
    assert last is not None  # noqa: S101 - the schema requires it
    job = start_backfill(shared, PROJECT.pipeline(name), first, last, again=body.again)
    record_action(
        shared.log, "backfill", name, viewer.identity or "", note=f"{job['backfill']}: {quantity(job['slots'], 'slot')}"
    )
    return PlainJSON(job, status_code=202)


@router.get("/backfills", summary="Backfills, and how far they are", **require(READ))
def backfills(shared: Shared) -> PlainJSON:
    """Return every backfill with the slots that are done."""
    return PlainJSON({"backfills": [asdict(one) for one in shared.log.all(Backfill)]})


@router.get("/rejects", summary="Rows that a pipeline refused", **require(READ))
def rejects(
    name: Annotated[str, Query(alias="pipeline")],
    status: Literal["pending", "replayed", "all"] = "pending",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> PlainJSON:
    """Return rejected rows, newest first, with their reasons."""
    entries = list_rejects(PROJECT.pipeline(name), status=None if status == "all" else status, limit=limit)
    return PlainJSON({"pipeline": name, "rejects": [reject.to_dict() for reject in entries]})

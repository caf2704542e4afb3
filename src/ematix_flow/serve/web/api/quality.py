"""Routes about what was measured: expectations of recent loads, and how fresh tables are."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from ematix_flow.engine.report.quality import quality_runs
from ematix_flow.engine.schedule.freshness import evaluate_freshness
from ematix_flow.serve.web.answers import PlainJSON, Shared, require
from ematix_flow.serve.web.settings import READ

router = APIRouter(prefix="/api", tags=["quality"])


@router.get("/quality", summary="What was measured of recent loads", **require(READ))
def quality(shared: Shared, pipeline: str | None = None, limit: Annotated[int, Query(ge=1, le=500)] = 100) -> PlainJSON:
    """Return the expectations of the newest runs that had any, with how many rows failed each."""
    return PlainJSON({"quality_runs": quality_runs(shared.log, pipeline, limit)})


@router.get("/freshness", summary="How fresh the tables with a limit are", **require(READ))
def freshness(shared: Shared) -> PlainJSON:
    """Return the age of every table that has a freshness_sla=."""
    return PlainJSON({"freshness": [one.to_dict() for one in evaluate_freshness(run_log=shared.log)]})

"""Routes about runs: lists, one run, its log, and what an operator may do with it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from ematix_flow.engine.report.runs import find_run, run_detail, run_page
from ematix_flow.engine.schedule import actions, manual
from ematix_flow.engine.schedule.run_lists import RunListQuery
from ematix_flow.engine.schedule.run_names import Meant
from ematix_flow.errors import DeclareError, RunError
from ematix_flow.serve.web.answers import Conflict, Offset, PlainJSON, Shared, Who, require
from ematix_flow.serve.web.names import RUN
from ematix_flow.serve.web.run_logs import log_part
from ematix_flow.serve.web.settings import READ, WRITE

router = APIRouter(prefix="/api/runs", tags=["runs"])

Status = Literal["requested", "running", "paused", "succeeded", "failed", "cancelled", "interrupted"]
Instant = Annotated[datetime, Field(description="An instant in ISO form; one without a zone counts as UTC.")]


class Restart(BaseModel):
    """Where a run goes on: the step in which a load failed, or any job of a workflow."""

    model_config = ConfigDict(extra="forbid")

    from_step: str = ""


@router.get("", summary="Runs, newest first", **require(READ))
def runs(
    shared: Shared,
    pipeline: str | None = None,
    status: Status | None = None,
    since: Instant | None = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    offset: Offset = 0,
) -> PlainJSON:
    """Return one page of runs; a run whose process is gone is interrupted."""
    query = RunListQuery(pipeline or None, status, as_utc(since), limit, offset)
    return PlainJSON(run_page(shared.log, query))


def as_utc(at: datetime | None) -> datetime | None:
    """Return an instant in UTC; refuse one that is in no year there."""
    if at is None or at.tzinfo is None:
        return None if at is None else at.replace(tzinfo=UTC)
    try:
        return at.astimezone(UTC)
    except OverflowError:
        message = f"{at.isoformat()} is not in the years 1 to 9999 of UTC"
        raise DeclareError(message, hint="give an instant within them.") from None


@router.get(f"/{RUN}", summary="One run", **require(READ))
def run(run_id: str, shared: Shared) -> PlainJSON:
    """Return a run with its attempts, steps and error, and what can be done with it."""
    return PlainJSON(run_detail(shared.log, find_run(shared.log, run_id)))


@router.get(f"/{RUN}/log", summary="What a run wrote", **require(READ))
def log(run_id: str, shared: Shared, offset: Offset = 0) -> PlainJSON:
    """Return the log of a run from a byte on, also while it runs; `next_offset` is where to go on."""
    return PlainJSON(log_part(find_run(shared.log, run_id), offset))


@router.post(f"/{RUN}/restart", summary="Go on where a run failed", **require(WRITE))
def restart(run_id: str, shared: Shared, viewer: Who, body: Restart | None = None) -> PlainJSON:
    """Request that a run is taken up: what it has committed is not done again. A workflow restarts from a job on."""
    step = body.from_step if body else ""
    new, jobs = manual.restart(shared.log, find_run(shared.log, run_id), step, viewer.identity or "")
    return PlainJSON({"new_run_id": new, "selected_jobs": jobs})


@router.post(f"/{RUN}/rerun", summary="Repeat a run", **require(WRITE))
def rerun(run_id: str, shared: Shared, viewer: Who) -> PlainJSON:
    """Request that a run is repeated from the beginning."""
    known = find_run(shared.log, run_id)
    new, jobs = manual.rerun(shared.log, known.pipeline, viewer.identity or "", run_id=known.run_id)
    return PlainJSON({"new_run_id": new, "selected_jobs": jobs})


@router.post(f"/{RUN}/pause", summary="Pause the pipeline of a run", **require(WRITE))
def pause(run_id: str, shared: Shared, viewer: Who) -> PlainJSON:
    """Let nothing of the pipeline begin; what runs goes on to its end."""
    known = find_run(shared.log, run_id)
    return PlainJSON(paused(shared, viewer, known.pipeline, run_id=known.run_id))


@router.post(f"/{RUN}/resume", summary="End the pause of the pipeline of a run", **require(WRITE))
def resume(run_id: str, shared: Shared, viewer: Who) -> PlainJSON:
    """Let the pipeline go on; if the run is of its last slot and that failed, it is tried again at once."""
    known = find_run(shared.log, run_id)
    return PlainJSON(resumed(shared, viewer, Meant(known.pipeline, known)))


@router.post(f"/{RUN}/cancel", summary="Stop a run", **require(WRITE))
def cancel(run_id: str, shared: Shared, viewer: Who) -> PlainJSON:
    """Request that a run stops, wherever it runs: what it has not committed is not committed."""
    known, by = find_run(shared.log, run_id), viewer.identity or ""
    try:
        notified = actions.cancel(shared.log, Meant(known.pipeline, known), by)
    except RunError as error:
        raise Conflict(error.what, hint=error.hint) from None
    if not notified:
        raise Conflict(f"no run of {known.pipeline} goes on")
    return PlainJSON({"status": "cancel_requested", "notified": notified})


def paused(shared: Shared, viewer: Who, name: str, run_id: str = "") -> dict[str, Any]:
    """Pause a pipeline for a viewer."""
    actions.pause(shared.log, name, viewer.identity or "", run_id=run_id)
    return {"status": "pause_requested"}


def resumed(shared: Shared, viewer: Who, name: str | Meant) -> dict[str, Any]:
    """End the pause of a pipeline for a viewer."""
    try:
        actions.resume(shared.log, name, viewer.identity or "", or_unpause=True)
    except RunError as error:
        raise Conflict(error.what, hint=error.hint) from None
    return {"status": "resume_requested"}

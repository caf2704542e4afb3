"""Backfills that are started from the page: in a thread of it, under the pipeline's lease, resumable by the same interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ematix_flow.background import in_background
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.schedule import backfill as backfilling
from ematix_flow.engine.schedule.lease import default_worker
from ematix_flow.engine.schedule.pools import pool_sizes
from ematix_flow.engine.schedule.slot_run import SlotRunner

if TYPE_CHECKING:
    from datetime import datetime

    from ematix_flow.declare.pipeline.pipeline import Pipeline
    from ematix_flow.serve.web.state import WebState


def start_backfill(
    shared: WebState, pipeline: Pipeline, first: datetime, last: datetime, *, again: bool = False
) -> dict[str, Any]:
    """Start a backfill, or go on with one of the same interval, and return what it is."""
    job, resumed = backfilling.open_backfill(shared.log, pipeline, first, last, again=again)
    known = {
        "backfill": job.id,
        "pipeline": pipeline.name,
        "slots": backfilling.slot_count(pipeline, job),
        "resumed": resumed,
    }
    if job.id in shared.backfills:
        return known
    runner = SlotRunner(
        shared.log, Options(run_log=shared.log, bus=shared.bus), default_worker("web"), sizes=pool_sizes(PROJECT)
    )
    shared.backfills.add(job.id)

    def run() -> None:
        try:
            for _ in backfilling.run_backfill(pipeline, job, runner, shared.stopping.is_set):
                pass  # each slot is in the run log, and in the record of the backfill
        finally:
            shared.backfills.discard(job.id)

    in_background(run, f"backfill-{pipeline.name}")
    return known

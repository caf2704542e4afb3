"""What was measured of recent loads, as plain data: read from the records of their runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ematix_flow.engine.schedule.run_lists import run_label

if TYPE_CHECKING:
    from ematix_flow.commit.runlog.log import RunLog

SEARCHED = 500
"""The newest runs among which those with measurements are searched."""


def quality_runs(log: RunLog, pipeline: str | None, limit: int) -> list[dict[str, Any]]:
    """Return the newest runs with expectations, each with its verdicts."""
    runs, _ = log.list_runs(pipeline=pipeline or None, limit=SEARCHED)
    measured = [(run, run.extras["quality"]) for run in runs if isinstance(run.extras.get("quality"), dict)]
    return [
        {
            "run_id": run.run_id,
            "key": run_label(run),
            "pipeline": run.pipeline,
            "target": run.target,
            "status": run.status,
            "started_at": run.started_at,
            "outcome": quality.get("outcome"),
            "checks": quality.get("checks", []),
        }
        for run, quality in measured[:limit]
        if isinstance(quality, dict)
    ]

"""Pipelines and streams with their recent history as plain data: read from the run log in a few statements."""

from __future__ import annotations

from datetime import timedelta
from statistics import median
from typing import TYPE_CHECKING, Any

from ematix_flow.engine.batch.run_records import RUNNING
from ematix_flow.engine.report.runs import duration_ms, run_summary
from ematix_flow.engine.schedule.run_lists import current_runs
from ematix_flow.engine.schedule.status import pipeline_statuses

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.engine.schedule.status import PipelineStatus
    from ematix_flow.records import RunRecord

RECENT = 10
WEEK = timedelta(days=7)
STREAM_STATS = ("stats_1m", "stats_5m", "rows_consumed_total", "rows_written_total", "batches_total", "errors_total")


def pipeline_summaries(log: RunLog, now: datetime) -> list[dict[str, Any]]:
    """Return every pipeline and stream with its state, its newest runs, its failures of a week and its usual time."""
    statuses = [one for one in pipeline_statuses(log, now) if one.kind != "workflow"]
    newest = log.newest_runs([one.name for one in statuses], RECENT)
    flat = current_runs(log, [run for runs in newest.values() for run in runs])
    by_name: dict[str, list[RunRecord]] = {name: [] for name in newest}
    for run in flat:
        by_name[run.pipeline].append(run)
    outcomes = log.count_outcomes(now - WEEK)
    return [_summary(one, by_name[one.name], outcomes) for one in statuses]


def _summary(one: PipelineStatus, runs: Sequence[RunRecord], outcomes: Mapping[tuple[str, str], int]) -> dict[str, Any]:
    durations = [ms for run in runs if run.status == "succeeded" and (ms := duration_ms(run)) is not None]
    latest = runs[0] if runs else None
    stream = one.kind == "stream"
    return {
        "name": one.name,
        "kind": "streaming" if stream else "batch",
        "latest_run": None if latest is None else run_summary(latest),
        "failure_rate_7d": failure_rate(one.name, outcomes),
        "median_duration_ms": int(median(durations)) if durations else None,
        "recent_runs": [run_summary(run) for run in reversed(runs)],
        "next_run_at": one.next_run_at,
        "timezone": one.timezone,
        "streaming_stats": stream_stats(latest) if stream else None,
        "schedule": one.schedule,
        "state": one.state,
        "outcome": one.outcome,
        "reason": one.reason,
        "depends_on": list(one.depends_on),
        "last_run_at": one.last_run_at,
        "gave_up": one.gave_up,
    }


def failure_rate(name: str, outcomes: Mapping[tuple[str, str], int]) -> float | None:
    """Return which part of the runs of a pipeline failed; None without one that has ended."""
    ended = {status: count for (pipeline, status), count in outcomes.items() if pipeline == name and status != RUNNING}
    total = sum(ended.values())
    return round(ended.get("failed", 0) / total, 4) if total else None


def stream_stats(run: RunRecord | None) -> dict[str, Any] | None:
    """Return the numbers that a stream wrote about itself last."""
    if run is None or run.kind != "streaming":
        return None
    stats = {name: run.extras[name] for name in STREAM_STATS if name in run.extras}
    return {**stats, "lag": run.extras.get("lag"), "snapshot_at": run.extras.get("snapshot_at")} if stats else None

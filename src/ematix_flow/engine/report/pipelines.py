"""Pipelines and streams with their recent history as plain data: read from the run log in a few statements."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from statistics import median
from typing import TYPE_CHECKING, Any

from ematix_flow.engine.batch.run_records import RUNNING
from ematix_flow.engine.report.counts import remembered, remembered_soon
from ematix_flow.engine.report.run_lines import run_summary, short_summary
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
OUTCOMES = "outcomes of a week"
STREAM_STATS = ("stats_1m", "stats_5m", "rows_consumed_total", "rows_written_total", "batches_total", "errors_total")


@dataclass(frozen=True, slots=True)
class PipelineQuery:
    """Which pipelines and streams are requested."""

    text: str = ""
    """What their names contain; any without it."""
    kind: str = ""
    """batch or streaming; both without it."""
    limit: int | None = None
    offset: int = 0


def pipeline_summaries(log: RunLog, now: datetime, query: PipelineQuery | None = None) -> list[dict[str, Any]]:
    """Return pipelines and streams with their state, newest runs, failures of a week and usual time."""
    return pipeline_page(log, now, query or PipelineQuery())[0]


def pipeline_page(log: RunLog, now: datetime, query: PipelineQuery) -> tuple[list[dict[str, Any]], int]:
    """Return one page of pipelines and streams by name, and how many there are."""
    kinds = {"batch": ("pipeline",), "streaming": ("stream",)}.get(query.kind, ("pipeline", "stream"))
    matching = [
        one for one in pipeline_statuses(log, now) if one.kind in kinds and query.text.lower() in one.name.lower()
    ]
    end = None if query.limit is None else query.offset + query.limit
    statuses = matching[query.offset : end]
    newest = log.newest_runs([one.name for one in statuses], RECENT)
    by_name: dict[str, list[RunRecord]] = {name: [] for name in newest}
    for run in current_runs(log, [run for runs in newest.values() for run in runs]):
        by_name[run.pipeline].append(run)
    rates = failure_rates(outcomes_of(log, now))
    return [_summary(one, by_name[one.name], rates.get(one.name)) for one in statuses], len(matching)


def _summary(one: PipelineStatus, runs: Sequence[RunRecord], failure_rate: float | None) -> dict[str, Any]:
    lines = [short_summary(run) for run in reversed(runs)]
    durations = [
        line["duration_ms"] for line in lines if line["status"] == "succeeded" and line["duration_ms"] is not None
    ]
    latest = runs[0] if runs else None
    stream = one.kind == "stream"
    return {
        "name": one.name,
        "kind": "streaming" if stream else "batch",
        "latest_run": None if latest is None else run_summary(latest),
        "failure_rate_7d": failure_rate,
        "median_duration_ms": int(median(durations)) if durations else None,
        "recent_runs": lines,
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


def outcomes_of(log: RunLog, now: datetime) -> dict[tuple[str, str], int]:
    """Return how many runs of a week there are, by pipeline and status; those of a long history may be some seconds old."""
    return remembered(log, OUTCOMES, lambda: log.count_outcomes(now - WEEK))


def outcomes_soon(log: RunLog, now: datetime) -> dict[tuple[str, str], int] | None:
    """Return the runs of a week like `outcomes_of`; None while those of a long history are counted for the first time."""
    return remembered_soon(log, OUTCOMES, lambda: log.count_outcomes(now - WEEK))


def failure_rates(outcomes: Mapping[tuple[str, str], int]) -> dict[str, float]:
    """Return which part of the ended runs of each pipeline failed."""
    ended: dict[str, int] = {}
    for (pipeline, status), count in outcomes.items():
        if status != RUNNING:
            ended[pipeline] = ended.get(pipeline, 0) + count
    return {name: round(outcomes.get((name, "failed"), 0) / total, 4) for name, total in ended.items() if total}


def stream_stats(run: RunRecord | None) -> dict[str, Any] | None:
    """Return the numbers that a stream wrote about itself last."""
    if run is None or run.kind != "streaming":
        return None
    stats = {name: run.extras[name] for name in STREAM_STATS if name in run.extras}
    return {**stats, "lag": run.extras.get("lag"), "snapshot_at": run.extras.get("snapshot_at")} if stats else None

"""One glance at everything: what fails, is late, runs, and comes next; read from the run log."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.project import PROJECT
from ematix_flow.engine.report.pipelines import outcomes_soon
from ematix_flow.engine.report.run_lines import run_summary
from ematix_flow.engine.report.runs import run_page
from ematix_flow.engine.schedule.freshness import evaluate_freshness
from ematix_flow.engine.schedule.heartbeat import scheduler_liveness
from ematix_flow.engine.schedule.run_lists import RunListQuery, current_runs
from ematix_flow.engine.schedule.status import pipeline_statuses
from ematix_flow.errors import RunLogError
from ematix_flow.plan.schedule.freshness import BREACHED

if TYPE_CHECKING:
    from datetime import datetime

    from ematix_flow.commit.runlog.log import RunLog

_BROKEN = ("gave_up", "interrupted", "backoff")
_SHOWN = 12
_LISTED = 50
"""Lines of what fails, runs or waits; the totals count all."""


def count_ahead(log: RunLog, now: datetime) -> None:
    """Count what the first pages show, so that the first viewer of a long history does not wait for it."""
    with suppress(RunLogError):
        outcomes_soon(log, now)
        run_page(log, RunListQuery(limit=1))


def overview_facts(log: RunLog, now: datetime) -> dict[str, Any]:
    """Return what fails, is late, runs and comes next, with the newest runs and the counts of a week."""
    statuses = [one.as_dict() for one in pipeline_statuses(log, now)]
    failing = [one for one in statuses if one["state"] in _BROKEN or one["outcome"] == "failure"]
    running = [one for one in statuses if one["state"] == "running"]
    waiting = [one for one in statuses if one["state"] in ("due", "waiting", "paused")]
    upcoming = sorted((one for one in statuses if one["next_run_at"]), key=lambda one: str(one["next_run_at"]))
    outcomes = outcomes_soon(log, now)
    counts: dict[str, int] = {}
    for (_, status), count in (outcomes or {}).items():
        counts[status] = counts.get(status, 0) + count
    liveness = scheduler_liveness(log)
    return {
        "declared": len(statuses),
        "failing": failing[:_LISTED],
        "running": running[:_LISTED],
        "waiting": waiting[:_LISTED],
        "totals": {"failing": len(failing), "running": len(running), "waiting": len(waiting)},
        "upcoming": upcoming[:_SHOWN],
        "late": [one.to_dict() for one in evaluate_freshness(now=now, run_log=log) if one.state == BREACHED],
        "recent": {"runs": [run_summary(run) for run in current_runs(log, log.latest_runs(_SHOWN))]},
        "counts": None if outcomes is None else counts,
        "scheduler": {"alive": liveness.alive, "text": liveness.text, "needed": PROJECT.has_schedules},
    }

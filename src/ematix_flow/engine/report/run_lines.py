"""One run as a line of a list."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from ematix_flow.engine.schedule.run_lists import run_label

if TYPE_CHECKING:
    from ematix_flow.records import RunRecord

_ROWS = ("rows_inserted", "rows_updated", "rows_deleted", "rows_rejected")


def run_summary(run: RunRecord) -> dict[str, Any]:
    """Return the line of a run."""
    return {
        **short_summary(run),
        "target": run.target,
        "error": (run.error_summary or "").partition("\n")[0] or None,
        **{name: getattr(run, name) for name in _ROWS},
    }


def short_summary(run: RunRecord) -> dict[str, Any]:
    """Return what is needed to show a run among others; `key` names its attempt, as commands and addresses take it."""
    return {
        "run_id": run.run_id,
        "key": run_label(run),
        "pipeline": run.pipeline,
        "status": run.status,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "duration_ms": duration_ms(run),
        "attempt": run.attempt,
        "failed_step": run.failed_step,
        "kind": run.kind,
    }


def duration_ms(run: RunRecord) -> int | None:
    """Return how long a run took; None while it goes on."""
    if run.finished_at is None:
        return None
    began, ended = datetime.fromisoformat(run.started_at), datetime.fromisoformat(run.finished_at)
    return int((ended - began).total_seconds() * 1000)

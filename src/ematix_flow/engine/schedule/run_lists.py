"""The runs of a run log as people see them: one whose process is known to be dead is interrupted; nothing is changed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ematix_flow.commit.runlog.requests import is_gone
from ematix_flow.engine.batch.run_records import INTERRUPTED, LEASED, RUNNING
from ematix_flow.engine.schedule.lease import held_now

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.records import RunRecord

_MOST = 10_000
"""Runs that have not ended, of all processes that ever died."""


@dataclass(frozen=True, slots=True)
class AskedRuns:
    """Which runs are asked for."""

    pipeline: str | None = None
    status: str | None = None
    since: datetime | None = None
    limit: int = 20
    offset: int = 0
    all_projects: bool = False


def seen_runs(log: RunLog, asked: AskedRuns) -> tuple[list[RunRecord], int]:
    """Return the newest runs and how many there are."""
    if asked.status not in (RUNNING, INTERRUPTED):
        found, total = _listed(log, asked, asked.status, asked.limit, asked.offset)
        return _told(log, found), total
    runs = _told(log, _listed(log, asked, RUNNING, _MOST, 0)[0])
    if asked.status == INTERRUPTED:
        runs += _listed(log, asked, INTERRUPTED, _MOST, 0)[0]
    wanted = sorted((run for run in runs if run.status == asked.status), key=lambda run: run.started_at, reverse=True)
    return wanted[asked.offset : asked.offset + asked.limit], len(wanted)


def seen_run(log: RunLog, run: RunRecord) -> RunRecord:
    """Return a run with the status that is true now."""
    return _told(log, [run])[0]


def _listed(log: RunLog, asked: AskedRuns, status: str | None, limit: int, offset: int) -> tuple[list[RunRecord], int]:
    return log.list_runs(
        pipeline=asked.pipeline,
        status=status,
        since=asked.since,
        limit=limit,
        offset=offset,
        all_projects=asked.all_projects,
    )


def _told(log: RunLog, runs: list[RunRecord]) -> list[RunRecord]:
    if not any(run.status == RUNNING for run in runs):
        return runs
    held = held_now(log)
    return [replace(run, status=INTERRUPTED) if _is_dead(run, held, log.project.name) else run for run in runs]


def _is_dead(run: RunRecord, held: Mapping[str, str], project: str) -> bool:
    """Return whether the process of a run is known to be gone; leases of other projects are not seen."""
    if run.status != RUNNING or run.kind == "streaming":
        return False
    if run.extras.get(LEASED):
        return run.project == project and run.pipeline not in held
    pid = run.extras.get("pid")
    return isinstance(pid, int) and is_gone(str(run.extras.get("host")), pid, str(run.extras.get("pid_started")))

"""The runs of a run log as people see them: one whose process is known to be dead is interrupted; nothing is changed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ematix_flow.commit.runlog.backend import RunFilter
from ematix_flow.commit.runlog.requests import is_gone
from ematix_flow.engine.batch.run_records import CANCELLED, FAILED, INTERRUPTED, LEASED, RUNNING
from ematix_flow.engine.schedule.lease import held_now
from ematix_flow.records import record_key

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.records import RunRecord

_FOLLOWED = (FAILED, CANCELLED, INTERRUPTED)
_MOST = 10_000
"""Runs that have not ended, of all processes that ever died."""


@dataclass(frozen=True, slots=True)
class RunListQuery:
    """Which runs are requested."""

    pipeline: str | None = None
    status: str | None = None
    since: datetime | None = None
    limit: int = 20
    offset: int = 0
    all_projects: bool = False
    counted: bool = True
    """Whether all runs are counted; without, only the page is."""


def list_current_runs(log: RunLog, query: RunListQuery) -> tuple[list[RunRecord], int]:
    """Return the newest runs and how many there are."""
    if query.status not in (RUNNING, INTERRUPTED):
        listed, total = _listed(log, query, query.status, query.limit, query.offset)
        return _with_current_status(log, listed), total
    runs = _with_current_status(log, _listed(log, query, RUNNING, _MOST, 0)[0])
    if query.status == INTERRUPTED:
        runs += _listed(log, query, INTERRUPTED, _MOST, 0)[0]
    matching = sorted((run for run in runs if run.status == query.status), key=lambda run: run.started_at, reverse=True)
    return matching[query.offset : query.offset + query.limit], len(matching)


def current_run(log: RunLog, run: RunRecord) -> RunRecord:
    """Return a run with the status that is true now."""
    return _with_current_status(log, [run])[0]


def is_running(log: RunLog, run: RunRecord) -> bool:
    """Return whether a run goes on now; of those under the lease of a pipeline only the newest can."""
    if current_run(log, run).status != RUNNING:
        return False
    if not run.extras.get(LEASED):
        return True
    listed, _ = log.list_runs(pipeline=run.pipeline, status=RUNNING, limit=_MOST)
    newest = next((one for one in listed if one.extras.get(LEASED)), run)
    return newest.request_id == run.request_id


def current_runs(log: RunLog, runs: list[RunRecord]) -> list[RunRecord]:
    """Return runs with the status that is true now."""
    return _with_current_status(log, runs)


def run_label(run: RunRecord) -> str:
    """Return the id of a run as every command takes it; that of a first attempt that others may follow has #1."""
    followed = run.attempt == 1 and run.status in _FOLLOWED and run.kind != "streaming"
    return f"{run.run_id}#1" if followed else record_key(run)


def _listed(
    log: RunLog, query: RunListQuery, status: str | None, limit: int, offset: int
) -> tuple[list[RunRecord], int]:
    projects = None if query.all_projects else log.backend.projects
    run_filter = RunFilter(query.pipeline, status, limit, offset, projects, query.since, counted=query.counted)
    return log.backend.runs(run_filter)


def _with_current_status(log: RunLog, runs: list[RunRecord]) -> list[RunRecord]:
    if not any(run.status == RUNNING for run in runs):
        return runs
    held = held_now(log)
    return [replace(run, status=INTERRUPTED) if _is_dead(run, held, log.project.name) else run for run in runs]


def _is_dead(run: RunRecord, held: Mapping[str, str], project: str) -> bool:
    """Return whether the process of a run is known to be gone; leases of other projects are not visible."""
    if run.status != RUNNING or run.kind == "streaming":
        return False
    if run.extras.get(LEASED):
        return run.project == project and run.pipeline not in held
    pid = run.extras.get("pid")
    return isinstance(pid, int) and is_gone(str(run.extras.get("host")), pid, str(run.extras.get("pid_started")))

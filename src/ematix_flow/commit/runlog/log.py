"""The run log: requests that can be resumed, the history of runs, the state of pipelines and leases; never the truth about rows."""

from __future__ import annotations

import threading
import warnings
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.commit.runlog import leases as claims
from ematix_flow.commit.runlog import requests
from ematix_flow.commit.runlog.backend import RUNNING, RunFilter
from ematix_flow.commit.runlog.legacy import LegacyNames
from ematix_flow.commit.runlog.project_keys import digest_in, scoped
from ematix_flow.commit.runlog.records import (
    Action,
    PeriodicJob,
    RequestRow,
    format_instant,
    instant,
    storable,
    storable_text,
)
from ematix_flow.errors import RunLogError
from ematix_flow.records import Incident, PipelineState, record_key
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from ematix_flow.commit.runlog.backend import RunLogBackend
    from ematix_flow.commit.runlog.leases import ClaimResult, ExpiredClaim
    from ematix_flow.commit.runlog.records import Claim, R, Record
    from ematix_flow.connect.config.project_name import ProjectName
    from ematix_flow.records import Request, RunRecord

PRUNE_EVERY = timedelta(days=1)
_ATTEMPTS = 1000
"""Attempts at one request that are read."""


class RunLog(LegacyNames):
    """What is stored about pipelines, in a backend. RunLogError when that is away; a run never fails for that."""

    def __init__(self, backend: RunLogBackend) -> None:
        self.backend = backend
        self.lasting = True
        """False for one that ends with this process."""
        self._lock = threading.RLock()
        self._waiting: dict[str, Callable[[], None]] = {}
        """What could not be written yet, by its subject."""

    def __repr__(self) -> str:
        return f"RunLog({self.backend.display_address!r})"

    @property
    def display_address(self) -> str:
        """Return the address for people; no secret."""
        return self.backend.display_address

    @property
    def path(self) -> Path | None:
        """Return the file or the folder, where it is one of this machine."""
        return self.backend.path

    @property
    def project(self) -> ProjectName:
        """Return the project whose part of the run log this is."""
        return self.backend.project

    @property
    def folder(self) -> Path:
        """Return the folder for what is stored next to the run log: that of its file, or the user's own."""
        path = self.backend.path
        if path is None:
            return Path.home() / ".ematix-flow"
        return path.absolute() if path.is_dir() else path.absolute().parent

    def close(self) -> None:
        """Write what waits and close what is open."""
        self.reconcile()
        self.backend.close()

    # Records

    def find(self, kind: type[R], *key: str) -> R | None:
        """Return the record of a key."""
        return self.backend.find(kind, key)

    def all(self, kind: type[R]) -> list[R]:
        """Return every record of a kind."""
        return self.backend.all(kind)

    def swap(self, before: R | None, after: R) -> R | None:
        """Write a record in place of exactly `before` (None: there must be none); None if another process was first."""
        return self.backend.swap(before, storable(after))

    def drop(self, record: Record) -> bool:
        """Delete a record; return False when it is no longer this one."""
        return self.backend.drop(record)

    def change_state(self, pipeline: str, change: Callable[[PipelineState], PipelineState]) -> PipelineState:
        """Change the state of a pipeline, also while other processes do so."""
        while True:
            existing = self.backend.find(PipelineState, (pipeline,))
            stored = self.swap(existing, change(existing or PipelineState(pipeline)))
            if stored is not None:
                return stored

    # Requests

    def open_request(self, pipeline: str, at: datetime, *, new: bool = False) -> Request:
        """Return the interrupted request of this pipeline, or a new one."""
        return requests.open_request(self.backend, pipeline, at, new=new)

    def close_request(self, request: Request, at: datetime) -> None:
        """Mark a request as done; later when the backend is away now."""
        self._write(f"request {request.id}", lambda: requests.close_request(self.backend, request, at))

    def finish_request(self, request: Request, result: str) -> None:
        """Store the result of a request until it was delivered; later when the backend is away now."""
        self._write(f"request {request.id}", lambda: requests.finish_request(self.backend, request, result))

    def release_request(self, request: Request, ended: str = requests.FAILED) -> None:
        """Keep a failed or stopped request open for the next run, owned by no process; later if the backend is away."""
        self._write(f"request {request.id}", lambda: requests.release_request(self.backend, request, ended))

    def next_attempt(self, request: Request, target: str | None = None) -> int:
        """Return the number of the attempt at a request that comes next, or at one target of it."""
        return self.backend.last_attempt(request.id, target) + 1

    # Runs

    def record(self, run: RunRecord) -> None:
        """Write or replace one run; later when the backend is away now."""
        written = storable(run)
        self._write(f"run {record_key(run)}", lambda: self.backend.put_run(written))

    def show_progress(self, run: RunRecord) -> None:
        """Write how far a run is, unless it has ended; RunLogError when the backend is away, for then it is left out."""
        self.backend.put_progress(storable(run))

    def list_runs(
        self,
        *,
        pipeline: str | None = None,
        status: str | None = None,
        limit: int = 50,
        offset: int = 0,
        all_projects: bool = False,
        since: datetime | None = None,
    ) -> tuple[list[RunRecord], int]:
        """Return the newest runs of the project, or of all, and how many there are."""
        projects = None if all_projects else self.backend.projects
        return self.backend.runs(RunFilter(pipeline, status, limit, offset, projects, since))

    def latest_runs(self, limit: int) -> list[RunRecord]:
        """Return the newest runs of the project, however many there are in all."""
        return self.backend.runs(RunFilter(limit=limit, projects=self.backend.projects, counted=False))[0]

    def running_runs(self, limit: int) -> list[RunRecord]:
        """Return the newest runs of the project that have not ended, also those whose process is gone."""
        run_filter = RunFilter(status=RUNNING, limit=limit, projects=self.backend.projects, counted=False)
        return self.backend.runs(run_filter)[0]

    def newest_runs(self, pipelines: Sequence[str], limit: int) -> dict[str, list[RunRecord]]:
        """Return the newest runs of each of some pipelines of the project, newest first."""
        by_pipeline: dict[str, list[RunRecord]] = {name: [] for name in pipelines}
        for run in self.backend.newest_runs(pipelines, limit, self.backend.projects):
            by_pipeline[run.pipeline].append(run)
        return {
            name: sorted(runs, key=lambda run: (run.started_at, record_key(run)), reverse=True)
            for name, runs in by_pipeline.items()
        }

    def count_outcomes(self, since: datetime) -> dict[tuple[str, str], int]:
        """Return how many runs of the project began since then, by pipeline and status."""
        return self.backend.count_outcomes(since, self.backend.projects)

    def runs_of_request(self, request_id: str, pipeline: str) -> list[RunRecord]:
        """Return every attempt at every target of a request, oldest first."""
        run_filter = RunFilter(pipeline, limit=_ATTEMPTS, projects=self.backend.projects, request_id=request_id)
        return sorted(self.backend.runs(run_filter)[0], key=lambda run: (run.attempt, run.started_at))

    def get_run(self, run_id: str, *, all_projects: bool = False) -> RunRecord | None:
        """Return one run of the project, or of any, by its id or a unique beginning of it."""
        return self.backend.run(run_id, None if all_projects else self.backend.projects)

    # What waits while the backend is away

    def _write(self, about: str, write: Callable[[], None]) -> None:
        """Write now, then what waits; while the backend is away it waits, and replaces what waited for its subject."""
        with self._lock:
            self._waiting.pop(about, None)
            try:
                write()
            except RunLogError:
                self._waiting[about] = write
            else:
                self._flush()

    def _flush(self) -> str:
        """Write what waits; return the error of the first entry that the backend did not take."""
        failures: list[str] = []
        for about, write in list(self._waiting.items()):
            try:
                write()
            except RunLogError as error:
                failures.append(error.what)
                # One entry may be at fault; a backend that takes none of two is away, and each try takes time.
                if len(failures) > 1:
                    break
            else:
                del self._waiting[about]
        return failures[0] if failures else ""

    def reconcile(self) -> int:
        """Write what waits; warn and return how much is left when the backend does not take it."""
        with self._lock:
            failure = self._flush() if self._waiting else ""
            if failure:
                missing = quantity(len(self._waiting), "entry", "entries")
                text = f"{failure}; the run log lacks {missing} about this run"
                warnings.warn(text, UserWarning, stacklevel=2)
            return len(self._waiting)

    # Retention

    def prune(self, before: datetime) -> dict[str, int]:
        """Delete what ended before an instant, of all projects, except what pipeline states or open requests need."""
        backend = self.backend.everything
        needed = {scoped(one.run_id, digest_in(one.pipeline)) for one in backend.all(PipelineState) if one.run_id}
        rows = backend.all(RequestRow)
        open_ = {scoped(row.request_id, digest_in(row.pipeline)) for row in rows if requests.is_unclosed(row)}
        old: dict[str, list[Any]] = {
            "actions": [a for a in backend.all(Action) if a.state in ("done", "failed") and _ended(a.ended_at, before)],
            "incidents": [i for i in backend.all(Incident) if _ended(i.closed_at, before)],
            "requests": [r for r in rows if not requests.is_unclosed(r) and _ended(r.closed_at, before)],
        }
        counts = {"runs": backend.forget_runs(before, needed, open_)}
        counts |= {name: sum(backend.drop(one) for one in those) for name, those in old.items()}
        self.backend.clean_up(before)
        return counts

    def prune_daily(self, max_age: timedelta) -> None:
        """Delete what is older than `max_age`, once a day and by one process only."""
        now, last_job = self.backend.now(), self.find(PeriodicJob, "prune")
        if last_job is not None and now - instant(last_job.done_at) < PRUNE_EVERY:
            return
        if self.swap(last_job, PeriodicJob("prune", format_instant(now))) is not None:
            self.prune(now - max_age)

    # Leases

    def claim(self, pipeline: str, worker_id: str, lease_seconds: float) -> ClaimResult:
        """Take the lease of a pipeline unless a worker holds it."""
        return claims.claim(self.backend, pipeline, worker_id, lease_seconds)

    def heartbeat(self, token: str, lease_seconds: float, worker_id: str = "") -> bool:
        """Renew a lease, from now on as that of a worker where one is named; return False when it is lost."""
        return claims.heartbeat(self.backend, token, lease_seconds, worker_id)

    def release(self, token: str) -> bool:
        """Release a lease; return False when it was lost before."""
        return claims.release(self.backend, token)

    def held(self, token: str) -> Claim | None:
        """Return the lease of a token; None when it is lost."""
        return claims.held(self.backend, token)

    def cancel_lease(self, pipeline: str, by: str) -> Claim | None:
        """Request that the holder of a pipeline's lease stops; return the lease, None when it is free."""
        return claims.cancel(self.backend, pipeline, storable_text(by))

    def cancel_request(self, pipeline: str, by: str) -> RequestRow | None:
        """Request that the process of a request stops; return the request, None when no process is known."""
        return requests.cancel(self.backend, pipeline, storable_text(by))

    def sweep_expired_leases(self, now: datetime | None = None) -> list[ExpiredClaim]:
        """Free the leases that have ended by the backend's clock, and return them."""
        return claims.sweep(self.backend, now)


def _ended(text: str, before: datetime) -> bool:
    return bool(text) and instant(text) < before

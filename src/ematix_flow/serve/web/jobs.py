"""Work that takes longer than a request: it runs in a thread of the page, and its outcome waits to be read."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ematix_flow.background import in_background
from ematix_flow.serve.cli.common.errors import failure_of

PENDING, RUNNING, DONE, ERROR = "pending", "running", "done", "error"
OVER = (DONE, ERROR)


class TooManyJobsError(Exception):
    """More work waits than is taken."""


@dataclass(slots=True)
class Job:
    """One piece of work and what became of it."""

    id: str
    kind: str
    name: str
    status: str = PENDING
    result: Any = None
    error: dict[str, Any] | None = None
    started_at: float = field(default_factory=time.time)
    ended: threading.Event = field(default_factory=threading.Event)

    def to_dict(self) -> dict[str, Any]:
        """Return the job as plain data."""
        known = {"id": self.id, "kind": self.kind, "name": self.name, "status": self.status}
        return known | {"result": self.result, "error": self.error}


class Jobs:
    """The work of one page: so much at once, and so much that waits or is remembered."""

    def __init__(self, at_once: int, most: int) -> None:
        self._slots = threading.BoundedSemaphore(at_once)
        self._most = most
        self._lock = threading.Lock()
        self._jobs: dict[str, Job] = {}

    def start(self, kind: str, name: str, work: Callable[[], Any]) -> Job:
        """Begin some work as soon as there is room for it."""
        job = Job(f"job-{uuid.uuid4().hex}", kind, name)
        with self._lock:
            over = [key for key, one in self._jobs.items() if one.status in OVER]
            while len(self._jobs) >= self._most and over:
                del self._jobs[over.pop(0)]
            if len(self._jobs) >= self._most:
                raise TooManyJobsError
            self._jobs[job.id] = job
        in_background(lambda: self._run(job, work), f"{kind}-{name}")
        return job

    def find(self, job_id: str) -> Job | None:
        """Return a job by its id."""
        return self._jobs.get(job_id)

    def all(self, kind: str) -> list[Job]:
        """Return the jobs of a kind, the newest first."""
        return [job for job in reversed(list(self._jobs.values())) if job.kind == kind]

    def _run(self, job: Job, work: Callable[[], Any]) -> None:
        with self._slots:
            job.status = RUNNING
            try:
                job.result = work()
                job.status = DONE
            except BaseException as error:  # noqa: BLE001 - whatever happened is the outcome of the job
                failure = failure_of(error)
                job.error = {
                    "detail": failure.error,
                    "type": failure.error_type,
                    "hint": failure.hint,
                    "at": failure.at,
                }
                job.status = ERROR
            finally:
                job.ended.set()

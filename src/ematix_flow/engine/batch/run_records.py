"""Records the runs of one request: a record for each attempt at each target, from its beginning to its end."""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base.cancellation import current
from ematix_flow.connect.base.processes import process_start
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.errors import FlowError, QualityCheckFailed, RunCancelledError, RunLogError
from ematix_flow.records import RunRecord

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.engine.batch.options import Options
    from ematix_flow.engine.batch.step_times import StepTimes
    from ematix_flow.records import Request

RUNNING, SUCCEEDED, FAILED, CANCELLED, INTERRUPTED = "running", "succeeded", "failed", "cancelled", "interrupted"
LEASED = "leased"
"""Marks the record of a run that has a lease, which shows whether it is alive."""

_SUMMARY = 2000
_LEFT = 1000
"""Records of one pipeline that may be left of processes that died."""


@dataclass(frozen=True, slots=True)
class Recorder:
    """One attempt at a request. A log that is away never fails a load, and gets the records later."""

    log: RunLog
    request: Request
    options: Options
    started: datetime
    attempt: int

    @classmethod
    def of(cls, log: RunLog, request: Request, options: Options) -> Recorder:
        """Return what records the next attempt at a request; earlier ones that have not ended were interrupted."""
        attempt, now = 1, options.clock.now()
        with suppress(RunLogError):
            attempt = log.next_attempt(request)
            if attempt > 1:
                end_left(log, request, now)
        return cls(log, request, options, now, attempt)

    def begun(self, run_id: str, target: str = "") -> RunRecord:
        """Write that a run has begun."""
        process_info = {"host": socket.gethostname(), "pid": os.getpid(), "pid_started": process_start(os.getpid())}
        alive = {LEASED: True} if self.options.slot is not None else {}
        record = RunRecord(
            run_id, self.request.pipeline, RUNNING, self.started.isoformat(), attempt=self.attempt, target=target,
            request_id=self.request.id, extras={**process_info, **alive},
        )  # fmt: skip
        self.log.record(record)
        return record

    def succeeded(self, record: RunRecord, **known: Any) -> None:
        """Write that a run has done its work."""
        self._end(record, status=SUCCEEDED, **known)

    def failed(self, record: RunRecord, error: BaseException, **known: Any) -> None:
        """Write that a run has failed or was cancelled."""
        status = CANCELLED if isinstance(error, RunCancelledError) else FAILED
        error_text = safe_text(error) if isinstance(error, FlowError) else f"{type(error).__name__}: {safe_text(error)}"
        audited = error.audited if isinstance(error, QualityCheckFailed) else None
        extras = {} if audited is None else {"quality": audited.to_dict()}
        extras |= known.pop("extras", {})
        self._end(record, status=status, error_summary=error_text[:_SUMMARY], extras=extras, **known)

    @contextmanager
    def failure_of(self, record: RunRecord, times: StepTimes | None = None) -> Iterator[None]:
        """Record an error of this block; what was interrupted because of a stop ends with the stop's error.

        `times` has the step in which it happened.
        """
        try:
            yield
        except BaseException as error:
            reason = current().blamed(error)
            steps = {} if times is None else {"failed_step": times.current, "extras": times.as_extras()}
            self.failed(record, reason, **steps)
            if reason is error:
                raise
            raise reason from error

    def _end(self, record: RunRecord, **known: Any) -> None:
        ended = {"finished_at": self.options.clock.now().isoformat(), "extras": {}, **known}
        self.log.record(replace(record, **ended))


def end_left(log: RunLog, request: Request, now: datetime, status: str = INTERRUPTED) -> None:
    """Write that the earlier attempts at a request have ended, whose process never recorded it."""
    running, _ = log.list_runs(pipeline=request.pipeline, status=RUNNING, limit=_LEFT)
    for run in running:
        if run.request_id == request.id:
            text = "its process ended without a report" if status == INTERRUPTED else None
            log.record(replace(run, status=status, finished_at=now.isoformat(), error_summary=text))

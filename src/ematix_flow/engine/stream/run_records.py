"""Streams in the run log: one record for each run of a stream, refreshed while it runs; a log that fails stops nothing."""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.config.redact import safe_text
from ematix_flow.events import StreamStarted
from ematix_flow.records import RunRecord

if TYPE_CHECKING:
    from datetime import datetime

    from ematix_flow.clock import Clock
    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.events import Event
    from ematix_flow.observe.metrics.stream_stats import StreamStats

EVERY = timedelta(seconds=30)


def new_run_id(name: str, now: datetime) -> str:
    """Return an id for a run of a stream."""
    return f"{name}-stream-{now:%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:8]}"


class StreamRecord:
    """The record of one run of a stream."""

    def __init__(self, run_id: str, name: str, stats: StreamStats, log: RunLog, clock: Clock) -> None:
        self._stats, self._log, self._clock = stats, log, clock
        self._lock = threading.Lock()
        now = clock.now()
        self._record = RunRecord(run_id, name, "running", now.isoformat(), kind="streaming")
        self._written_at = now
        self._mover: dict[str, str] = {}
        self._write(now, "running")

    def __call__(self, event: Event) -> None:
        """Refresh the record when it is time to; any event of the stream is a reason to check the clock."""
        if event.pipeline != self._record.pipeline:
            return
        now = self._clock.now()
        if isinstance(event, StreamStarted):
            self._mover = {"engine": event.engine, "engine_reason": event.reason}
        elif now - self._written_at < EVERY:
            return
        self._write(now, "running")

    def end(self, error: BaseException | None) -> None:
        """Write how the run ended."""
        now = self._clock.now()
        if error is None:
            self._write(now, "succeeded", finished_at=now.isoformat())
        else:
            status = "failed" if isinstance(error, Exception) else "cancelled"
            self._write(now, status, finished_at=now.isoformat(), error_summary=safe_text(error)[:2000])
        self._log.reconcile()

    def _write(self, now: datetime, status: str, **known: Any) -> None:
        stats = self._stats
        with self._lock:
            self._written_at = now
            self._log.record(
                replace(
                    self._record,
                    status=status,
                    rows_inserted=stats.written,
                    rows_rejected=stats.rejected,
                    extras={**stats.snapshot(now), **self._mover},
                    **known,
                )
            )

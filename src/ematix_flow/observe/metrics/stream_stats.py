"""Counts what streams do, from their events: totals since the start and rates of the last minutes; it shows nothing."""

from __future__ import annotations

import threading
from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import UTC, timedelta
from typing import TYPE_CHECKING

from ematix_flow.clock import SYSTEM_CLOCK
from ematix_flow.events import BatchLoaded, StreamFailed, StreamIdle, StreamLag, StreamWarning, StreamWatermark

if TYPE_CHECKING:
    from datetime import datetime

    from ematix_flow.clock import Clock
    from ematix_flow.events import Event

MOST_WARNINGS = 20
"""Warnings that are stored with a run."""

WINDOWS = {"stats_1m": timedelta(minutes=1), "stats_5m": timedelta(minutes=5)}


@dataclass(frozen=True, slots=True)
class _Sample:
    """What one event added."""

    at: datetime
    consumed: int = 0
    written: int = 0
    batches: int = 0
    errors: int = 0
    seconds: float = 0.0


@dataclass
class TargetStats:
    """The state of one target of a stream."""

    rows: int = 0
    rejected: int = 0
    batch_seconds: float | None = None
    lag: int | None = None
    failure: str = ""
    """Why it is paused; empty while it works."""


@dataclass
class StreamStats:
    """What one stream has done since it began."""

    began: datetime
    consumed: int = 0
    written: int = 0
    rejected: int = 0
    batches: int = 0
    errors: int = 0
    idle: bool = False
    watermark: datetime | None = None
    """Up to which event time everything is there."""
    failure: str = ""
    changes: Counter[str] = field(default_factory=Counter)
    """Changes of another database, by what became of them."""
    warnings: list[str] = field(default_factory=list)
    targets: dict[str, TargetStats] = field(default_factory=dict)
    _samples: deque[_Sample] = field(default_factory=deque)

    def hear(self, event: Event, now: datetime) -> None:
        """Count an event of this stream."""
        target = self.targets.setdefault(event.target, TargetStats()) if event.target else None
        match event:
            case BatchLoaded():
                self._loaded(event, now)
            case StreamLag():
                assert target is not None  # noqa: S101 - lag is a target's
                target.lag = sum(event.waiting.values())
            case StreamWatermark():
                self.watermark = event.at
            case StreamIdle():
                self.idle = True
            case StreamWarning():
                if event.message not in self.warnings and len(self.warnings) < MOST_WARNINGS:
                    self.warnings.append(event.message)
            case StreamFailed():
                self.errors += 1
                self._add(_Sample(now, errors=1))
                if target is None:
                    self.failure = event.message
                else:
                    target.failure = event.message

    def _loaded(self, event: BatchLoaded, now: datetime) -> None:
        target, counts = self.targets[event.target], event.counts
        target.rows += counts.staged
        target.rejected += counts.rejected
        target.batch_seconds, target.failure = event.seconds, ""
        self.idle, self.failure = False, ""
        new = bool(event.new_messages)
        self.consumed += event.new_messages
        self.written += counts.staged
        self.rejected += counts.rejected
        self.batches += new
        self.changes.update(counts.changes)
        self._add(_Sample(now, event.new_messages, counts.staged, int(new), 0, event.seconds))

    def _add(self, sample: _Sample) -> None:
        self._samples.append(sample)
        while self._samples[0].at < sample.at - max(WINDOWS.values()):
            self._samples.popleft()

    def rates(self, now: datetime, window: timedelta) -> dict[str, float]:
        """Return what happened per second in the last minutes, or since the beginning if that is shorter."""
        seconds = min(window, now - self.began).total_seconds()
        recent = [sample for sample in self._samples if sample.at > now - window]
        loads = [sample.seconds for sample in recent if sample.seconds or sample.batches]
        per = 1 / seconds if seconds > 0 else 0.0
        return {
            "rows_consumed_per_sec": round(sum(sample.consumed for sample in recent) * per, 3),
            "rows_written_per_sec": round(sum(sample.written for sample in recent) * per, 3),
            "batches_per_sec": round(sum(sample.batches for sample in recent) * per, 3),
            "errors_per_sec": round(sum(sample.errors for sample in recent) * per, 3),
            "avg_batch_cycle_ms": round(sum(loads) / len(loads) * 1000, 1) if loads else 0.0,
            "span_seconds": round(seconds, 1),
        }

    def snapshot(self, now: datetime) -> dict[str, object]:
        """Return the numbers that the run log stores."""
        return {
            "snapshot_at": now.astimezone(UTC).isoformat(),
            "rows_consumed_total": self.consumed,
            "rows_written_total": self.written,
            "rows_rejected_total": self.rejected,
            "batches_total": self.batches,
            "errors_total": self.errors,
            **({"changes": dict(self.changes)} if any(self.changes.values()) else {}),
            **({"warnings": list(self.warnings)} if self.warnings else {}),
            "lag": {key: target.lag for key, target in self.targets.items() if target.lag is not None},
            **{name: self.rates(now, window) for name, window in WINDOWS.items()},
        }


class StreamStatsCollector:
    """Receives the events of all streams of a process."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self.streams: dict[str, StreamStats] = {}

    def begin(self, stream: str) -> StreamStats:
        """Return the numbers of a stream, from now on if they are new."""
        with self._lock:
            return self.streams.setdefault(stream, StreamStats(self._clock.now()))

    def __call__(self, event: Event) -> None:
        """Count an event."""
        if isinstance(event, BatchLoaded | StreamLag | StreamIdle | StreamFailed | StreamWarning | StreamWatermark):
            stats = self.begin(event.pipeline)
            with self._lock:
                stats.hear(event, self._clock.now())

"""What runs do as numbers: receives pipelines that ended or were skipped and counts them in a sink, whichever it is."""

from __future__ import annotations

import sys
import threading
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Protocol

from ematix_flow.connect.config.redact import redact
from ematix_flow.events import PipelineEnded, PipelineSkipped, SchedulerEvent

if TYPE_CHECKING:
    from ematix_flow.events import Event

RUNS, DURATION, ATTEMPT = "pipeline_runs_total", "pipeline_duration_seconds", "pipeline_retry_attempt"
TEXTS = {
    RUNS: "Runs of pipelines by how they ended.",
    DURATION: "Seconds that runs took.",
    ATTEMPT: "Attempts that have failed in a row; 0 when all is well.",
}
SECONDS = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)
"""Bounds of the histogram of durations."""

MOST = 10_000
"""Pipelines that have numbers of their own; the names of all others are one."""

OTHERS = "_others"
SCHEDULER = "_scheduler"
"""The name of what happens to a scheduler and to no pipeline."""

COUNTED = ("dispatched", "dispatch_failed", "lease_expired", "tick_error")
"""Events of a scheduler that are counted besides the runs."""


class MetricsSink(Protocol):
    """Takes numbers."""

    def inc_runs(self, name: str, outcome: str) -> None:
        """Count a run."""
        ...

    def observe_duration(self, name: str, secs: float) -> None:
        """Record how long a run took."""
        ...

    def set_attempt(self, name: str, count: int) -> None:
        """Record how many attempts have failed in a row."""
        ...

    def close(self) -> None:
        """Send what is left, and end."""
        ...


class RunMetrics:
    """Receives events and counts them; names are few and hold no secret."""

    def __init__(self, sink: MetricsSink) -> None:
        self.sink = sink
        self._names: set[str] = set()

    def __call__(self, event: Event) -> None:
        """Count a run that ended or did not begin."""
        match event:
            case PipelineEnded():
                name = self._name(event.pipeline)
                self.sink.inc_runs(name, "success" if event.success else "failure")
                self.sink.observe_duration(name, event.seconds)
                self.sink.set_attempt(name, 0 if event.success else event.attempt)
            case PipelineSkipped():
                self.sink.inc_runs(self._name(event.pipeline), "skipped")
            case SchedulerEvent() if event.what in COUNTED:
                self.sink.inc_runs(self._name(event.pipeline or SCHEDULER), event.what)

    def _name(self, pipeline: str) -> str:
        if pipeline not in self._names:
            if len(self._names) >= MOST:
                return OTHERS
            self._names.add(pipeline)
        return redact(pipeline)


class NullSink:
    """Drops everything."""

    def inc_runs(self, name: str, outcome: str) -> None:
        """Count nothing."""

    def observe_duration(self, name: str, secs: float) -> None:
        """Record nothing."""

    def set_attempt(self, name: str, count: int) -> None:
        """Record nothing."""

    def close(self) -> None:
        """Have nothing to end."""


class StdoutSink(NullSink):
    """Writes every number as a line to stderr; stdout belongs to results."""

    def inc_runs(self, name: str, outcome: str) -> None:
        """Write that a run was counted."""
        self._write(f'{RUNS}{{pipeline="{name}",outcome="{outcome}"}} +1')

    def observe_duration(self, name: str, secs: float) -> None:
        """Write how long a run took."""
        self._write(f'{DURATION}{{pipeline="{name}"}} {secs:.3f}')

    def set_attempt(self, name: str, count: int) -> None:
        """Write how many attempts have failed."""
        self._write(f'{ATTEMPT}{{pipeline="{name}"}} {count}')

    def _write(self, text: str) -> None:
        sys.stderr.write(f"[METRIC] {text}\n")
        sys.stderr.flush()


class MemorySink(NullSink):
    """Keeps numbers in dictionaries, for tests and for programs that show them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counters: Counter[tuple[str, str]] = Counter()
        """Runs by pipeline and outcome."""
        self.durations: defaultdict[str, list[float]] = defaultdict(list)
        self.attempts: dict[str, int] = {}

    def inc_runs(self, name: str, outcome: str) -> None:
        """Count a run."""
        with self._lock:
            self.counters[name, outcome] += 1

    def observe_duration(self, name: str, secs: float) -> None:
        """Store how long a run took."""
        with self._lock:
            self.durations[name].append(secs)

    def set_attempt(self, name: str, count: int) -> None:
        """Store how many attempts have failed."""
        with self._lock:
            self.attempts[name] = count

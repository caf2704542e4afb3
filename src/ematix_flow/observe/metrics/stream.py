"""What streams do as numbers for Prometheus: names and labels in one place, fed by events and served on this machine only."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from ematix_flow.errors import RunError
from ematix_flow.events import (
    BatchLoaded,
    LogLagMeasured,
    RowsWithoutTime,
    StateChanged,
    StreamFailed,
    StreamIdle,
    StreamLag,
    StreamWatermark,
    WindowsOpen,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ematix_flow.events import Event

PREFIX = "ematix_streaming_"
HOST = "127.0.0.1"
GLOBAL = "_global"
"""Stands for all sources of a stream."""

COUNTERS = {
    "rows_consumed_total": "Messages that were read, once each however many targets take them.",
    "rows_written_total": "Rows that targets took.",
    "rows_rejected_total": "Messages and rows that were put aside.",
    "batches_total": "Batches with something new.",
    "errors_total": "Failures of a stream or of one of its targets.",
    "dlq_writes_total": "Messages that became dead letters.",
    "idle_iterations_total": "Times that nothing new was found.",
    "cdc_creates_total": "Changes that made a row.",
    "cdc_updates_total": "Changes of a row.",
    "cdc_deletes_total": "Changes that removed a row.",
    "cdc_skipped_total": "Changes that say nothing about rows.",
    "cdc_idempotent_skipped_total": "Changes that were there already.",
    "cdc_late_total": "Those among them that are older than what is there by more than is tolerated.",
    "cdc_left_out_total": "Values of changes whose columns the table lacks.",
    "windows_emitted_total": "Windows that were given out, once each however many targets take them.",
    "rows_without_event_time_total": "Rows that are in no window because they have no event time.",
}

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class StreamMetrics:
    """The numbers of all streams of a process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._counters = {name: self._counter(name, text) for name, text in COUNTERS.items()}
        self._late = self._counter("late_rows_dropped_total", "Rows that came too late for their window.", "policy")
        self._by_target: dict[tuple[str, str], dict[str, int]] = {}
        """What the states of a stream's targets have counted of the same messages, by stream and number."""
        self._active = self._gauge("windows_active", "Windows of a fixed length that are open.")
        self._groups = self._gauge("state_groups_total", "Groups that are remembered between batches.")
        self._watermark = self._gauge("watermark_seconds", "Event time up to which all rows are there.", "source")
        self._lag = self._gauge("lag_messages", "Messages that wait for a target.", "target", "partition")
        self._log_lag = {
            name: self._gauge(name, text, "target")
            for name, text in (
                ("cdc_lag_bytes", "Bytes of the log of a database that a target has not applied."),
                ("cdc_lag_seconds", "How long the oldest change waits that a target lacks."),
                ("cdc_retained_bytes", "Bytes of its log that a server keeps for a stream."),
            )
        }
        self._seconds = Histogram(
            f"{PREFIX}batch_seconds",
            "Seconds that a target took for a batch.",
            ("pipeline", "target"),
            registry=self.registry,
            buckets=_SECONDS,
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(PREFIX + name, text, ("pipeline", *labels), registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(PREFIX + name, text, ("pipeline", *labels), registry=self.registry)

    def begin(self, pipeline: str) -> None:
        """Show a stream with zeros, so that a rate is right from its first batch on."""
        for counter in self._counters.values():
            counter.labels(pipeline)
        self._active.labels(pipeline)
        self._groups.labels(pipeline)

    def __call__(self, event: Event) -> None:
        """Count an event."""
        match event:
            case BatchLoaded():
                self._loaded(event)
            case StreamLag():
                for partition, waiting in event.waiting.items():
                    self._lag.labels(event.pipeline, event.target, partition).set(waiting)
            case LogLagMeasured():
                self._set(event, "cdc_lag_bytes", event.lag_bytes)
                self._set(event, "cdc_lag_seconds", event.lag_seconds)
                self._set(event, "cdc_retained_bytes", event.retained_bytes)
            case StreamWatermark():
                # With one source, what holds for it holds for the stream.
                for source in (event.source, GLOBAL):
                    self._watermark.labels(event.pipeline, source).set(event.at.timestamp())
            case StateChanged() | RowsWithoutTime() | WindowsOpen():
                self._remembered(event)
            case StreamIdle():
                self._add(event, "idle_iterations_total", 1)
            case StreamFailed():
                self._add(event, "errors_total", 1)

    def _remembered(self, event: StateChanged | RowsWithoutTime | WindowsOpen) -> None:
        if isinstance(event, WindowsOpen):
            by_target = self._by_target.setdefault((event.pipeline, "windows_active"), {})
            by_target[event.target] = event.windows
            self._active.labels(event.pipeline).set(max(by_target.values()))
            return
        if isinstance(event, RowsWithoutTime):
            name = "rows_without_event_time_total"
            self._add(event, name, self._further(event, name, event.rows))
            return
        self._add(event, "windows_emitted_total", self._further(event, "windows_emitted_total", event.windows))
        late = self._further(event, f"late_rows_dropped_total {event.policy}", event.late)
        self._late.labels(event.pipeline, event.policy).inc(late)

    def _further(self, event: Event, name: str, number: int) -> int:
        """Return by how much a target is now ahead of all others, each of which counts the same messages again."""
        by_target = self._by_target.setdefault((event.pipeline, name), {})
        before = max(by_target.values(), default=0)
        by_target[event.target] = by_target.get(event.target, 0) + number
        return max(by_target.values()) - before

    def _loaded(self, event: BatchLoaded) -> None:
        self._add(event, "rows_consumed_total", event.new_messages)
        self._add(event, "rows_written_total", event.counts.staged)
        self._add(event, "rows_rejected_total", event.counts.rejected)
        self._add(event, "dlq_writes_total", event.counts.rejected)
        for name, number in event.counts.changes.items():
            self._add(event, f"cdc_{name}_total", number)
        self._add(event, "batches_total", int(bool(event.new_messages)))
        self._seconds.labels(event.pipeline, event.target).observe(event.seconds)

    def _set(self, event: Event, name: str, value: float | None) -> None:
        if value is not None:
            self._log_lag[name].labels(event.pipeline, event.target).set(value)

    def _add(self, event: Event, name: str, number: int) -> None:
        self._counters[name].labels(event.pipeline).inc(number)


@contextmanager
def served(metrics: StreamMetrics, port: int) -> Iterator[int]:
    """Serve the numbers at a port of this machine, any free one for 0, and return the port."""
    try:
        bound_port, stop = listening(metrics.registry, HOST, port)
    except OSError as error:
        message = f"metrics cannot be served on port {port}: {error.strerror}"
        raise RunError(message, hint="--metrics-port 0 takes any free port.") from None
    try:
        yield bound_port
    finally:
        stop()


def listening(registry: CollectorRegistry, host: str, port: int) -> tuple[int, Callable[[], None]]:
    """Serve numbers for Prometheus and report it; return the port, and what ends it."""
    server, thread = start_http_server(port, host, registry)
    bound_port = int(server.server_port)
    sys.stderr.write(f"metrics: http://{host}:{bound_port}/metrics\n")
    sys.stderr.flush()

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return bound_port, stop

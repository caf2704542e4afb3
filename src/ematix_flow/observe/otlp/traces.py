"""Runs as traces: a span for a pipeline's run with one below it for every step, built from the events of the run."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.trace import Status, StatusCode, set_span_in_context

from ematix_flow.connect.config.redact import redact
from ematix_flow.events import (
    PipelineBegan,
    PipelineEnded,
    PostFinished,
    RowsStaged,
    RunCommitted,
    RunFailed,
    RunStarted,
)
from ematix_flow.observe.background_queue import BackgroundQueue
from ematix_flow.plan.steps import IN_DATABASE, NO_ENGINE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import Span

    from ematix_flow.events import Event
    from ematix_flow.observe.otlp.client import Collector

ROOT = "flow.pipeline.run"
SERVICE = "ematix-flow"
_LONGEST = 1000


class _Gathering(SpanProcessor):
    """Holds the spans of a trace until its root ends, and hands them on together."""

    def __init__(self, hand_on: Callable[[Sequence[ReadableSpan]], None]) -> None:
        self._hand_on = hand_on
        self._ended: dict[int, list[ReadableSpan]] = {}

    def on_end(self, span: ReadableSpan) -> None:
        """Handle a span that ended."""
        trace = span.get_span_context().trace_id  # type: ignore[union-attr]
        spans = self._ended.setdefault(trace, [])
        spans.append(span)
        if span.parent is None:
            self._hand_on(self._ended.pop(trace))


@dataclass
class _Run:
    """A run of a pipeline under way."""

    root: Span
    since: int
    """When the step that runs began, in nanoseconds."""
    step: str = "plan"


class Tracing:
    """Receives events and turns them into spans."""

    def __init__(self, deliver: Callable[[Sequence[ReadableSpan]], None]) -> None:
        self._box: BackgroundQueue[Sequence[ReadableSpan]] = BackgroundQueue(deliver, "traces")
        self._provider = TracerProvider(resource=Resource.create({"service.name": SERVICE}), shutdown_on_exit=False)
        self._provider.add_span_processor(_Gathering(self._box.put))
        self._tracer = self._provider.get_tracer(SERVICE)
        self._runs: dict[str, _Run] = {}
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Handle an event."""
        now = time.time_ns()
        with self._lock:
            if isinstance(event, PipelineBegan):
                self._begin(event, now)
                return
            run = self._runs.get(event.pipeline)
            if run is not None:
                self._hear(event, run, now)

    def _begin(self, event: PipelineBegan, now: int) -> None:
        known: dict[str, str | int] = {
            "flow.pipeline.name": redact(event.pipeline),
            "flow.pipeline.attempt": event.attempt,
            "flow.pipeline.slot": event.slot,
        }
        self._runs[event.pipeline] = _Run(self._tracer.start_span(ROOT, attributes=known, start_time=now), now)

    def _hear(self, event: Event, run: _Run, now: int) -> None:
        match event:
            case RunStarted():
                inside = event.by in {IN_DATABASE, NO_ENGINE}
                self._end(run, now, target=event.target)
                run.step = "commit" if inside else "stage"
            case RowsStaged():
                self._end(run, now, target=event.target, rows=event.rows, rejected=event.rejected)
                run.step = "commit"
            case RunCommitted():
                self._end(run, now, target=event.target, run_id=event.run_id, rows=event.counts.staged)
                run.step = "plan"
            case PostFinished():
                run.step = "post"
                self._end(run, now, failure=None if event.ok else event.message, step=event.step)
            case RunFailed():
                self._end(run, now, failure=event.message, target=event.target, run_id=event.run_id)
                run.step = "plan"
            case PipelineEnded():
                self._finish(event, run, now)

    def _end(self, run: _Run, now: int, *, failure: str | None = None, **known: str | int) -> None:
        """End the step that ran until now."""
        attributes = {
            f"flow.{name}": redact(value) if isinstance(value, str) else value for name, value in known.items()
        }
        span = self._tracer.start_span(
            f"flow.pipeline.{run.step}", set_span_in_context(run.root), attributes=attributes, start_time=run.since
        )
        if failure is not None:
            span.set_status(Status(StatusCode.ERROR, redact(failure)[:_LONGEST]))
        span.end(now)
        run.since = now

    def _finish(self, event: PipelineEnded, run: _Run, now: int) -> None:
        if not event.success:
            run.root.set_status(Status(StatusCode.ERROR, redact(event.error_message)[:_LONGEST]))
            run.root.set_attribute("error.type", event.error_type)
        run.root.set_attribute("flow.pipeline.outcome", "success" if event.success else "failure")
        run.root.end(now)
        del self._runs[event.pipeline]

    def close(self, seconds: float) -> None:
        """Send what waits, for as long as that takes at most."""
        self._box.close(seconds)


def to_collector(to: Collector) -> Callable[[Sequence[ReadableSpan]], None]:
    """Return what sends spans to a collector."""
    return lambda spans: to.send("traces", encode_spans(spans).SerializeToString())


def to_stderr(spans: Sequence[ReadableSpan]) -> None:
    """Write spans as lines of JSON to stderr; stdout belongs to results."""
    for span in spans:
        sys.stderr.write(f"[TRACE] {span.to_json(indent=None)}\n")
    sys.stderr.flush()

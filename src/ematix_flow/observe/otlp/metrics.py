"""Numbers of runs for an OTLP collector: summed up in this process, sent now and then and at the end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource

from ematix_flow.connect.config.redact import safe_text
from ematix_flow.errors import FlowError
from ematix_flow.observe.metrics.run import ATTEMPT, DURATION, RUNS, SECONDS, TEXTS

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricsData

    from ematix_flow.observe.otlp.client import Collector

SERVICE = "ematix-flow"
EVERY = 60.0
"""Seconds between two sendings."""


class _Exporter(MetricExporter):
    """Sends through the guarded client; a failure is reported once and never raised."""

    def __init__(self, to: Collector) -> None:
        super().__init__()
        self._to = to
        self._warned = False

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **_: Any) -> MetricExportResult:
        """Send the numbers."""
        del timeout_millis
        try:
            self._to.send("metrics", encode_metrics(metrics_data).SerializeToString())
        except FlowError as error:
            if not self._warned:
                sys.stderr.write(f"metrics: {' '.join(safe_text(error).split())} (reported once)\n")
            self._warned = True
            return MetricExportResult.FAILURE
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Keep nothing back."""
        del timeout_millis
        return True

    def shutdown(self, timeout_millis: float = 30_000, **_: Any) -> None:
        """Have nothing to end."""


class OtlpSink:
    """Counts, and sends the sums."""

    def __init__(self, to: Collector) -> None:
        reader = PeriodicExportingMetricReader(_Exporter(to), EVERY * 1000)
        buckets = View(instrument_name=DURATION, aggregation=ExplicitBucketHistogramAggregation(SECONDS))
        self._provider = MeterProvider(
            [reader], resource=Resource.create({"service.name": SERVICE}), views=[buckets], shutdown_on_exit=False
        )
        meter = self._provider.get_meter(SERVICE)
        self._runs = meter.create_counter(RUNS, description=TEXTS[RUNS])
        self._seconds = meter.create_histogram(DURATION, unit="s", description=TEXTS[DURATION])
        self._attempt = meter.create_gauge(ATTEMPT, description=TEXTS[ATTEMPT])

    def inc_runs(self, name: str, outcome: str) -> None:
        """Count a run."""
        self._runs.add(1, {"pipeline": name, "outcome": outcome})

    def observe_duration(self, name: str, secs: float) -> None:
        """Record how long a run took."""
        self._seconds.record(secs, {"pipeline": name})

    def set_attempt(self, name: str, count: int) -> None:
        """Record how many attempts have failed in a row."""
        self._attempt.set(count, {"pipeline": name})

    def close(self) -> None:
        """Send the sums a last time."""
        self._provider.shutdown()

"""Public names of the metrics of runs; nothing else is defined here."""

from ematix_flow.observe.metrics.run import MemorySink, MetricsSink, NullSink, RunMetrics, StdoutSink
from ematix_flow.observe.metrics.urls import from_url

__all__ = ["MemorySink", "MetricsSink", "NullSink", "RunMetrics", "StdoutSink", "from_url"]

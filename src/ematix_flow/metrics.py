"""Public names of the metrics of runs; nothing else lives here."""

from ematix_flow.observe.metric_urls import from_url
from ematix_flow.observe.run_metrics import MemorySink, MetricsSink, NullSink, RunMetrics, StdoutSink

__all__ = ["MemorySink", "MetricsSink", "NullSink", "RunMetrics", "StdoutSink", "from_url"]

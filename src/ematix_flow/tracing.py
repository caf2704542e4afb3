"""Public names of traces; nothing else is defined here."""

from ematix_flow.observe.otlp.trace_urls import from_url
from ematix_flow.observe.otlp.traces import Tracing

__all__ = ["Tracing", "from_url"]

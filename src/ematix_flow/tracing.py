"""Public names of traces; nothing else lives here."""

from ematix_flow.observe.trace_urls import from_url
from ematix_flow.observe.traces import Tracing

__all__ = ["Tracing", "from_url"]

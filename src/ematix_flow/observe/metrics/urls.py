"""Chooses the sink of metrics by its URL; one that is not usable is reported, and then nothing is counted."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ematix_flow.errors import DeclareError, FlowError, RunError, did_you_mean
from ematix_flow.observe.metrics.run import MemorySink, NullSink, StdoutSink

if TYPE_CHECKING:
    from ematix_flow.observe.metrics.run import MetricsSink

SCHEMES = ("null", "stdout", "memory", "prometheus", "otlp", "otlp+http", "otlp+grpc")


def from_url(url: str | None) -> MetricsSink:
    """Return the sink of a URL; a bad one is a warning and a sink that drops everything."""
    try:
        return sink_of(url or "null://")
    except FlowError as error:
        warnings.warn(f"there are no metrics of this run: {error}", UserWarning, stacklevel=2)
        return NullSink()


def sink_of(url: str) -> MetricsSink:
    """Return the sink of a URL, or raise what is wrong with it."""
    scheme, separator, _ = url.partition("://")
    match scheme if separator else "":
        case "null":
            return NullSink()
        case "stdout":
            return StdoutSink()
        case "memory":
            return MemorySink()
        case "prometheus":
            return _prometheus(url)
        case "otlp" | "otlp+http" | "otlp+grpc":
            return _otlp(url, grpc=scheme == "otlp+grpc")
    message = f"metrics cannot go to the scheme {scheme!r}" if separator else "the address of metrics has no scheme"
    raise DeclareError(message, hint=did_you_mean(scheme, SCHEMES))


def _prometheus(url: str) -> MetricsSink:
    from ematix_flow.observe.metrics.prometheus import DEFAULT_PORT, PrometheusSink
    from ematix_flow.observe.metrics.stream import HOST

    try:
        parts = urlsplit(url)
        port = DEFAULT_PORT if parts.port is None else parts.port
    except ValueError:
        raise DeclareError("the port of prometheus:// is no number", hint="write prometheus://:9464.") from None
    try:
        return PrometheusSink(port, parts.hostname or HOST)
    except OSError as error:
        message = f"metrics cannot be served on port {port}: {error.strerror}"
        raise RunError(message, hint="prometheus://:0 takes any free port.") from None


def _otlp(url: str, *, grpc: bool) -> MetricsSink:
    from ematix_flow.observe.otlp.client import collector, missing

    to = collector(url, grpc=grpc)
    try:
        from ematix_flow.observe.otlp.metrics import OtlpSink
    except ImportError as error:
        raise missing(error) from None
    return OtlpSink(to)

"""Chooses where traces go by a URL; one that is not usable is reported, and then there are none."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from ematix_flow.errors import DeclareError, FlowError, did_you_mean
from ematix_flow.observe.otlp.client import collector, missing

if TYPE_CHECKING:
    from ematix_flow.observe.otlp.traces import Tracing

FORMS = ("otel://stdout", "otel+otlp+grpc://host:port", "otel+otlp+http://host:port")


def from_url(url: str) -> Tracing | None:
    """Return the traces of a URL; a bad one is a warning and None."""
    try:
        return tracing_of(url)
    except FlowError as error:
        warnings.warn(f"there are no traces of this run: {error}", UserWarning, stacklevel=2)
        return None


def tracing_of(url: str) -> Tracing:
    """Return the traces of a URL, or raise what is wrong with it."""
    try:
        from ematix_flow.observe.otlp.traces import Tracing, to_collector, to_stderr
    except ImportError as error:
        raise missing(error) from None
    scheme, _, remainder = url.partition("://")
    match scheme:
        case "otel" if remainder == "stdout":
            return Tracing(to_stderr)
        case "otel+otlp+grpc" | "otel+otlp+http":
            return Tracing(to_collector(collector(url, grpc=scheme.endswith("grpc"))))
    raise DeclareError(f"traces cannot go to {scheme!r}", hint=did_you_mean(scheme, FORMS))

"""A declared stream as the user's module holds it: calling it runs it until it is stopped; it does no work itself."""

from __future__ import annotations

import functools
import importlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.values import port_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.declare.stream.stream import Stream

ENGINE = "ematix_flow.engine.stream.run"
"""Looked up at the call, so that declaring never loads what running needs."""

PLANS = "ematix_flow.engine.review.stream"


class StreamHandle:
    """What `@ematix.streaming_pipeline` leaves under the function's name."""

    def __init__(self, stream: Stream, function: Callable[[], Any] | None = None) -> None:
        self.stream = stream
        if function is not None:
            functools.update_wrapper(self, function)

    @property
    def name(self) -> str:
        """Return the stream's name."""
        return self.stream.name

    def __call__(self, **options: Any) -> dict[str, Any]:
        """Run the stream until it is stopped and return the counts."""
        return run(self.stream, **options)

    def preview(self) -> Any:
        """Return the plan of the next batch; no message is read."""
        return importlib.import_module(PLANS).preview_stream(self.stream)

    def dry_run(self) -> Any:
        """Return the plan with the counts of the next batch; nothing is stored or sent."""
        return importlib.import_module(PLANS).dry_run_stream(self.stream)

    def validate(self) -> Any:
        """Check source, targets and promises without reading a message."""
        return importlib.import_module(PLANS).validate_stream(self.stream)

    def __repr__(self) -> str:
        return f"<stream {self.stream.name!r}>"


def run(stream: Stream, *, metrics_port: int | None = None, **options: Any) -> dict[str, Any]:
    """Hand a stream to the engine and return the counts of its run; `options` are the engine's StreamOptions."""
    engine = importlib.import_module(ENGINE)
    if metrics_port is not None:
        stream = replace(stream, metrics_port=port_number("metrics_port", metrics_port))
    result: dict[str, Any] = engine.run_stream(stream, engine.StreamOptions(**options))
    return result

"""What the tests of declared streams share: an engine that keeps what it is given, and the documented streams."""

from __future__ import annotations

import runpy
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.stream import handle as stream_handle

if TYPE_CHECKING:
    from ematix_flow.declare.stream.stream import Stream

README = Path(__file__).resolve().parents[1] / "examples" / "readme"


@dataclass
class StreamRequests:
    """What the engine was asked to run, in order."""

    streams: list[Stream] = field(default_factory=list)
    options: list[dict[str, Any]] = field(default_factory=list)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> StreamRequests:
    """Put an engine in place that runs nothing and remembers what it was asked."""
    recorded = StreamRequests()

    def run_stream(stream: Stream, options: dict[str, Any]) -> dict[str, Any]:
        recorded.streams.append(stream)
        recorded.options.append(options)
        return {"total_rows": 0, "iterations": 0, "shutdown_triggered": True}

    engine = ModuleType("engine_of_the_tests")
    engine.run_stream = run_stream  # type: ignore[attr-defined]
    engine.StreamOptions = dict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, engine.__name__, engine)
    monkeypatch.setattr(stream_handle, "ENGINE", engine.__name__)
    return recorded


@pytest.fixture
def documented(requests: StreamRequests) -> dict[str, Stream]:
    """Return every stream that the documents declare or run, by name."""
    runpy.run_path(str(README / "streams.py"))
    return {**PROJECT.streams, **{stream.name: stream for stream in requests.streams}}

"""A target of a stream that runs: its position and how it goes on; what it does with messages is up to each sink."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ematix_flow.connect.base.stream_source import Position, StreamSource
    from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
    from ematix_flow.declare.stream.stream import Stream
    from ematix_flow.engine.batch.source import OpenSource
    from ematix_flow.engine.stream.options import StreamOptions
    from ematix_flow.engine.stream.transform import StreamRows
    from ematix_flow.records import Counts


@dataclass(frozen=True, slots=True)
class StreamContext:
    """What all targets of a run of a stream share."""

    stream: Stream
    source: StreamSource
    rows: StreamRows
    begin: str
    """Where a target without a position begins."""
    options: StreamOptions
    name: str
    """The name under which positions are stored."""


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """A range of a stream as the load path knows loads."""

    pipeline: Pipeline
    target: TargetDeclaration
    source: OpenSource
    slot: str


class StreamSink(ABC):
    """One target of a stream."""

    key: str
    """Its name in results."""
    position: Position
    """Everything before it is in the target."""
    next_end: Position | None = None
    """How far the range behind the one that is loaded goes, if that is settled."""
    previously_loaded: bool = False
    """Whether earlier batches are in the target's table, so that it has to be there."""

    @abstractmethod
    def load(self, end: Position) -> Counts:
        """Bring the messages up to a position into the target, once, and move the position there."""

    def batch(self, end: Position) -> StreamBatch | None:
        """Return what `load` would load; None where nothing goes through the load path of tables."""
        del end
        return None

    @property
    def reads_ahead(self) -> bool:
        """Return whether the range that comes next is read while one is loaded, if `next_end` says how far it goes."""
        return False

    @property
    def reads_first(self) -> bool:
        """Return whether messages have to be read before anything is known of a load."""
        return True

    def is_due(self) -> bool:
        """Return whether a load would give something out though no message has come."""
        return False

    def clean_up(self) -> None:  # noqa: B027 - not every target has metadata
        """Remove metadata that no run can query any more; called now and then, never in a load."""

    def close(self) -> None:  # noqa: B027 - a table holds none
        """Close connections."""

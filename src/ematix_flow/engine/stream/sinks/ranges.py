"""What goes into the state of a stream as one range, what that has shown, and what the state gives out; values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from ematix_flow.connect.base.stream_source import Position
    from ematix_flow.engine.stream.sinks.read_files import NewFiles


@dataclass(frozen=True, slots=True)
class RangeInput:
    """What a range reads: everything between two positions, of folders the files that are new."""

    name: str
    begin: Position
    end: Position
    rejects: str
    """Where what is no row is written."""
    files: Mapping[str, NewFiles] = field(default_factory=dict)
    """By the ids of their sources."""


@dataclass(frozen=True, slots=True)
class RangeSummary:
    """What a range has shown when it was taken up."""

    times: dict[str, int]
    watermark: int | None
    schemas: dict[str, str]
    rejects: bool
    windows: list[tuple[int, int]]
    """Beginning and end of the windows of a fixed length that got events."""
    newest: int | None = None
    """The newest event of the range."""
    timeless: int = 0
    """Rows that are in no window, because they have no time."""
    bad: Mapping[str, int] = field(default_factory=dict)
    """Of a range that is read again, how many of its rows are bad ones, by the column that is to blame."""


@dataclass
class GivenOut:
    """The rows and rejects of one batch of the state."""

    rows: DataFrame
    policy: str
    """What happens to rows that came late."""
    rejects: DataFrame | None = None
    order: str | None = None
    """The column of our own that says in which order rows come, the same one on every try."""
    keeps_late: bool = False
    """Whether the rejects are rows that came late, which are kept whatever the stream does with bad ones."""
    cached: list[DataFrame] = field(default_factory=list)
    windows: int = 0
    """How many windows and sessions the rows are of."""
    late: int = 0
    """How many rows came late."""

    def release(self) -> None:
        """Let Spark forget what it keeps of them."""
        for frame in self.cached:
            frame.unpersist()

"""The lines of a range that a query with state reads: its events, and one line that carries the watermark."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.plan.stream.aggregates import TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame

    from ematix_flow.run.streams.query import StateFolder

_MARKER = {"key": "", "side": "", "start": 0, "end": 0, "ts": 0, "block": ""}
"""A line without a key: it carries the watermark, so that a range without events has one too."""


@dataclass(frozen=True, slots=True)
class EventFrame:
    """The rows of one source and how they become events."""

    source: str
    rows: DataFrame
    """With their event time."""
    events: Callable[[DataFrame], DataFrame]


def write_range(folder: StateFolder, name: str, frames: Sequence[EventFrame]) -> dict[str, int]:
    """Write the events of a range, and return the newest event time of each source that has one, in microseconds."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as sf

    path = f"{folder.input}/{name}"
    observed = {frame.source: Observation() for frame in frames}
    lines = None
    for frame in frames:
        # The write itself observes the times: the rows are read once.
        rows = frame.rows.observe(observed[frame.source], sf.max(TIME).alias("newest"))
        events = frame.events(rows)
        line = events.select(sf.to_json(sf.struct(*(sf.col(f"`{name}`") for name in events.columns))).alias("value"))
        lines = line if lines is None else lines.union(line)
    if lines is None:
        return {}
    lines.write.text(path)
    newest = {source: one.get["newest"] for source, one in observed.items()}
    return {source: int(time) for source, time in newest.items() if time is not None}


def write_watermark(folder: StateFolder, name: str, watermark: int | None) -> None:
    """Write the line with the watermark that counts behind a range."""
    folder.write(f"{folder.input}/{name}/part-watermark", json.dumps({**_MARKER, "watermark": watermark}) + "\n")

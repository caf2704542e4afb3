"""The lines of a range that a query with state reads: its events, and one line that carries the watermark."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ematix_flow.connect.types.identifiers import backticked
from ematix_flow.plan.columns import POSITION
from ematix_flow.plan.stream.aggregates import TIME
from ematix_flow.run.streams.events import is_untimely

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, DataFrame

    from ematix_flow.run.streams.choices import Choice
    from ematix_flow.run.streams.query import StateFolder

_NUMBERS, _TEXTS = ("start", "end", "ts"), ("side", "key", "block")
"""The fields of an event in the order of a line, in which the watermark stands between them; its texts are JSON, or have no tab."""


_LINE = "_flow_line_name"
"""Column of the line that a row is in, while its times are looked at."""


@dataclass(frozen=True, slots=True)
class EventFrame:
    """The rows of one source and how they become events."""

    source: str
    rows: DataFrame
    """With their event time."""
    column: str
    """Where it was read from."""
    events: Callable[[DataFrame], DataFrame]
    line: str = ""
    """Key in the position of a row for the line that it is in, such as a partition."""
    lines: tuple[str, ...] = ()
    """The lines of the source."""
    requires_time: bool = False
    """Whether a row without an event time is a bad row."""

    def of(self, choice: Choice) -> EventFrame:
        """Return the same rows, of which some are chosen for events, and some of those."""
        return replace(self, events=lambda rows: choice.events(self.events(choice.rows(rows))))


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """What the event times of some rows show."""

    newest: int | None
    """In microseconds; None where no row has a time."""
    bad: int
    """How many rows have no time where they need one, or one that is none."""
    windows: tuple[tuple[int, int], ...] = ()
    """Beginning and end of the windows of a fixed length that they are in."""
    lines: tuple[int | None, ...] = ()
    """The newest time of each line; none where rows do not tell their line."""
    timeless: int = 0
    """How many rows have no time and need none; they are left out."""


def write_range(folder: StateFolder, name: str, frames: Sequence[EventFrame]) -> dict[str, TimeSpan]:
    """Write the events of a range, and return what the event times of each source show; rows without one are left out."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as sf

    path = f"{folder.input}/{name}"
    observations = {frame.source: (Observation(), Observation()) for frame in frames}
    lines = None
    for frame in frames:
        # The write itself observes the times: the rows are read once.
        is_bad = is_untimely(frame.column, requires_time=frame.requires_time)
        bad = sf.count_if(is_bad).alias("bad")
        timeless = sf.count_if(sf.col(TIME).isNull() & ~is_bad).alias("timeless")
        of_rows, of_events = observations[frame.source]
        rows = _with_line(frame)
        rows = rows.observe(of_rows, sf.max(TIME).alias("newest"), bad, timeless, *_newest_of_lines(frame))
        events = frame.events(rows.drop(_LINE).where(sf.col(TIME).isNotNull()))
        events = events.observe(of_events, sf.collect_set(sf.struct("start", "end")).alias("windows"))
        line = event_lines(events)
        lines = line if lines is None else lines.union(line)
    if lines is None:
        return {}
    lines.write.text(path)
    return {
        source: TimeSpan(
            of_rows.get["newest"],
            of_rows.get["bad"],
            tuple((one[0], one[1]) for one in of_events.get["windows"]),
            tuple(value for name, value in of_rows.get.items() if name.startswith("line")),
            of_rows.get["timeless"],
        )
        for source, (of_rows, of_events) in observations.items()
    }


def _with_line(frame: EventFrame) -> DataFrame:
    """Return the rows of a source with the line of each, read once; unchanged where they do not have it."""
    from pyspark.sql import functions as sf

    if not _has_lines(frame):
        return frame.rows
    position = sf.col(backticked(POSITION))
    # Spark reads a number from a text many times faster than from JSON.
    number = sf.regexp_extract(position, rf'"{frame.line}": (-?\d+)', 1)
    name = sf.when(number != "", number).otherwise(sf.get_json_object(position, f"$.{frame.line}"))
    return frame.rows.withColumn(_LINE, name)


def _newest_of_lines(frame: EventFrame) -> list[Column]:
    """Return the newest time of each line; none where rows do not tell their line."""
    from pyspark.sql import functions as sf

    if not _has_lines(frame):
        return []
    return [
        sf.max(sf.when(sf.col(_LINE) == name, sf.col(TIME))).alias(f"line{number}")
        for number, name in enumerate(frame.lines)
    ]


def _has_lines(frame: EventFrame) -> bool:
    return bool(frame.lines) and POSITION in frame.rows.columns


def event_lines(events: DataFrame) -> DataFrame:
    """Return events as lines of text."""
    from pyspark.sql import functions as sf

    tab, nothing = sf.lit("\t"), sf.lit("")
    fields = [*(sf.col(f"`{name}`") for name in _NUMBERS), nothing, *(sf.col(f"`{name}`") for name in _TEXTS)]
    texts = [sf.coalesce(field.cast("string"), nothing) for field in fields]
    return events.select(sf.concat(texts[0], *(part for text in texts[1:] for part in (tab, text))).alias("value"))


def write_watermark(folder: StateFolder, name: str, watermark: int | None) -> None:
    """Write the line with the watermark that counts behind a range."""
    # A line without a key, so that a range without events has a time too.
    at = "" if watermark is None else watermark
    folder.write(f"{folder.input}/{name}/part-watermark", f"0\t0\t0\t{at}\t\t\t\n")

"""What a state does not take: messages of a range that are no rows, until they are loaded, and windows with too many groups."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import TYPE_CHECKING

from ematix_flow.errors import RefusedError, RunError
from ematix_flow.plan.stream.aggregates import SUMMED, summed_columns
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from ematix_flow.declare.stream.stream import Stream
    from ematix_flow.declare.stream.windows import Window
    from ematix_flow.run.streams.input import EventFrame, TimeSpan

_COLUMNS = "reason string, column_name string, source_position string, row_json string"


def bad_rows(frame: EventFrame, window: Window | None) -> DataFrame:
    """Return the rows of a range that a state does not take, as rejects: with a time that is none, or a text that cannot be summed."""
    from ematix_flow.run.streams.events import untimely

    return untimely(frame.rows, frame.column, requires_time=frame.requires_time, summed=summed_columns(window))


def count_bad(frames: Sequence[EventFrame], spans: Mapping[str, TimeSpan], window: Window | None) -> dict[str, int]:
    """Return how many rows of a range a state does not take, by the column that is to blame."""
    bad = Counter[str]()
    for frame in frames:
        if spans[frame.source].bad:
            counts = bad_rows(frame, window).groupBy("column_name").count().collect()
            bad.update({row[0]: int(row[1]) for row in counts})
    return bad


def refuse_unsummed(stream: Stream, definition: Mapping[str, object], bad: Mapping[str, int]) -> None:
    """Refuse a new state without rows that the one before has: they are bad ones by a sum that its `definition` has not."""
    known = definition.get("aggregations")
    before = {one[1] for one in known if one[0] in SUMMED} if isinstance(known, list) else set()
    new = {name: bad[name] for name in summed_columns(stream.window) if name in bad and name not in before}
    if new:
        rows = quantity(sum(new.values()), "row")
        message = (
            f"the state of stream {stream.name!r} cannot be built anew: {rows} of the messages of what is open would be"
            f" missing, as the texts in {', '.join(map(repr, new))} are no numbers and are summed now"
        )
        hint = "make them numbers or NULL in transform_sql=, or declare the stream as before until they have been given out."
        raise RefusedError(message, hint=hint, origin=stream.origin)


def warn_of_bad(stream: Stream, bad: Mapping[str, int]) -> None:
    """Warn of rows that are bad ones by the declaration of now, and so in nothing that was computed again."""
    if bad:
        columns = ", ".join(f"{count} by {name!r}" for name, count in sorted(bad.items()))
        message = (
            f"stream {stream.name!r}: {quantity(sum(bad.values()), 'row')} of the messages that were read again"
            f" {'is a bad row' if sum(bad.values()) == 1 else 'are bad rows'} ({columns}), and in nothing that was written;"
            " those that were bad rows when they came are rejected already, for others change transform_sql= and call it again"
        )
        warnings.warn(message, UserWarning, stacklevel=2)


def write_rejects(frames: list[DataFrame], path: str) -> None:
    """Write down what of a range is no row."""
    from ematix_flow.run.transform.frame_sql import together

    rejects = together(frames)
    assert rejects is not None  # noqa: S101 - there are some
    rejects.write.mode("overwrite").json(path)


def read_rejects(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return what was written down in some folders."""
    return spark.read.json(list(paths), schema=_COLUMNS)


def windows_of(rows: DataFrame, window: Window) -> int:
    """Return how many windows or sessions rows are of; one that has more groups than it may have is refused."""
    from ematix_flow.run.streams.results import count_windows

    windows, crowded = count_windows(rows, window)
    if crowded is not None:
        start, groups = crowded
        most = window.max_groups_per_window
        message = f"the window that begins at {start} has {quantity(groups, 'group')}, and may have {most}"
        raise RunError(message, hint="group by fewer values, or raise max_groups_per_window=.")
    return windows

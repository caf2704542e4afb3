"""What a state does not take: messages of a range that are no rows, until they are loaded, and windows with too many groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.errors import RunError
from ematix_flow.plan.stream.aggregates import summed_columns
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from ematix_flow.declare.stream.windows import Window
    from ematix_flow.run.streams.input import EventFrame

_COLUMNS = "reason string, column_name string, source_position string, row_json string"


def bad_rows(frame: EventFrame, window: Window | None) -> DataFrame:
    """Return the rows of a range that a state does not take, as rejects: with a time that is none, or a text that cannot be summed."""
    from ematix_flow.run.streams.events import untimely

    return untimely(frame.rows, frame.column, requires_time=frame.requires_time, summed=summed_columns(window))


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

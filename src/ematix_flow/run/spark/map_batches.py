"""Gives the batches of a frame to a function that runs in tasks, in the folder and under the names that its caller knows."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    Task = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]


def map_batches(frame: DataFrame, task: Task, schema: StructType | str) -> DataFrame:
    """Return the frame that a task makes of the batches of another one."""
    names = frame.columns
    if any("." in name or "`" in name for name in names):
        # Connect sends the names of the columns as if they were parsed: a dot would mean a field, a backtick a quote.
        frame, task = frame.toDF(*(f"_{number}" for number in range(len(names)))), _named(task, names)
    return frame.mapInArrow(_in_this_folder(task), schema)


def _named(task: Task, names: Sequence[str]) -> Task:
    """Return the task as one whose batches have these names again."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return task(batch.rename_columns(names) for batch in batches)

    return run


def _in_this_folder(task: Task) -> Task:
    """Return the task as one that first goes to the folder this process is in now; on other machines there may be none.

    Relative paths then mean the same to the command and to a worker that other commands used before.
    """
    folder = os.getcwd()  # noqa: PTH109 - the text travels

    def run(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        with suppress(OSError):
            os.chdir(folder)
        yield from task(batches)

    return run

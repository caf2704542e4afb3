"""Frames whose rows tasks read by themselves, one numbered split after the other; what a split is, its reader knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.run.spark.map_batches import map_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def split_frame(
    spark: SparkSession,
    splits: int,
    read: Callable[[int], Iterable[pa.RecordBatch]],
    schema: str | StructType,
    at_once: int | None = None,
) -> DataFrame:
    """Return the rows of as many splits as a frame; tasks read them, at most `at_once` at a time."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read(number)

    tasks = max(1, min(splits, at_once or splits))
    return map_batches(spark.range(0, splits, 1, tasks), task, schema)

"""The lines of a range that a query with state reads: its events, and one line that carries the watermark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.plan.stream.aggregates import TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from ematix_flow.run.streams.query import StateFolder


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """What the event times of some rows show."""

    rows: int
    newest: int | None
    """In microseconds; None where no row has a time."""


def time_span(rows: DataFrame) -> TimeSpan:
    """Return how many rows there are, and the newest event time of them."""
    from pyspark.sql import functions as sf

    row = rows.agg(sf.count(sf.lit(1)), sf.max(TIME)).collect()[0]
    return TimeSpan(int(row[0]), None if row[1] is None else int(row[1]))


def write_range(
    spark: SparkSession, folder: StateFolder, number: int, events: Sequence[DataFrame], watermark: int | None
) -> None:
    """Write the lines of a range; what an interrupted attempt has written of it is replaced."""
    from pyspark.sql import functions as sf

    none, zero = sf.lit(None).cast("bigint"), sf.lit(0).cast("bigint")
    text = sf.lit("")
    lines = spark.range(1).select(
        text.alias("key"),
        text.alias("side"),
        zero.alias("start"),
        zero.alias("end"),
        zero.alias("ts"),
        text.alias("block"),
        sf.lit(watermark).cast("bigint").alias("watermark"),
    )
    for frame in events:
        lines = lines.unionByName(frame.withColumn("watermark", none))
    line = sf.to_json(sf.struct(*(sf.col(f"`{name}`") for name in lines.columns)))
    lines.select(line.alias("value")).write.mode("overwrite").text(f"{folder.input}/{number}")

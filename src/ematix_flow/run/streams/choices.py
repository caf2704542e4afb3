"""Which events of messages that are read again a state needs, and lines of events that no message has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.types.identifiers import backticked
from ematix_flow.plan.stream.state import LEFT, RIGHT
from ematix_flow.run.streams.input import write_watermark

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from ematix_flow.declare.stream.windows import Join
    from ematix_flow.plan.stream.state import StatePlan
    from ematix_flow.run.streams.query import StateFolder
    from ematix_flow.run.streams.stored import StoredState

    Choice = Callable[[DataFrame], DataFrame]

_NUMBER = "_flow_number"


def every_event(events: DataFrame) -> DataFrame:
    """Return all events."""
    return events


def open_after(time: int, events: DataFrame) -> DataFrame:
    """Return the events of windows that end after a time."""
    return events.where(f"end > {time}")


def remembered_times(known: DataFrame, events: DataFrame) -> DataFrame:
    """Return the events of sessions whose key and time a state has."""
    return events.join(known, ["key", "ts"], "left_semi").select(*events.columns)


def counted_rows(stored: StoredState) -> DataFrame:
    """Return how many rows of a join wait, and how many of them had a partner, by side, key and time."""
    from pyspark.sql import functions as sf

    by_time = stored.buffered().groupBy("side", "key", "ts")
    return by_time.agg(sf.count_if("matched").alias("paired"), sf.count(sf.lit(1)).alias("all"))


def rows_of_join(known: DataFrame, events: DataFrame, *, paired: bool) -> DataFrame:
    """Return the rows that a state has; of those of one key and time, the first ones had a partner."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    number = sf.row_number().over(Window.partitionBy("side", "key", "ts").orderBy("block"))
    numbered = events.withColumn(_NUMBER, number).join(known, ["side", "key", "ts"])
    had = sf.col(_NUMBER) <= sf.col("paired")
    return numbered.where(had if paired else ~had).select(*events.columns)


def forgotten_partners(known: DataFrame, plan: StatePlan, watermark: int) -> DataFrame:
    """Return events that stand for partners which a state has forgotten, at the earliest time that they can have had."""
    from pyspark.sql import functions as sf

    is_left, zero = sf.col("side") == LEFT, sf.lit(0).cast("bigint")
    lonely = known.where((sf.col("paired") > 0) & (sf.col("ts") + plan.allowed < watermark))
    return lonely.select(
        "key",
        sf.when(is_left, RIGHT).otherwise(LEFT).alias("side"),
        zero.alias("start"),
        zero.alias("end"),
        sf.when(is_left, sf.col("ts") + plan.least).otherwise(sf.col("ts") - plan.most).alias("ts"),
        sf.lit("{}").alias("block"),
    )


def write_events(folder: StateFolder, name: str, events: DataFrame) -> None:
    """Write events that no message has as a range."""
    from pyspark.sql import functions as sf

    columns = (sf.col(f"`{column}`") for column in ("key", "side", "start", "end", "ts", "block"))
    events.select(sf.to_json(sf.struct(*columns)).alias("value")).write.text(f"{folder.input}/{name}")
    write_watermark(folder, name, None)


def begun_between(first: int, last: int, events: DataFrame) -> DataFrame:
    """Return events of windows, or windows and sessions, that begin in a time; its end is not a part of it."""
    return events.where(f"start >= {first} AND start < {last}")


def between(first: int, last: int, events: DataFrame) -> DataFrame:
    """Return the events of a time; its end is not a part of it."""
    return events.where(f"ts >= {first} AND ts < {last}")


def pairs_between(first: int, last: int, pairs: DataFrame, join: Join) -> DataFrame:
    """Return the pairs of a join whose left row is of a time; of rows without one the right row."""
    from pyspark.sql import functions as sf

    names = (f"{prefix}{join.event_time_column}" for prefix in (join.left_column_prefix, join.right_column_prefix))
    times = [f"UNIX_MICROS(TRY_CAST({backticked(name)} AS TIMESTAMP))" for name in names if name in pairs.columns]
    time = sf.expr(f"COALESCE({', '.join(times)})")
    return pairs.where((time >= first) & (time < last))

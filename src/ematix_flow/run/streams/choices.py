"""Which events of messages that are read again a state needs, and lines of events that no message has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.connect.types.identifiers import backticked
from ematix_flow.plan.stream.aggregates import KEY, TIME
from ematix_flow.plan.stream.state import LEFT, MICROS, RIGHT
from ematix_flow.run.streams.events import key_of
from ematix_flow.run.streams.input import event_lines, write_watermark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import DataFrame

    from ematix_flow.declare.stream.windows import Join
    from ematix_flow.plan.stream.state import StatePlan
    from ematix_flow.run.streams.query import StateFolder
    from ematix_flow.run.streams.stored import StoredState

    Pick = Callable[[DataFrame], DataFrame]

_NUMBER = "_flow_number"
_FIRST, _RUN, _WHOLE, _BEGUN, _OVER = "_flow_first", "_flow_run", "_flow_whole", "_flow_begun", "_flow_over"


def everything(frame: DataFrame) -> DataFrame:
    """Return a frame as it is."""
    return frame


@dataclass(frozen=True, slots=True)
class Choice:
    """What of the messages of a range a state needs."""

    events: Pick = everything
    rows: Pick = everything
    """Of the rows that events are made of."""


def open_after(time: int, events: DataFrame) -> DataFrame:
    """Return the events of windows that end after a time."""
    return events.where(f"end > {time}")


def remembered_times(known: DataFrame, events: DataFrame) -> DataFrame:
    """Return the events of sessions whose key and time a state has."""
    return events.join(known, ["key", "ts"], "left_semi").select(*events.columns)


def rows_of_timestamps(known: DataFrame, group_by: Sequence[str], rows: DataFrame) -> DataFrame:
    """Return the rows whose group and time a state of sessions has, which may have had other groups than now."""
    from pyspark.sql import functions as sf

    timestamps = known.select(sf.col("key").alias(KEY), sf.col("ts").alias(TIME))
    keyed = rows.withColumn(KEY, key_of(rows, group_by))
    return keyed.join(timestamps, [KEY, TIME], "left_semi").select(*(sf.col(backticked(name)) for name in rows.columns))


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
    event_lines(events).write.text(f"{folder.input}/{name}")
    write_watermark(folder, name, None)


def begun_between(first: int, last: int, events: DataFrame) -> DataFrame:
    """Return events of windows, or windows and sessions, that begin in a time; its end is not a part of it."""
    return events.where(f"start >= {first} AND start < {last}")


def begun_at(starts: Iterable[int], events: DataFrame) -> DataFrame:
    """Return events of windows, or windows, that begin at some times."""
    return events.where(f"start IN ({', '.join(map(str, sorted(starts)))})")


def times_of(times: Iterable[int], windows: DataFrame) -> set[int]:
    """Return which times are the beginning of one of some windows."""
    starts = {int(row["start"]) for row in windows.select("start").distinct().collect()}
    return starts & set(times)


def times_within(times: Iterable[int], sessions: DataFrame) -> set[int]:
    """Return which times, in whole milliseconds, are in one of some sessions."""
    listed = ", ".join(f"{time}L" for time in sorted(set(times)))
    inside = f"filter(array({listed}), time -> start < time + {MICROS} AND time < end)"
    return {int(row["time"]) for row in sessions.selectExpr(f"explode({inside}) AS time").distinct().collect()}


def whole_runs(
    sessions: DataFrame, gap: int, read: tuple[int, int], begun: tuple[int, int], over_by: int
) -> tuple[DataFrame, DataFrame]:
    """Return the sessions of runs that have one which begins in a time, and key and beginning of those that are not whole.

    A run is what has no pause that is longer than the gap. Where the sessions in it begin depends on its first event, so
    it is computed as a whole or not at all: events outside of the time that was `read` must not belong to it, and all of
    it has to be over by a time.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    of_key = Window.partitionBy("key").orderBy("start")
    before = sf.lag("end").over(of_key)
    is_first = (before.isNull() | (sf.col("start") > before)).cast("int")
    run = Window.partitionBy("key", _RUN)
    numbered = sessions.withColumn(_FIRST, is_first).withColumn(_RUN, sf.sum(_FIRST).over(of_key))
    is_begun = (sf.col("start") >= begun[0]) & (sf.col("start") < begun[1])
    is_known = (sf.min("start").over(run) >= read[0] + gap) & (sf.max("end").over(run) < read[1])
    wanted = numbered.select(
        *sessions.columns,
        (is_known & (sf.max("end").over(run) <= over_by)).alias(_WHOLE),
        sf.max(is_begun).over(run).alias(_BEGUN),
        sf.max(is_begun & (sf.col("end") <= over_by)).over(run).alias(_OVER),
    ).where(_BEGUN)
    partial = wanted.where(f"NOT {_WHOLE} AND {_OVER}").groupBy("key").agg(sf.min("start").alias("start"))
    return wanted.where(_WHOLE).select(*sessions.columns), partial


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

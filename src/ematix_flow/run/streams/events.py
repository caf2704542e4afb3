"""Rows of a stream as events of its state: key, times, and values as one text of JSON; no row comes to the driver.

Values are texts in the state, so that the types of later rows may be wider than those of earlier ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.types.identifiers import backticked
from ematix_flow.declare.stream.windows import HOPPING, SESSION
from ematix_flow.errors import PlanError, did_you_mean
from ematix_flow.plan.columns import OURS
from ematix_flow.plan.sql.user.row_errors import ROW
from ematix_flow.plan.stream.aggregates import TIME, aggregates_of, group_names, partial_columns
from ematix_flow.plan.stream.state import MICROS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from ematix_flow.declare.stream.windows import Window

JSON_OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""How values are written into the state and read from it; Spark's own form has milliseconds only."""

BUCKETS = 16
"""Into how many parts the groups of a window are divided, so that several tasks can remember them."""


def timed(rows: DataFrame, column: str) -> DataFrame:
    """Return the rows of a stream with their event time in microseconds; those without one are left out."""
    from pyspark.sql import functions as sf

    fields = {field.name: field.dataType.typeName() for field in rows.schema.fields if field.name not in (*OURS, ROW)}
    if column not in fields:
        message = f"the rows have no column {column!r} for the time of events"
        raise PlanError(message, hint=did_you_mean(column, fields))
    kind, quoted = fields[column], backticked(column)
    if kind == "void":
        return rows.withColumn(TIME, sf.lit(None).cast("bigint")).where(sf.lit(False))  # noqa: FBT003 - a literal
    if kind not in ("timestamp", "timestamp_ntz", "string"):
        message = f"column {column!r} has the time of events, and is {kind.upper()}"
        raise PlanError(message, hint=f"make it a timestamp in transform_sql=, as in timestamp_millis({column}).")
    # A text that is no instant fails the batch: it would be in no window.
    instant = f"CAST({quoted} AS TIMESTAMP)"
    return rows.withColumn(TIME, sf.expr(f"UNIX_MICROS({instant})")).where(sf.col(TIME).isNotNull())


def window_events(rows: DataFrame, window: Window, *, keeps_rows: bool) -> DataFrame:
    """Return the events of windows of a fixed length: what each window gets of the rows."""
    from pyspark.sql import functions as sf

    _expect_columns(rows, window)
    placed = rows.withColumn("start", _starts(window)).withColumn("end", sf.expr(f"start + {_length(window)}"))
    grouped = _remembered(placed, window, ("start", "end"), keeps_rows=keeps_rows)
    # A window that is opened again is given out with all of its groups, which one task has to have for that.
    groups = [sf.col(name) for name in group_names(window)] if window.allowed_lateness_ms is None else []
    hashed = sf.pmod(sf.xxhash64(*groups), sf.lit(BUCKETS)) if groups and not keeps_rows else sf.lit(0)
    key = sf.concat_ws(":", sf.col("start"), sf.col("end"), hashed)
    return grouped.select(key.alias("key"), _none().alias("side"), "start", "end", sf.col(TIME).alias("ts"), "block")


def session_events(rows: DataFrame, window: Window, *, keeps_rows: bool) -> DataFrame:
    """Return the events of sessions: what each moment of a group gets of the rows."""
    from pyspark.sql import functions as sf

    _expect_columns(rows, window)
    grouped = _remembered(rows, window, (), keeps_rows=keeps_rows)
    names = [backticked(name) for name in (window.group_by if keeps_rows else group_names(window))]
    key = _key([sf.col(name) for name in names])
    zero = sf.lit(0).cast("bigint")
    return grouped.select(
        key.alias("key"),
        _none().alias("side"),
        zero.alias("start"),
        zero.alias("end"),
        sf.col(TIME).alias("ts"),
        "block",
    )


def side_events(rows: DataFrame, side: str, keys: Sequence[str]) -> DataFrame:
    """Return the events of one side of a join: every row by its keys."""
    from pyspark.sql import functions as sf

    for name in keys:
        if name not in rows.columns:
            message = f"the rows of the {side} source have no column {name!r}, which the join needs"
            raise PlanError(message, hint=did_you_mean(name, rows.columns))
    zero = sf.lit(0).cast("bigint")
    key = _key([_comparable(rows, name) for name in keys])
    return rows.select(
        key.alias("key"),
        sf.lit(side).alias("side"),
        zero.alias("start"),
        zero.alias("end"),
        sf.col(TIME).alias("ts"),
        _block(rows, [name for name in rows.columns if name not in (*OURS, ROW, TIME)]).alias("block"),
    )


def value_fields(rows: DataFrame) -> list[str]:
    """Return the columns of rows that are remembered where rows themselves are."""
    return [name for name in rows.columns if name not in (*OURS, ROW, "start", "end")]


def partial_frame(rows: DataFrame, window: Window, by: Sequence[str]) -> DataFrame:
    """Return what is remembered of rows: for every group, and every value of further columns, the columns of aggregations."""
    from pyspark.sql import functions as sf

    groups = [
        sf.col(backticked(name)).alias(alias) for name, alias in zip(window.group_by, group_names(window), strict=True)
    ]
    columns = [sf.expr(text).alias(name) for name, text in partial_columns(aggregates_of(window))]
    return rows.groupBy(*groups, *(sf.col(name) for name in by)).agg(*columns)


def _remembered(rows: DataFrame, window: Window, by: Sequence[str], *, keeps_rows: bool) -> DataFrame:
    """Return rows with their values as a text: the rows themselves, or what aggregations need of them."""
    from pyspark.sql import functions as sf

    if keeps_rows:
        return rows.withColumn("block", _block(rows, value_fields(rows)))
    if window.kind == SESSION:
        grouped = partial_frame(rows, window, (TIME,))
        names = [name for name in grouped.columns if name != TIME]
        return grouped.withColumn("block", _block(grouped, names))
    grouped = partial_frame(rows, window, by)
    names = [name for name in grouped.columns if name not in by]
    return grouped.withColumn("block", _block(grouped, names)).withColumn(TIME, sf.lit(0).cast("bigint"))


def block_schema(rows: DataFrame, window: Window | None, *, keeps_rows: bool) -> str:
    """Return the types of the values of events that are made of rows, as Spark writes them."""
    from pyspark.sql.types import StructType

    if window is None or keeps_rows:
        names = [name for name in value_fields(rows) if window is not None or name != TIME]
        return StructType([field for field in rows.schema.fields if field.name in names]).json()
    schema = partial_frame(rows, window, ()).schema
    return schema.json()


def _starts(window: Window) -> Column:
    from pyspark.sql import functions as sf

    hop = (window.hop_ms or window.duration_ms) * MICROS
    newest = f"{TIME} - PMOD({TIME}, {hop})"
    if window.kind != HOPPING:
        return sf.expr(newest)
    length = _length(window)
    oldest = f"{newest} - {(length - 1) // hop * hop}"
    return sf.explode(sf.expr(f"FILTER(SEQUENCE({oldest}, {newest}, {hop}), s -> s + {length} > {TIME})"))


def _length(window: Window) -> int:
    return window.duration_ms * MICROS


def _block(rows: DataFrame, names: Sequence[str]) -> Column:
    from pyspark.sql import functions as sf

    del rows
    return sf.to_json(sf.struct(*(sf.col(backticked(name)) for name in names)), JSON_OPTIONS)


def _key(columns: Sequence[Column]) -> Column:
    """Return the text of a key; NULL is a value like others."""
    from pyspark.sql import functions as sf

    return sf.to_json(sf.array(*(column.cast("string") for column in columns)))


def _comparable(rows: DataFrame, name: str) -> Column:
    """Return a column of a key so that equal numbers of different types are equal texts."""
    from pyspark.sql import functions as sf

    column = sf.col(backticked(name))
    kind = rows.schema[name].dataType.typeName()
    if kind in ("float", "double", "decimal"):
        whole = (sf.floor(column) == column) & (sf.abs(column) < 1e15)  # noqa: PLR2004 - exact in a double
        return sf.when(whole, column.cast("bigint").cast("string")).otherwise(column.cast("string"))
    return column


def _expect_columns(rows: DataFrame, window: Window) -> None:
    needed = (*window.group_by, *(one.column for one in window.aggregations if one.column is not None))
    for name in needed:
        if name not in rows.columns:
            message = f"the rows have no column {name!r}, which the window needs"
            known = [known for known in rows.columns if known not in (*OURS, ROW, TIME)]
            raise PlanError(message, hint=did_you_mean(name, known))


def _none() -> Column:
    from pyspark.sql import functions as sf

    return sf.lit(None).cast("string")

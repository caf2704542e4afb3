"""Rows of a stream as events of its state: key, times, and values as one text of JSON; no row comes to the driver.

Values are texts in the state, so that the types of later rows may be wider than those of earlier ones.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ematix_flow.connect.base.event_time import FIRST_MS, LAST_MS
from ematix_flow.connect.base.stage import UNPARSED
from ematix_flow.connect.types.identifiers import backticked
from ematix_flow.declare.stream.windows import HOPPING, SESSION
from ematix_flow.errors import PlanError, did_you_mean
from ematix_flow.plan.columns import OURS, POSITION
from ematix_flow.plan.sql.user.row_errors import ROW
from ematix_flow.plan.stream.aggregates import (
    END,
    KEY,
    LABEL,
    START,
    TIME,
    aggregates_of,
    comparable,
    group_names,
    partial_columns,
)
from ematix_flow.plan.stream.state import MICROS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import Column, DataFrame

    from ematix_flow.declare.stream.windows import Window

JSON_OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""How values are written into the state and read from it; Spark's own form has milliseconds only."""

NO_TIME = "has no event time"
"""The reason of a reject that needs a time."""

NO_NUMBER = "is no number that could be summed"
"""How the reason of a reject ends of which a value cannot be summed; no row of a table is refused so."""

LONGEST_SUMMED = 34
"""Digits of the longest whole number that is summed: a sum has 38, so that it has room for ten thousand of those."""

_NESTED = ("array", "map", "struct")
"""Types of which no value can be summed."""

BUCKETS = 16
"""Into how many parts the groups of a window are divided, so that several tasks can remember them."""


def completed(rows: DataFrame, of: str, time: str, names: Sequence[str], *, first: bool) -> DataFrame | None:
    """Return the rows of a range with the columns that the state needs; one that only earlier ranges had is NULL.

    The first range has to have all of them, unless none of its messages is a row: then nothing is known yet, and None is
    returned. `of` says in messages whose rows they are.
    """
    from pyspark.sql import functions as sf

    missing = [name for name in dict.fromkeys((time, *names)) if name not in _own(rows.columns)]
    if missing and first:
        if rows.isEmpty():
            return None
        refuse_missing(rows.columns, of, time, names)
    return rows.withColumns({name: sf.lit(None) for name in missing}) if missing else rows


def refuse_missing(columns: Iterable[str], of: str, time: str, names: Sequence[str]) -> None:
    """Refuse rows without a column that the state needs."""
    own = _own(columns)
    missing = [name for name in dict.fromkeys((time, *names)) if name not in own]
    if missing:
        use = "for the time of events" if missing[0] == time else "which the state of the stream needs"
        message = f"{of} have no column {missing[0]!r}{'' if missing[0] == time else ','} {use}"
        raise PlanError(message, hint=did_you_mean(missing[0], own))


def _own(columns: Iterable[str]) -> list[str]:
    return [name for name in columns if name not in (*OURS, ROW)]


def timed(rows: DataFrame, column: str, summed: Sequence[str] = ()) -> DataFrame:
    """Return the rows of a stream with their event time in microseconds; NULL for those without one that calendars have.

    Rows with something in a column that is `summed` which cannot be are bad rows, and have none either.
    """
    from pyspark.sql import functions as sf

    kind = rows.schema[column].dataType
    if kind.typeName() not in ("timestamp", "timestamp_ntz", "string", "void"):
        message = f"column {column!r} has the time of events, and is {kind.simpleString().upper()}"
        raise PlanError(message, hint=f"make it a timestamp in transform_sql=, as in timestamp_millis({column}).")
    within = f"{TIME} BETWEEN {FIRST_MS * MICROS} AND {LAST_MS * MICROS + MICROS - 1}"
    # In two steps, so that Spark parses a time once.
    micros = rows.withColumn(TIME, sf.expr(_micros(rows, column)))
    fits = " AND ".join([within, *(f"NOT {one}" for one in _unsummable(rows, summed).values())])
    return micros.withColumn(TIME, sf.expr(f"CASE WHEN {fits} THEN {TIME} END"))


def is_untimely(column: str, *, requires_time: bool) -> Column:
    """Return whether a row has something else than an event time; with `requires_time`, also whether it has none."""
    from pyspark.sql import functions as sf

    without = sf.col(TIME).isNull()
    return without if requires_time else without & sf.col(backticked(column)).isNotNull()


def untimely(rows: DataFrame, column: str, *, requires_time: bool, summed: Sequence[str] = ()) -> DataFrame:
    """Return the rows whose event time is none, or that have something `summed` which cannot be, as rejects."""
    from pyspark.sql import functions as sf

    position = sf.col(POSITION) if POSITION in rows.columns else _none()
    value = sf.col(backticked(column)).cast("string")
    no_year = sf.concat(value, sf.lit(" is not in the years 1 to 9999"))
    reason, blamed = (
        (
            sf.when(value.isNull(), sf.lit(NO_TIME))
            .when(sf.expr(f"{_micros(rows, column)} IS NOT NULL"), no_year)
            .otherwise(sf.concat(value, sf.lit(f" {UNPARSED}")))
        ),
        sf.lit(column),
    )
    # The first one that is to blame is told.
    for name, condition in reversed(_unsummable(rows, summed).items()):
        is_bad, text = sf.expr(condition), sf.col(backticked(name)).cast("string")
        reason = sf.when(is_bad, sf.concat(text, sf.lit(f" {NO_NUMBER}"))).otherwise(reason)
        blamed = sf.when(is_bad, sf.lit(name)).otherwise(blamed)
    return rows.where(is_untimely(column, requires_time=requires_time)).select(
        reason.alias("reason"),
        blamed.alias("column_name"),
        position.alias("source_position"),
        _block([name for name in value_fields(rows) if name != TIME]).alias("row_json"),
    )


def _unsummable(rows: DataFrame, names: Sequence[str]) -> dict[str, str]:
    """Return by column the condition that a value is there which cannot be summed, as the SQL of Spark; it is never NULL."""
    numbers = _numbers(rows)
    return {name: f"({backticked(name)} IS NOT NULL AND {numbers[name]} IS NULL)" for name in names if name in numbers}


def _numbers(rows: DataFrame) -> dict[str, str]:
    """Return what is summed of columns that may have something else.

    Of texts those that are numbers, of whole numbers those that are not too long, of truth values 1 and 0, of nested ones none.
    """
    from pyspark.sql.types import DecimalType

    numbers: dict[str, str] = {}
    for field in rows.schema.fields:
        name, kind = backticked(field.name), field.dataType
        if kind.typeName() == "string":
            numbers[field.name] = f"TRY_CAST({name} AS DOUBLE)"
        elif kind.typeName() == "boolean":
            numbers[field.name] = f"CAST({name} AS BIGINT)"
        elif kind.typeName() in _NESTED:
            numbers[field.name] = "CAST(NULL AS BIGINT)"
        elif isinstance(kind, DecimalType) and kind.scale == 0 and kind.precision > LONGEST_SUMMED:
            # Not by ABS, which rounds a negative decimal to 34 digits, and fails where that makes one more.
            greatest = "9" * LONGEST_SUMMED
            numbers[field.name] = f"IF({name} BETWEEN -{greatest} AND {greatest}, {name}, NULL)"
    return numbers


def _micros(rows: DataFrame, column: str) -> str:
    name = backticked(column)
    micros = f"UNIX_MICROS(TRY_CAST({name} AS TIMESTAMP))"
    if rows.schema[column].dataType.typeName() != "string":
        return micros
    # Spark takes a time of day for one of today.
    return f"CASE WHEN LOCATE(':', TRIM({name})) NOT BETWEEN 1 AND 4 THEN {micros} END"


def labelled(rows: DataFrame, label: str) -> DataFrame:
    """Return rows that name their source, so that one that turns out to be late does."""
    from pyspark.sql import functions as sf

    return rows.withColumn(LABEL, sf.lit(label))


def of_source(rejects: DataFrame, label: str) -> DataFrame:
    """Return rejects whose positions name the source that they are of, which has the same ones as others may have."""
    from pyspark.sql import functions as sf

    position = sf.col("source_position")
    head = sf.lit(json.dumps({"source": label}, ensure_ascii=False)[:-1] + ", ")
    within = sf.concat(head, sf.expr("substring(source_position, 2)"))
    alone = sf.to_json(sf.struct(sf.lit(label).alias("source"), position.alias("place")))
    return rejects.withColumn("source_position", sf.when(position.startswith("{"), within).otherwise(alone))


def window_events(rows: DataFrame, window: Window, *, keeps_rows: bool) -> DataFrame:
    """Return the events of windows of a fixed length: what each window gets of the rows."""
    from pyspark.sql import functions as sf

    placed = rows.withColumn(START, _starts(window)).withColumn(END, sf.expr(f"{START} + {_length(window)}"))
    grouped = _remembered(placed, window, (START, END), keeps_rows=keeps_rows)
    # A window that is opened again is given out with all of its groups, which one task has to have for that.
    groups = [sf.col(name) for name in group_names(window)] if window.allowed_lateness_ms is None else []
    hashed = sf.pmod(sf.xxhash64(*groups), sf.lit(BUCKETS)) if groups and not keeps_rows else sf.lit(0)
    return grouped.select(
        sf.concat_ws(":", sf.col(START), sf.col(END), hashed).alias("key"),
        _none().alias("side"),
        sf.col(START).alias("start"),
        sf.col(END).alias("end"),
        sf.col(TIME).alias("ts"),
        "block",
    )


def session_events(rows: DataFrame, window: Window, *, keeps_rows: bool) -> DataFrame:
    """Return the events of sessions: what each moment of a group gets of the rows."""
    from pyspark.sql import functions as sf

    grouped = _remembered(rows, window, (), keeps_rows=keeps_rows)
    key = _key([_comparable(grouped, name) for name in (window.group_by if keeps_rows else group_names(window))])
    zero = sf.lit(0).cast("bigint")
    return grouped.select(
        key.alias("key"),
        _none().alias("side"),
        zero.alias("start"),
        zero.alias("end"),
        sf.col(TIME).alias("ts"),
        "block",
    )


def key_of(rows: DataFrame, group_by: Sequence[str]) -> Column:
    """Return the key that rows have in sessions of some groups; a column that no row has is NULL."""
    return _key([_comparable(rows, name) if name in rows.columns else _none() for name in group_by])


def side_events(rows: DataFrame, side: str, keys: Sequence[str], *, apart: bool = False) -> DataFrame:
    """Return the events of one side of a join: every row by its keys; `apart` by its side, too."""
    from pyspark.sql import functions as sf

    zero = sf.lit(0).cast("bigint")
    key = _key([*((sf.lit(side),) if apart else ()), *(_comparable(rows, name) for name in keys)])
    return rows.select(
        key.alias("key"),
        sf.lit(side).alias("side"),
        zero.alias("start"),
        zero.alias("end"),
        sf.col(TIME).alias("ts"),
        _block([name for name in rows.columns if name not in (*OURS, ROW, TIME)]).alias("block"),
    )


def value_fields(rows: DataFrame) -> list[str]:
    """Return the columns of rows that are remembered where rows themselves are."""
    return [name for name in rows.columns if name not in (*OURS, ROW, KEY, START, END)]


def partial_frame(rows: DataFrame, window: Window, by: Sequence[str], more: Sequence[Column] = ()) -> DataFrame:
    """Return what is remembered of rows: for every group, and every value of further columns, the columns of aggregations.

    `more` are aggregations besides.
    """
    from pyspark.sql import functions as sf

    groups = [
        sf.col(backticked(name)).alias(alias) for name, alias in zip(window.group_by, group_names(window), strict=True)
    ]
    untyped = {field.name for field in rows.schema.fields if field.dataType.typeName() == "void"}
    # Spark says that the sum of nothing is a double.
    nothing = {f"SUM({backticked(name)})" for name in untyped}
    columns = [
        sf.expr("MAX(NULL)" if text in nothing else text).alias(name)
        for name, text in partial_columns(aggregates_of(window, _fractions(rows), _numbers(rows)))
    ]
    return rows.groupBy(*groups, *(sf.col(name) for name in by)).agg(*columns, *more)


def _remembered(rows: DataFrame, window: Window, by: Sequence[str], *, keeps_rows: bool) -> DataFrame:
    """Return rows with their values as a text: the rows themselves, or what aggregations need of them."""
    from pyspark.sql import functions as sf

    if keeps_rows:
        return rows.withColumn("block", _block(value_fields(rows)))
    if window.kind == SESSION:
        grouped = partial_frame(rows, window, (TIME,))
        names = [name for name in grouped.columns if name != TIME]
        return grouped.withColumn("block", _block(names))
    grouped = partial_frame(rows, window, by)
    names = [name for name in grouped.columns if name not in by]
    return grouped.withColumn("block", _block(names)).withColumn(TIME, sf.lit(0).cast("bigint"))


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


def _block(names: Sequence[str]) -> Column:
    from pyspark.sql import functions as sf

    return sf.to_json(sf.struct(*(sf.col(backticked(name)) for name in names)), JSON_OPTIONS)


def _key(columns: Sequence[Column]) -> Column:
    """Return the text of a key; NULL is a value like others."""
    from pyspark.sql import functions as sf

    return sf.to_json(sf.array(*(column.cast("string") for column in columns)))


def _comparable(rows: DataFrame, name: str) -> Column:
    """Return a column of a key so that equal numbers of different types are equal texts."""
    from pyspark.sql import functions as sf

    return sf.expr(comparable(backticked(name))) if name in _fractions(rows) else sf.col(backticked(name))


def _fractions(rows: DataFrame) -> set[str]:
    """Return the columns whose numbers may have fractions."""
    kinds = ("float", "double", "decimal")
    return {field.name for field in rows.schema.fields if field.dataType.typeName() in kinds}


def _none() -> Column:
    from pyspark.sql import functions as sf

    return sf.lit(None).cast("string")

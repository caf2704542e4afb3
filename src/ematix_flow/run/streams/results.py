"""What the state of a stream gives out, as frames of rows: closed windows and sessions, pairs, and rows that came late."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.base.stream_source import LATE
from ematix_flow.connect.types.identifiers import backticked
from ematix_flow.declare.stream.windows import SESSION
from ematix_flow.errors import RunError
from ematix_flow.plan.columns import ORDER, ORDER_AT
from ematix_flow.plan.stream.aggregates import END, KEY, LABEL, ROWS, START, TIME, aggregates_of, group_names
from ematix_flow.run.streams.events import JSON_OPTIONS, partial_frame
from ematix_flow.run.streams.schemas import is_typed, readable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from ematix_flow.declare.stream.windows import Join, Window

COUNTED = "_flow_rows"
"""Column of how many events something remembered stands for, next to columns of users."""

SIZE = "_flow_bytes"
"""Column of how many bytes something remembered has."""


def window_rows(
    results: DataFrame, window: Window, schema: StructType, *, keeps_rows: bool, sizes: bool = False
) -> DataFrame:
    """Return the rows of windows and sessions that were closed, in the order of columns that users know.

    A column without a value so far has no type; it is left out, so that no table has it in a wrong one. With `sizes`,
    two columns more say of how many events a row was made, and how many bytes they have.
    """
    from pyspark.sql import functions as sf

    remembered = _values(results.where("kind = 'close'"), schema if keeps_rows else _with_lists(schema, window))
    size = sf.sum(SIZE).alias(SIZE)
    if keeps_rows:
        remembered = partial_frame(_with_needed(remembered, window), window, (KEY, START, END), (size,))
    untyped = {field.name for field in remembered.schema.fields if not is_typed(field.dataType)}
    groups, is_session = group_names(window), window.kind == SESSION
    by = [sf.col(name) for name in (*((KEY,) if is_session else ()), START, END, *groups)]
    known = [one for one in aggregates_of(window) if one.type_from not in untyped]
    closed = (
        _with_types(remembered, untyped)
        .groupBy(*by)
        .agg(
            sf.sum(ROWS).alias(ROWS),
            size,
            *(sf.expr(one.final).alias(f"v{number}") for number, one in enumerate(known)),
        )
    )
    # So that every integer type takes it: 63 bits of the hash.
    session_id = sf.expr(f"xxhash64({KEY}, {START}) & 9223372036854775807")
    return closed.select(
        sf.timestamp_micros(sf.col(START)).alias(window.window_start_column),
        sf.timestamp_micros(sf.col(END)).alias(window.window_end_column),
        *((session_id.alias(window.session_id_column),) if is_session else ()),
        *(
            sf.col(alias).alias(name)
            for alias, name in zip(groups, window.group_by, strict=True)
            if alias not in untyped
        ),
        *(sf.col(f"v{number}").alias(one.name) for number, one in enumerate(known)),
        sf.col(END).alias(ORDER),
        *((sf.col(ROWS).alias(COUNTED), sf.col(SIZE)) if sizes else ()),
    )


def no_rows(results: DataFrame) -> DataFrame:
    """Return a frame without rows and columns, for a time at which no type is known."""
    from pyspark.sql import functions as sf

    return results.limit(0).select(sf.col("end").alias(ORDER))


def count_windows(rows: DataFrame, window: Window) -> tuple[int, tuple[str, int] | None]:
    """Return how many windows or sessions rows are of, and one of those with more groups than they may have, if there is any.

    Of that one, when it begins and how many groups it has.
    """
    from pyspark.sql import functions as sf

    start = sf.expr(_instant(backticked(window.window_start_column))).alias("start")
    many = sf.col("count") > window.max_groups_per_window
    windows = sf.sum("count") if window.kind == SESSION else sf.count(sf.lit(1))
    crowded = sf.min_by(sf.struct("start", "count"), sf.when(many, sf.col("count")))
    [row] = rows.groupBy(start).count().agg(windows, crowded).collect()
    return int(row[0] or 0), None if row[1] is None else (row[1][0], int(row[1][1]))


def pair_rows(results: DataFrame, join: Join, left: StructType | None, right: StructType | None) -> DataFrame:
    """Return the pairs of a join: every column of the left row and then of the right one, with their prefixes.

    A side of which no row has come yet has no columns.
    """
    from pyspark.sql import functions as sf

    pairs = results.where("kind = 'pair'")
    columns = [
        sf.from_json(text, readable(schema), JSON_OPTIONS).getField(field).alias(name)
        for text, schema, names in zip(("block", "other"), (left, right), pair_names(join, left, right), strict=True)
        if schema is not None
        for field, name in names.items()
    ]
    return pairs.select(*columns).withColumn(ORDER, sf.monotonically_increasing_id())


def pair_names(
    join: Join, left: StructType | None, right: StructType | None
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the columns of both sides with their names in pairs; two with one name are refused."""
    sides = ((left, join.left_column_prefix), (right, join.right_column_prefix))
    first, second = (
        {} if schema is None else {name: f"{prefix}{name}" for name in schema.fieldNames()} for schema, prefix in sides
    )
    known = {name.lower(): column for column, name in first.items()}
    for column, name in second.items():
        if name.lower() in known:
            message = f"pairs have column {name!r} twice: {known[name.lower()]!r} of the left source, {column!r} of the right one"
            raise RunError(message, hint="left_column_prefix= and right_column_prefix= of the join tell them apart.")
    return first, second


def first_rows(results: DataFrame, schema: StructType) -> DataFrame:
    """Return the rows that are the first of their keys."""
    from pyspark.sql import functions as sf

    value = sf.from_json("block", schema, JSON_OPTIONS).alias("value")
    rows = results.where("kind = 'row'").select(value, sf.col("start").alias(ORDER_AT))
    return rows.select("value.*", ORDER_AT).withColumn(ORDER, sf.monotonically_increasing_id())


def passed_rows(results: DataFrame, side: str, schema: StructType) -> DataFrame:
    """Return the rows of one side that are the first of their keys, for what follows; a column without a value has no type."""
    from pyspark.sql import functions as sf

    first = results.where((sf.col("kind") == "row") & sf.col("key").startswith(f'["{side}",'))
    value = sf.from_json("block", readable(schema), JSON_OPTIONS)
    return first.select(
        *(
            (value.getField(field.name) if is_typed(field.dataType) else sf.lit(None).cast(field.dataType)).alias(
                field.name
            )
            for field in schema.fields
        )
    )


def late_count(results: DataFrame, *, keeps_rows: bool) -> int:
    """Return how many rows came too late."""
    from pyspark.sql import functions as sf

    late = results.where("kind = 'late'").select(sf.explode(sf.split("block", "\n")).alias("block"))
    rows = sf.count(sf.lit(1)) if keeps_rows else sf.sum(sf.get_json_object("block", f"$.{ROWS}").cast("bigint"))
    return int(late.agg(rows).collect()[0][0] or 0)


def late_rejects(results: DataFrame, what: str) -> DataFrame:
    """Return the rows that came too late as rejects."""
    from pyspark.sql import functions as sf

    start, end = (_instant(f"timestamp_micros({name})") for name in ("start", "end"))
    reason = sf.expr(f"concat('{LATE}{what} ', {start}, ' to ', {end}, ' was closed')")
    row = sf.regexp_replace("block", rf',?"{TIME}":-?\d+', "")
    row = sf.regexp_replace(row, rf',?"{LABEL}":"(?:[^"\\\\]|\\\\.)*"', "")
    none = sf.lit(None).cast("string")
    label = sf.get_json_object("block", f"$.{LABEL}")
    position = sf.when(label.isNotNull(), sf.to_json(sf.struct(label.alias("source")))).otherwise(none)
    return results.where("kind = 'late'").select(
        reason.alias("reason"),
        none.alias("column_name"),
        position.alias("source_position"),
        row.alias("row_json"),
    )


def _instant(time: str) -> str:
    """Return the expression of a time as people read it."""
    return f"date_format({time}, \"yyyy-MM-dd'T'HH:mm:ss.SSS'Z'\")"


def _values(results: DataFrame, schema: StructType) -> DataFrame:
    """Return what was remembered, with its key and bounds; a column without a value so far has no type either."""
    from pyspark.sql import functions as sf

    bounds = [sf.col(name).alias(alias) for name, alias in (("key", KEY), ("start", START), ("end", END))]
    lines = results.select(*bounds, sf.explode(sf.split("block", "\n")).alias("block"))
    value = sf.from_json("block", readable(schema), JSON_OPTIONS).alias("value")
    values = lines.select(KEY, START, END, sf.octet_length("block").alias(SIZE), value)
    value = sf.col("value")
    columns = [
        (value.getField(field.name) if is_typed(field.dataType) else sf.lit(None).cast(field.dataType)).alias(
            field.name
        )
        for field in schema.fields
    ]
    return values.select(KEY, START, END, SIZE, *columns)


def _with_lists(schema: StructType, window: Window) -> StructType:
    """Return the types of what was remembered, where lists of values whose types do not go together are lists of texts."""
    from pyspark.sql.types import ArrayType, StringType, StructField, StructType

    names = {column for one in aggregates_of(window) if one.is_list for column, _ in one.partial}
    texts = {field.name for field in schema.fields if field.name in names and isinstance(field.dataType, StringType)}
    return StructType(
        [StructField(one.name, ArrayType(StringType())) if one.name in texts else one for one in schema.fields]
    )


def _with_needed(rows: DataFrame, window: Window) -> DataFrame:
    """Return rows that were remembered with every column of a window; those of before a new aggregation may lack its column."""
    from pyspark.sql import functions as sf

    known = {name.lower() for name in rows.columns}
    names = (*window.group_by, *(one.column for one in window.aggregations if one.column is not None))
    return rows.withColumns({name: sf.lit(None) for name in names if name.lower() not in known})


def _with_types(remembered: DataFrame, untyped: Collection[str]) -> DataFrame:
    """Return what was remembered with any type for columns that have none; lists stay lists."""
    from pyspark.sql import functions as sf

    kinds = {
        name: "STRING" if remembered.schema[name].dataType.typeName() == "void" else "ARRAY<STRING>" for name in untyped
    }
    return remembered.withColumns({name: sf.lit(None).cast(kind) for name, kind in kinds.items()})

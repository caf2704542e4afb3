"""Spark frames for files: every row of every file, or an error that names the file; a bad row is marked, never dropped."""

from __future__ import annotations

from functools import partial, reduce
from typing import TYPE_CHECKING

from ematix_flow.errors import RunError
from ematix_flow.plan.marks import CORRUPT, POSITION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from ematix_flow.connect.base import SourceColumn
    from ematix_flow.connect.file_rows import Rows
    from ematix_flow.connect.files import FileSet

MOST_TASKS = 64


def file_frame(spark: SparkSession, files: FileSet, *, strict: bool = False) -> DataFrame:
    """Give the rows of a file set; text formats are read as text, and a broken line is marked.

    With `strict` a broken line fails the read: a user's own query over the files would lose the mark.
    """
    if files.format in ("csv", "json_lines"):
        return _text_frame(spark, files, strict=strict)
    one_layout = _orc_frame if files.format == "orc" else _typed_frame
    frames = [one_layout(spark, files, group) for group in files.groups]
    return reduce(lambda one, other: one.unionByName(other), frames)


def _text_frame(spark: SparkSession, files: FileSet, *, strict: bool) -> DataFrame:
    """Give the rows that Python reads: Spark's own readers lose rows behind stray quotes and digits of numbers."""
    from pyspark.sql import types as st

    names = [column.name for column in files.columns]
    shown = [*names, POSITION] if strict else [*names, CORRUPT, POSITION]
    pieces = _pieces(files)

    def task(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                path, read = pieces[number]
                for rows in read():
                    yield from _batches(path, rows, names, strict=strict)

    schema = st.StructType([st.StructField(name, st.StringType()) for name in shown])
    return spark.range(0, len(pieces), 1, min(len(pieces), MOST_TASKS)).mapInArrow(task, schema)


def _pieces(files: FileSet) -> list[tuple[str, Callable[[], Iterator[Rows]]]]:
    """Give what can be read on its own: the path and a function that reads it."""
    from ematix_flow.connect import csv_rows, json_rows

    if files.format == "csv":
        return [(p, partial(csv_rows.read_rows, p, csv_rows.dialect_of(p, files.csv_options))) for p in files.paths]
    names = [column.name for column in files.columns]
    pieces = [(path, piece) for path in files.paths for piece in json_rows.pieces_of(path)]
    return [(path, partial(json_rows.read_rows, path, piece, names)) for path, piece in pieces]


def _batches(path: str, rows: Rows, names: Sequence[str], *, strict: bool) -> Iterator[pa.RecordBatch]:
    """Give the rows with their columns in the order of the set."""
    import pyarrow as pa

    if strict and rows.bad:
        message = f"file {path} has a malformed line: {rows.bad[0][0][:200]}"
        raise RunError(message, hint="load the file without a query and with on_bad_row='reject' to set it aside.")
    good = [rows.good.column(name) for name in names]
    marks = [] if strict else [pa.nulls(rows.good.num_rows, pa.string())]
    place = pa.repeat(pa.scalar(path), rows.good.num_rows)
    shown = [*names, POSITION] if strict else [*names, CORRUPT, POSITION]
    yield from pa.table([*good, *marks, place], names=shown).to_batches()
    if rows.bad:
        known = [[fields[name] for _, fields in rows.bad] for name in names]
        bad = [*known, [said for said, _ in rows.bad], [path] * len(rows.bad)]
        yield pa.RecordBatch.from_arrays([pa.array(column, pa.string()) for column in bad], names=shown)


def _orc_frame(spark: SparkSession, files: FileSet, paths: Sequence[str]) -> DataFrame:
    """Give the rows that Arrow reads: Spark's own reader moves times by the zone of its JVM, and dates before 1582."""
    import pyarrow as pa
    from pyarrow import orc
    from pyspark.sql.pandas.types import from_arrow_schema

    found = orc.ORCFile(paths[0]).schema
    schema = pa.schema([*map(_in_microseconds, found), pa.field(POSITION, pa.string())])
    stripes = [(path, stripe) for path in paths for stripe in range(orc.ORCFile(path).nstripes)]

    def task(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                path, stripe = stripes[number]
                read = orc.ORCFile(path).read_stripe(stripe)
                columns = [read.column(field.name).cast(field.type, safe=False) for field in list(schema)[:-1]]
                place = pa.repeat(pa.scalar(path), read.num_rows)
                yield pa.RecordBatch.from_arrays([*columns, place], schema=schema)

    frame = spark.range(0, len(stripes), 1, max(1, min(len(stripes), MOST_TASKS))).mapInArrow(
        task, from_arrow_schema(schema, prefer_timestamp_ntz=True)
    )
    return frame.select(*(_typed(c, "").alias(c.name) for c in files.columns), POSITION)


def _in_microseconds(field: pa.Field) -> pa.Field:
    import pyarrow as pa

    return field.with_type(pa.timestamp("us", tz=field.type.tz)) if pa.types.is_timestamp(field.type) else field


def _typed_frame(spark: SparkSession, files: FileSet, paths: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as sf

    if any(column.native.startswith("timestamp[ns") for column in files.columns):
        # Spark refuses nanoseconds, which pandas and Arrow write by default, unless they are read as numbers.
        spark.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
    frame = spark.read.format(files.format).load(list(paths))
    kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    columns = [_typed(column, kinds[column.name]).alias(column.name) for column in files.columns]
    return frame.select(*columns, sf.col("_metadata.file_path").alias(POSITION))


def _typed(column: SourceColumn, kind: str) -> Column:
    """Give a column in the family that the plan expects: nested values as JSON, nanoseconds as microseconds."""
    from pyspark.sql import functions as sf

    value = _quoted(column.name)
    if column.family == "json":
        return sf.to_json(value, {"ignoreNullFields": "false"})
    if kind == "bigint" and column.family in ("timestamp", "timestamp_tz"):
        name = "`" + column.name.replace("`", "``") + "`"
        micros = sf.expr(f"timestamp_micros(({name} - pmod({name}, 1000)) div 1000)")
        return micros if column.family == "timestamp_tz" else micros.cast("timestamp_ntz")
    return value


def _quoted(name: str) -> Column:
    from pyspark.sql import functions as sf

    return sf.col("`" + name.replace("`", "``") + "`")

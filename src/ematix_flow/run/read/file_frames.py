"""Spark frames for files: every row of every file, or an error that names the file; a bad row is marked, never dropped."""

from __future__ import annotations

import re
from functools import partial, reduce
from typing import TYPE_CHECKING

from ematix_flow.connect.formats.text import StoredFile
from ematix_flow.connect.types.identifiers import backticked
from ematix_flow.plan.columns import CORRUPT, ORDER, POSITION
from ematix_flow.run.read.documents import json_of
from ematix_flow.run.read.split_frames import split_frame
from ematix_flow.run.spark.slots import session_slots

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from ematix_flow.connect.base.columns import SourceColumn
    from ematix_flow.connect.files.source import FileSet

_PATH = "url_decode(replace(regexp_replace(_metadata.file_path, '^file:/+', '/'), '+', '%2B'))"
"""The path of the file that a row is from, as people write it; Spark returns an address."""

_PATTERN = re.compile(r"[][{}*?\\]|:[^/]*$")
"""Paths that Spark takes for patterns of other names, and names that it cannot open."""


def file_frame(spark: SparkSession, files: FileSet, *, strict: bool = False, ordered: bool = False) -> DataFrame:
    """Return the rows of a file set; text formats are read as text, and a broken line is marked.

    With `strict` the rows are for a user's own query, which sees the columns of the files alone: a broken line fails the
    read, because the mark would be lost. With `ordered` rows have the column of their position.
    """
    if files.format in ("csv", "json_lines"):
        frame = _text_frame(spark, files, strict=strict, ordered=ordered)
    else:
        frames = [_typed_frame(spark, files, group, strict=strict, ordered=ordered) for group in files.groups]
        frame = reduce(lambda one, other: one.unionByName(other), frames)
    return frame.drop(POSITION) if strict else frame


def _text_frame(spark: SparkSession, files: FileSet, *, strict: bool, ordered: bool) -> DataFrame:
    """Return the rows that Python reads: Spark's own readers lose rows behind stray quotes and digits of numbers."""
    from pyspark.sql import types as st

    from ematix_flow.run.read.arrival import numbered_partitions
    from ematix_flow.run.read.file_partitions import split_files, tasks_for

    names = [column.name for column in files.columns]
    column_names = [*names, POSITION] if strict else [*names, CORRUPT, POSITION]
    slots = partial(session_slots, spark)
    partitions = split_files(files, strict=strict, slots=slots)
    if ordered:
        partitions = numbered_partitions(partitions, files.paths)

    def read(number: int) -> Iterator[pa.RecordBatch]:
        return (batch for table in partitions[number].read() for batch in table.to_batches())

    position_columns = [st.StructField(ORDER, st.LongType())] if ordered else []
    schema = st.StructType([*(st.StructField(name, st.StringType()) for name in column_names), *position_columns])
    return split_frame(spark, len(partitions), read, schema, tasks_for(partitions, slots))


def _typed_frame(
    spark: SparkSession, files: FileSet, paths: Sequence[str], *, strict: bool, ordered: bool
) -> DataFrame:
    from pyspark.sql import functions as sf

    if files.format == "orc" or ordered or isinstance(paths[0], StoredFile) or any(map(_PATTERN.search, paths)):
        # Spark's own reader of ORC moves times by the zone of its JVM, and dates before 1582.
        from ematix_flow.run.read.arrow_frames import arrow_frame

        frame = arrow_frame(spark, files, paths, ordered=ordered)
        return _selected(frame, files, sf.col(POSITION), *([sf.col(ORDER)] if ordered else []))
    if any(column.native.startswith("timestamp[ns") for column in files.columns):
        # Spark refuses nanoseconds, which pandas and Arrow write by default, unless they are read as numbers.
        spark.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
    position_columns = [] if strict else [sf.expr(_PATH).alias(POSITION)]
    return _selected(spark.read.format(files.format).load(list(paths)), files, *position_columns)


def _selected(frame: DataFrame, files: FileSet, *position_columns: Column) -> DataFrame:
    kinds = {field.name: field.dataType for field in frame.schema.fields}
    columns = [_typed(column, kinds[column.name]).alias(column.name) for column in files.columns]
    return frame.select(*columns, *position_columns)


def _typed(column: SourceColumn, kind: DataType) -> Column:
    """Return a column in the family that the plan expects: nested values as JSON, nanoseconds as microseconds."""
    from pyspark.sql import functions as sf

    value = _quoted(column.name)
    if column.family == "json":
        return json_of(value, kind)
    if kind.simpleString() == "bigint" and column.family in ("timestamp", "timestamp_tz"):
        name = backticked(column.name)
        micros = sf.expr(f"timestamp_micros(({name} - pmod({name}, 1000)) div 1000)")
        return micros if column.family == "timestamp_tz" else micros.cast("timestamp_ntz")
    return value


def _quoted(name: str) -> Column:
    from pyspark.sql import functions as sf

    return sf.col(backticked(name))

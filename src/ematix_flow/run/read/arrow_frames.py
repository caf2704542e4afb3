"""Spark frames for typed files that Arrow reads in Python tasks: Spark and its settings know neither a store nor its keys."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ematix_flow.connect.files.source import schema_of
from ematix_flow.connect.types.plain_arrow import SIGNED
from ematix_flow.run.read.arrival import numbered_partitions, numbered_rows
from ematix_flow.run.read.file_partitions import split_files, tasks_for, typed
from ematix_flow.run.read.split_frames import split_frame
from ematix_flow.run.spark.slots import session_slots

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from ematix_flow.connect.files.source import FileSet


def arrow_frame(spark: SparkSession, files: FileSet, paths: Sequence[str], *, ordered: bool = False) -> DataFrame:
    """Return the rows of files of one layout, with the address of each row's file; `ordered` adds their position."""
    from pyspark.sql.pandas.types import from_arrow_schema

    slots = partial(session_slots, spark)
    partitions = split_files(replace(files, paths=tuple(paths)), slots=slots)
    sample = _sample(files, paths[0])
    if ordered:
        partitions, sample = numbered_partitions(partitions, files.paths), numbered_rows(sample)

    def read(number: int) -> Iterator[pa.RecordBatch]:
        return (batch for table in partitions[number].read() for batch in signed(table).to_batches())

    schema = from_arrow_schema(sample.schema, prefer_timestamp_ntz=True)
    return split_frame(spark, len(partitions), read, schema, tasks_for(partitions, slots))


def file_schema(files: FileSet) -> pa.Schema:
    """Return the layout of the rows of files as `signed` returns them: that of the first file, or texts."""
    names = [column.name for column in files.columns]
    if files.format in ("csv", "json_lines"):
        return pa.schema([(name, pa.string()) for name in names])
    return _sample(files, files.paths[0]).select(names).schema


def _sample(files: FileSet, path: str) -> pa.Table:
    names = [column.name for column in files.columns]
    return signed(typed(path, schema_of(path, files.format).empty_table(), names))


def signed(table: pa.Table) -> pa.Table:
    """Return the rows without types that Spark lacks: numbers without a sign become wider ones."""
    columns = [
        pc.cast(column, SIGNED[str(column.type)]) if str(column.type) in SIGNED else column for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)

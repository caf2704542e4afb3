"""Spark frames for sources that are not files: frames that the user's function gave, and rows that Spark must shape."""

from __future__ import annotations

import re
import uuid
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial
from io import StringIO
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.types.frames import is_spark_frame, loaded_table
from ematix_flow.connect.types.identifiers import backticked
from ematix_flow.connect.types.reject_rows import BYTES
from ematix_flow.errors import RunError
from ematix_flow.plan.columns import OURS, RAW, SOURCE_VIEW
from ematix_flow.plan.sql.render import native_column
from ematix_flow.plan.sql.user.named_tables import over_views
from ematix_flow.run.read.documents import DOCUMENT, is_loadable, loadable_column
from ematix_flow.run.read.file_frames import file_frame
from ematix_flow.run.read.split_frames import split_frame

__all__ = [
    "arrow_layout",
    "as_documents",
    "collected",
    "database_frame",
    "file_frame",
    "interchange_query",
    "partition_frame",
    "physical_plan",
    "query_frame",
    "read_once",
    "shaped_frame",
    "user_frame",
    "view_frame",
]

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import ExitStack

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from ematix_flow.connect.base.columns import SourceColumn
    from ematix_flow.connect.base.session import Split
    from ematix_flow.connect.base.source import SqlSource
    from ematix_flow.run.read.file_partitions import FilePartition


TASK_BYTES = 4 << 20
"""Bytes of rows in memory that are worth a task of their own."""


def user_frame(spark: SparkSession, frame: Any) -> DataFrame:
    """Return a Spark frame for whatever kind of frame the user's function returned."""
    if is_spark_frame(frame):
        return as_documents(frame)
    table = _spark_table(loaded_table(frame))
    # Spark would cut three rows into a task for each, and those into as many files.
    return as_documents(spark.createDataFrame(table).coalesce(max(1, table.nbytes // TASK_BYTES)))


def as_documents(frame: DataFrame) -> DataFrame:
    """Return the frame with lists, structs, maps and variants as JSON, as those of files are read, and intervals as text."""
    from pyspark.sql import functions as sf

    if all(is_loadable(field.dataType) for field in frame.schema.fields):
        return frame
    columns = [(sf.col(backticked(field.name)), field) for field in frame.schema.fields]
    return frame.select(
        *(c if is_loadable(f.dataType) else loadable_column(c, f.dataType).alias(f.name) for c, f in columns)
    )


def _spark_table(table: pa.Table) -> pa.Table:
    """Return the table with the string and list types that Spark knows."""
    import pyarrow as pa

    fields = [
        field.with_type(pa.string())
        if pa.types.is_string_view(field.type) or pa.types.is_large_string(field.type)
        else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))


def collected(frame: DataFrame) -> pa.Table:
    """Return the rows of a Spark frame in this process, instants in UTC."""
    import pyarrow as pa

    table = frame.toArrow()
    fields = [
        field.with_type(pa.timestamp("us", tz="UTC"))
        if pa.types.is_timestamp(field.type) and field.type.tz is not None
        else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))


def arrow_layout(frame: DataFrame) -> pa.Schema:
    """Return the columns of a Spark frame as Arrow types; no row is read."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(frame.schema)


def query_frame(spark: SparkSession, sql: str, tables: Mapping[str, DataFrame], resources: ExitStack) -> DataFrame:
    """Return the result of a user's query over named frames, whose views are dropped when `resources` is closed."""
    suffix = uuid.uuid4().hex[:12]
    names = {name: f"flow_{suffix}_{number}" for number, name in enumerate(tables)}
    return view_frame(spark, over_views(sql, names), {names[name]: frame for name, frame in tables.items()}, resources)


def view_frame(spark: SparkSession, sql: str, views: Mapping[str, DataFrame], resources: ExitStack) -> DataFrame:
    """Return the result of a query over views, whose names are unique; they are dropped when `resources` is closed."""
    for name, view in views.items():
        view.createOrReplaceTempView(name)
        resources.callback(partial(_drop, spark, name))
    return as_documents(spark.sql(sql))


def _drop(spark: SparkSession, name: str) -> None:
    # Where the load has failed, Spark may be gone; that is not the error to report.
    with suppress(Exception):
        spark.catalog.dropTempView(name)


_SPARK_TYPES = {
    "integer": "bigint",
    "float": "double",
    "boolean": "boolean",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamp_tz": "timestamp",
    "binary": "binary",
}


def partition_frame(spark: SparkSession, partitions: Sequence[FilePartition], schema: pa.Schema) -> DataFrame:
    """Return the rows of partitions as a frame; tasks read them."""
    from pyspark.sql.pandas.types import from_arrow_schema

    def read(number: int) -> Iterator[pa.RecordBatch]:
        return (batch for table in partitions[number].read() for batch in table.to_batches())

    return split_frame(spark, len(partitions), read, from_arrow_schema(schema, prefer_timestamp_ntz=True))


def interchange_query(source: SqlSource, columns: Sequence[SourceColumn], sql: str) -> str:
    """Return the query that reads every column in its interchange form."""
    read = [source.interchange(c, native_column(c.name, source.dialect)) for c in columns]
    named = [f"{r} AS {native_column(c.name, source.dialect)}" for r, c in zip(read, columns, strict=True)]
    return f"SELECT {', '.join(named)} FROM ({sql}) AS _src_read"


def database_frame(
    spark: SparkSession,
    source: SqlSource,
    splits: tuple[Split, ...],
    columns: Sequence[SourceColumn],
    at_once: int | None = None,
) -> DataFrame:
    """Return the rows of a database query as a frame, for shapes that only Spark can evaluate; `at_once` bounds its tasks."""
    schema = ", ".join(f"{backticked(c.name)} {_SPARK_TYPES.get(c.family, 'string')}" for c in columns)

    def read(number: int) -> Iterator[pa.RecordBatch]:
        return (declared_batch(batch, columns) for batch in source.read(splits[number]))

    return split_frame(spark, len(splits), read, schema, at_once)


_ARROW_NAMES = {"integer": "int64", "float": "float64", "boolean": "bool", "date": "date32", "binary": "binary"}


def declared_schema(columns: Sequence[SourceColumn]) -> pa.Schema:
    """Return the layout of rows of a database that are read for Spark."""
    import pyarrow as pa

    kinds = {"timestamp": pa.timestamp("us"), "timestamp_tz": pa.timestamp("us", tz="UTC")}
    plain = {c.name: pa.type_for_alias(_ARROW_NAMES.get(c.family, "string")) for c in columns}
    return pa.schema([pa.field(c.name, kinds.get(c.family, plain[c.name])) for c in columns])


def declared_batch(batch: pa.RecordBatch, columns: Sequence[SourceColumn]) -> pa.RecordBatch:
    """Return a batch of a database in the Arrow types that its columns have for Spark."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = {c.name: _ARROW_NAMES.get(c.family, "string") for c in columns}
    arrays = []
    for field, array in zip(batch.schema, batch.columns, strict=True):
        if field.name not in names:
            refuse_unreadable(array)
            continue
        target_type = pa.type_for_alias(names[field.name])
        unchanged = pa.types.is_timestamp(field.type)
        arrays.append(array if unchanged or field.type == target_type else pc.cast(array, target_type))
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


def refuse_unreadable(failures: pa.Array) -> None:
    """Stop at a value that the reader could not carry: the shape would take its NULL for the source's own."""
    bad = next((failure for failure in failures.to_pylist() if failure is not None), None)
    if bad is not None:
        message = f"the source has a value that cannot be read: {bad}"
        raise RunError(message, hint="leave such rows out in the query, or convert the column there.")


_RAW = {name: value for name, value in DOCUMENT.items() if name != "ignoreNullFields"}


def with_raw(frame: DataFrame) -> DataFrame:
    """Return the frame with each source row as JSON; Spark evaluates it only where the shape uses it."""
    from pyspark.sql import functions as sf

    kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields if field.name not in OURS}
    columns = {name: sf.col(backticked(name)) for name in kinds}
    # The text of a shorter float means another number when it is read as a double.
    columns |= {name: columns[name].cast("double").alias(name) for name, kind in kinds.items() if kind == "float"}
    bytes_of = {name: sf.struct(sf.hex(columns[name]).alias(BYTES)) for name, kind in kinds.items() if kind == "binary"}
    written = [
        sf.when(column.isNotNull(), bytes_of[name]).alias(name) if name in bytes_of else column
        for name, column in columns.items()
    ]
    return frame.select("*", sf.to_json(sf.struct(*written), _RAW).alias(RAW))


@contextmanager
def read_once(frame: DataFrame) -> Iterator[DataFrame]:
    """Keep the rows of a frame for a query that reads them twice: a source may answer differently the second time."""
    # A projection of our own: the user may have cached the frame itself.
    cached = frame.select("*").persist()
    try:
        yield cached
    finally:
        # Where the load has failed, Spark may be gone; that is not the error to report.
        with suppress(Exception):
            cached.unpersist()


def physical_plan(frame: DataFrame) -> str:
    """Return how Spark would run a frame, as text; nothing of it runs."""
    output = StringIO()
    with redirect_stdout(output):
        frame.explain(mode="formatted")
    return output.getvalue().strip()


def shaped_frame(spark: SparkSession, frame: DataFrame, sql: str) -> DataFrame:
    """Return the frame that the shape's query makes of the raw rows."""
    name = f"{SOURCE_VIEW}_{uuid.uuid4().hex[:12]}"
    with_raw(frame).createOrReplaceTempView(name)
    return spark.sql(re.sub(rf"(?<!\w){SOURCE_VIEW}(?!\w)", name, sql))

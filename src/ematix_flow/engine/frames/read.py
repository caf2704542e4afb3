"""Reads a query, a table or files of any system as Arrow batches; nothing is planned, and nothing is changed."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base.columns import chosen_columns
from ematix_flow.engine.api.references import declared_connection
from ematix_flow.engine.batch.inspect import inspect_source
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.batch.planner import at_versions
from ematix_flow.engine.batch.source import attach
from ematix_flow.engine.batch.stager import raw_frame, translate_spark_error
from ematix_flow.engine.errors import translating_errors
from ematix_flow.engine.spark.session import session_for
from ematix_flow.errors import DeclareTypeError, RunError
from ematix_flow.plan.source import source_value
from ematix_flow.plan.sql.user.order import with_lasting_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from ematix_flow.connect.base.columns import SourceColumn
    from ematix_flow.connect.base.source import SqlSource
    from ematix_flow.connect.files.source import FileSet
    from ematix_flow.engine.batch.inspect import LoadInspection
    from ematix_flow.engine.batch.source import OpenSource
    from ematix_flow.plan.batch import Inspection
    from ematix_flow.plan.source import SourceValue


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that can be read, with their layout; each call of `batches` reads them anew."""

    schema: pa.Schema
    batches: Callable[[], Iterator[pa.RecordBatch]]

    def reader(self) -> pa.RecordBatchReader:
        """Return the rows as they come."""
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def table(self) -> pa.Table:
        """Return all rows."""
        import pyarrow as pa

        return pa.Table.from_batches(self.batches(), self.schema)


def query_value(connection: Any, query: Any) -> SourceValue:
    """Return what a caller reads: SQL, of files a path too, and of lakes the name of a table."""
    if not isinstance(query, str):
        message = f"a query is text, not {type(query).__name__}"
        raise DeclareTypeError(message, hint='for example conn.read_df("SELECT * FROM shop.orders").')
    declared = declared_connection(connection)
    value = source_value(query, declared, None, declared.kind)
    return replace(value, sql=with_lasting_order(value.sql, declared.kind)) if value.sql else value


def rows_of(value: SourceValue) -> Rows:
    """Return the rows of a source; Spark is started for SQL over files and for lakes."""
    with translating_errors(None):
        source = opened_source(value)
        inspected = inspect_source(source)
        _refuse_repeated(inspected.inspection.source_columns)
        if source.database is not None:
            return _database_rows(source.database, inspected.inspection)
        if inspected.files is not None and not value.sql:
            return _file_rows(inspected.files, value.columns)
        return _spark_rows(source, inspected)


def opened_source(value: SourceValue) -> OpenSource:
    """Return a source with the system that it is in."""
    return attach(value, value.connection if isinstance(value.connection, str) else "default")


def spark_frame(source: OpenSource, inspected: LoadInspection, spark: Callable[[], Any], resources: ExitStack) -> Any:
    """Return a source that Spark reads as a frame; lake tables are at the version that is the newest now."""
    inspection = at_versions(source, inspected.inspection, spark)
    return raw_frame(spark(), source, replace(inspected, inspection=inspection), inspection.source_sql, resources)


def _database_rows(database: SqlSource, inspection: Inspection) -> Rows:
    from ematix_flow.run.read.relation_rows import query_rows, relation_schema

    schema = relation_schema([_exactly(column, database) for column in inspection.source_columns])
    return Rows(schema, partial(_translated, partial(query_rows, database, inspection.source_sql, schema)))


def _exactly(column: SourceColumn, database: SqlSource) -> SourceColumn:
    """Return a column that a load reads as text in the type that it is declared with."""
    family, native = _AS_TEXT.get((database.dialect, column.native.upper()), (column.family, column.native))
    return replace(column, family=family, native=native)


_AS_TEXT = {
    # SQLite keeps points in time as ISO text.
    ("sqlite", "DATE"): ("date", ""),
    ("sqlite", "DATETIME"): ("timestamp", ""),
    ("sqlite", "TIMESTAMP"): ("timestamp", ""),
    ("sqlite", "TIMESTAMPTZ"): ("timestamp_tz", ""),
}
"""By dialect and type: family and type of a frame's column."""


def _file_rows(files: FileSet, selected: Sequence[str] | None) -> Rows:
    from ematix_flow.run.read.arrow_frames import file_schema

    chosen = replace(files, columns=chosen_columns(files.columns, selected)) if selected else files
    schema = file_schema(chosen)
    return Rows(schema, partial(_translated, partial(_file_batches, chosen, schema)))


def _file_batches(files: FileSet, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Read files one after the other; a malformed line is an error."""
    from ematix_flow.run.read.arrow_frames import signed
    from ematix_flow.run.read.file_partitions import split_files

    for partition in split_files(files, strict=True):
        for table in partition.read():
            yield from signed(table.select(schema.names)).cast(schema).to_batches()


def _spark_rows(source: OpenSource, inspected: LoadInspection) -> Rows:
    """Return what Spark reads; all of it is collected, at the version that is the newest now."""
    from ematix_flow.run.read.frames import collected

    try:
        with ExitStack() as resources:
            table = collected(spark_frame(source, inspected, session_for(Options()), resources))
    except Exception as error:
        raise translate_spark_error(error) from error
    return Rows(table.schema, lambda: iter(table.to_batches()))


def _translated(read: Callable[[], Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    with translating_errors(None):
        yield from read()


def _refuse_repeated(columns: Sequence[SourceColumn]) -> None:
    for name, count in Counter(column.name for column in columns).items():
        if count > 1:
            message = f"the query has {count} columns with the name {name!r}"
            raise RunError(message, hint="give each a name of its own with AS.")

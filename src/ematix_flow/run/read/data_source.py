"""Systems as Spark's data source `ematix`: batch reads of tables, queries and files; it writes nothing and follows no stream.

The class that a session is given carries the connections, so that no option, plan or page of Spark shows a secret. A database
is read by one task in one statement, because what keeps several reads in one state would have to outlive the planning.
"""

from __future__ import annotations

import json
import os
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql import datasource as ds

from ematix_flow.connect.base.columns import chosen_columns
from ematix_flow.connect.files.source import Files
from ematix_flow.connect.lake.source import LakeSource
from ematix_flow.connect.registry import open_system
from ematix_flow.errors import PlanError, UnsupportedError, did_you_mean
from ematix_flow.plan.remote_tasks import refuse_unread
from ematix_flow.plan.sql.user.pushdown import IN, NOT_NULL, Condition, conditions_sql, relation_sql
from ematix_flow.run.read.relation_rows import query_rows, relation_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from ematix_flow.connect.base.columns import SourceColumn, TableName
    from ematix_flow.connect.base.source import SqlSource
    from ematix_flow.connect.files.source import FileSet
    from ematix_flow.declare.connection.registry import Connection
    from ematix_flow.plan.remote_tasks import Away

FORMAT = "ematix"
_RELATION_OPTIONS = ("table", "query", "path")
_OPTIONS = ("connection", *_RELATION_OPTIONS, "columns", "format")


def register(spark: SparkSession, connections: Mapping[str, Connection], away: Away | None = None) -> None:
    """Let a session read these connections as `spark.read.format("ematix")`; `away` is where its tasks run, if not here."""
    # A class of its own: pickled with what it carries, where a class of this module would be looked up by its name.
    known = {"connections": dict(connections), "folder": os.getcwd(), "away": away}  # noqa: PTH109 - the text travels
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(type("EmatixOfSession", (EmatixDataSource,), known))


class EmatixDataSource(ds.DataSource):
    """One relation of one connection."""

    connections: ClassVar[Mapping[str, Connection]] = {}
    folder: ClassVar[str] = ""
    """Where relative paths begin."""
    away: ClassVar[Away | None] = None
    """Where tasks run that do not see the disk of the driver."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns as Spark sees them."""
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(self._reader().schema, prefer_timestamp_ntz=True)

    def reader(self, schema: StructType) -> ds.DataSourceReader:
        """Return who reads the rows."""
        del schema
        return self._reader()

    def _reader(self) -> DatabaseReader | FileReader:
        with suppress(OSError):
            os.chdir(self.folder)
        options = {str(name).lower(): str(value) for name, value in self.options.items()}
        _check(options)
        system = open_system(self._connection(options["connection"]))
        if isinstance(system, LakeSource):
            message = f"connection {options['connection']!r} is a lake, which Spark reads itself"
            hint = "return SQL over its tables from the pipeline's function, or Source.sql(..., connections=...)."
            raise UnsupportedError(message, hint=hint)
        refuse_unread(self.away, system.read_paths)
        if isinstance(system, Files):
            return FileReader(self.folder, _files(system, options))
        return DatabaseReader(self.folder, system, _relation_of(system, options), _columns(options))

    def _connection(self, name: str) -> Connection:
        if name not in self.connections:
            message = f"this session knows no connection {name!r}"
            raise PlanError(message, hint=did_you_mean(name, self.connections))
        return self.connections[name]


def _check(options: Mapping[str, str]) -> None:
    for name in options:
        if name not in _OPTIONS:
            message = f"the format {FORMAT!r} has no option {name!r}"
            raise PlanError(message, hint=did_you_mean(name, _OPTIONS))
    if "connection" not in options or sum(name in options for name in _RELATION_OPTIONS) != 1:
        message = f"the format {FORMAT!r} needs the option connection, and one of table, query and path"
        raise PlanError(message, hint='for example .option("connection", "pg").option("table", "shop.orders").')


def _columns(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns that are requested, in their order; none where all are."""
    names = options.get("columns", "").strip()
    if names.startswith("["):
        return tuple(map(str, json.loads(names)))
    return tuple(name.strip() for name in names.split(",")) if names else ()


def _files(system: Files, options: Mapping[str, str]) -> FileSet:
    from dataclasses import replace

    if "query" in options:
        message = f"connection {options['connection']!r} has files, which answer no query"
        raise PlanError(message, hint="name them by path, and query the frame.")
    path = options.get("path", options.get("table", ""))
    files = system.file_set(path, {"format": options["format"]} if "format" in options else {})
    selected = _columns(options)
    return replace(files, columns=chosen_columns(files.columns, selected)) if selected else files


def _relation_of(system: SqlSource, options: Mapping[str, str]) -> TableName | str:
    if "path" in options:
        message = f"connection {options['connection']!r} is a database, which has no path"
        raise PlanError(message, hint='name a table: .option("table", "schema.name").')
    if "query" in options:
        return options["query"].strip().rstrip(";")
    schema, _, name = options["table"].rpartition(".")
    return system.table_name(schema, name)


@dataclass(frozen=True, slots=True)
class SqlPartition(ds.InputPartition):
    """A whole relation of a database."""

    sql: str


@dataclass
class DatabaseReader(ds.DataSourceReader):
    """Reads a table or query of a database; conditions are sent along as far as the database means the same by them."""

    folder: str
    system: SqlSource
    table_name: TableName | str
    selected: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()

    @cached_property
    def columns(self) -> tuple[SourceColumn, ...]:
        """Return the columns that are read, as the database describes them."""
        from ematix_flow.plan.sql.render import native_name

        dialect = self.system.dialect
        relation = self.table_name if isinstance(self.table_name, str) else native_name(self.table_name, dialect)
        sql = relation if isinstance(self.table_name, str) else f"SELECT * FROM {relation}"
        with closing(self.system.session()) as session:
            columns = self.system.describe(session, sql)
        return chosen_columns(columns, self.selected) if self.selected else columns

    @property
    def schema(self) -> pa.Schema:
        """Return the layout of the rows."""
        return relation_schema(self._zoned()[1])

    def pushFilters(self, filters: list[ds.Filter]) -> Iterable[ds.Filter]:  # noqa: N802 - as Spark calls it
        """Keep the filters that can be sent to the database; Spark tests all of it again."""
        self.conditions = tuple(filter(None, map(_condition, filters)))
        return filters

    def partitions(self) -> Sequence[ds.InputPartition]:
        """Return the one read."""
        return [SqlPartition(self._zoned()[0])]

    def read(self, partition: ds.InputPartition) -> Iterator[Any]:
        """Read the rows, in a task."""
        assert isinstance(partition, SqlPartition)  # noqa: S101 - our own
        with suppress(OSError):
            os.chdir(self.folder)
        return query_rows(self.system, partition.sql, self.schema)

    def _zoned(self) -> tuple[str, tuple[SourceColumn, ...]]:
        """Return query and columns with timestamps of the connection's zone as instants."""
        from ematix_flow.plan.timezones import zoned

        dialect, names = self.system.dialect, [column.name for column in self.columns]
        sendable = [column for column in self.columns if self.system.timezone is None or column.family != "timestamp"]
        sql = relation_sql(self.table_name, names, conditions_sql(self.conditions, sendable, dialect), dialect)
        return zoned(sql, self.columns, self.system.timezone, dialect)


@dataclass(frozen=True, slots=True)
class FileInputPartition(ds.InputPartition):
    """A part of a file."""

    read: Callable[[], Iterator[pa.Table]]


@dataclass
class FileReader(ds.DataSourceReader):
    """Reads files partition by partition; texts stay texts, and a malformed line is an error."""

    folder: str
    files: FileSet

    @property
    def schema(self) -> pa.Schema:
        """Return the layout of the rows."""
        from ematix_flow.run.read.arrow_frames import file_schema

        return file_schema(self.files)

    def partitions(self) -> Sequence[ds.InputPartition]:
        """Return the partitions of the files."""
        from ematix_flow.run.read.file_partitions import split_files

        # Spark calls this in a process without a session; partitions are small enough for many slots anyway.
        splits = split_files(self.files, strict=True, slots=lambda: os.cpu_count() or 1)
        return [FileInputPartition(split.read) for split in splits]

    def read(self, partition: ds.InputPartition) -> Iterator[Any]:
        """Read one partition, in a task."""
        from ematix_flow.run.read.arrow_frames import signed

        assert isinstance(partition, FileInputPartition)  # noqa: S101 - our own
        with suppress(OSError):
            os.chdir(self.folder)
        names = [column.name for column in self.files.columns]
        for table in partition.read():
            yield from signed(table.select(names)).to_batches()


_COMPARED: dict[type[ds.Filter], str] = {
    ds.EqualTo: "=",
    ds.LessThan: "<",
    ds.LessThanOrEqual: "<=",
    ds.GreaterThan: ">",
    ds.GreaterThanOrEqual: ">=",
}


def _condition(spark_filter: ds.Filter) -> Condition | None:
    """Return a filter of Spark as a condition; None for those that are sent to no system."""
    attribute: tuple[str, ...] = getattr(spark_filter, "attribute", ())
    if len(attribute) != 1:
        return None
    if isinstance(spark_filter, ds.IsNotNull):
        return Condition(attribute[0], NOT_NULL)
    if isinstance(spark_filter, ds.In):
        return Condition(attribute[0], IN, tuple(value for value in spark_filter.value if value is not None))
    operator = _COMPARED.get(type(spark_filter))
    return None if operator is None else Condition(attribute[0], operator, (getattr(spark_filter, "value", None),))

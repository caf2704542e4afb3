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
_PLACES = ("table", "query", "path")
_OPTIONS = ("connection", *_PLACES, "columns", "format")


def register(spark: SparkSession, connections: Mapping[str, Connection], away: Away | None = None) -> None:
    """Let a session read these connections as `spark.read.format("ematix")`; `away` is where its tasks run, if not here."""
    # A class of its own: pickled with what it carries, where a class of this module would be looked up by its name.
    known = {"connections": dict(connections), "folder": os.getcwd(), "away": away}  # noqa: PTH109 - the text travels
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(type("EmatixOfSession", (Ematix,), known))


class Ematix(ds.DataSource):
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
        asked = {str(name).lower(): str(value) for name, value in self.options.items()}
        _check(asked)
        system = open_system(self._connection(asked["connection"]))
        if isinstance(system, LakeSource):
            message = f"connection {asked['connection']!r} is a lake, which Spark reads itself"
            hint = "return SQL over its tables from the pipeline's function, or Source.sql(..., connections=...)."
            raise UnsupportedError(message, hint=hint)
        refuse_unread(self.away, system.read_paths)
        if isinstance(system, Files):
            return FileReader(self.folder, _files(system, asked))
        return DatabaseReader(self.folder, system, _place(system, asked), _columns(asked))

    def _connection(self, name: str) -> Connection:
        if name not in self.connections:
            message = f"this session knows no connection {name!r}"
            raise PlanError(message, hint=did_you_mean(name, self.connections))
        return self.connections[name]


def _check(asked: Mapping[str, str]) -> None:
    for name in asked:
        if name not in _OPTIONS:
            message = f"the format {FORMAT!r} has no option {name!r}"
            raise PlanError(message, hint=did_you_mean(name, _OPTIONS))
    if "connection" not in asked or sum(name in asked for name in _PLACES) != 1:
        message = f"the format {FORMAT!r} needs the option connection, and one of table, query and path"
        raise PlanError(message, hint='for example .option("connection", "pg").option("table", "shop.orders").')


def _columns(asked: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns that are wanted, in their order; none where all are."""
    given = asked.get("columns", "").strip()
    if given.startswith("["):
        return tuple(map(str, json.loads(given)))
    return tuple(name.strip() for name in given.split(",")) if given else ()


def _files(system: Files, asked: Mapping[str, str]) -> FileSet:
    from dataclasses import replace

    if "query" in asked:
        message = f"connection {asked['connection']!r} has files, which answer no query"
        raise PlanError(message, hint="name them by path, and query the frame.")
    path = asked.get("path", asked.get("table", ""))
    files = system.file_set(path, {"format": asked["format"]} if "format" in asked else {})
    wanted = _columns(asked)
    return replace(files, columns=_chosen(files.columns, wanted)) if wanted else files


def _chosen(columns: Sequence[SourceColumn], wanted: Sequence[str]) -> tuple[SourceColumn, ...]:
    known = {column.name: column for column in columns}
    for name in wanted:
        if name not in known:
            message = f"the source has no column {name!r}"
            raise PlanError(message, hint=did_you_mean(name, known))
    return tuple(known[name] for name in wanted)


def _place(system: SqlSource, asked: Mapping[str, str]) -> TableName | str:
    if "path" in asked:
        message = f"connection {asked['connection']!r} is a database, which has no path"
        raise PlanError(message, hint='name a table: .option("table", "schema.name").')
    if "query" in asked:
        return asked["query"].strip().rstrip(";")
    schema, _, name = asked["table"].rpartition(".")
    return system.place(schema, name)


@dataclass(frozen=True, slots=True)
class SqlPartition(ds.InputPartition):
    """A whole relation of a database."""

    sql: str


@dataclass
class DatabaseReader(ds.DataSourceReader):
    """Reads a table or query of a database; conditions are sent along as far as the database means the same by them."""

    folder: str
    system: SqlSource
    place: TableName | str
    wanted: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()

    @cached_property
    def columns(self) -> tuple[SourceColumn, ...]:
        """Return the columns that are read, as the database describes them."""
        from ematix_flow.plan.sql.render import native_name

        dialect = self.system.dialect
        place = self.place if isinstance(self.place, str) else native_name(self.place, dialect)
        sql = place if isinstance(self.place, str) else f"SELECT * FROM {place}"
        with closing(self.system.session()) as session:
            columns = self.system.describe(session, sql)
        return _chosen(columns, self.wanted) if self.wanted else columns

    @property
    def schema(self) -> pa.Schema:
        """Return the layout of the rows."""
        return relation_schema(self._zoned()[1])

    def pushFilters(self, filters: list[ds.Filter]) -> Iterable[ds.Filter]:  # noqa: N802 - as Spark calls it
        """Keep what the database can be asked for; Spark tests all of it again."""
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
        sql = relation_sql(self.place, names, conditions_sql(self.conditions, sendable, dialect), dialect)
        return zoned(sql, self.columns, self.system.timezone, dialect)


@dataclass(frozen=True, slots=True)
class PiecePartition(ds.InputPartition):
    """A part of a file."""

    read: Callable[[], Iterator[pa.Table]]


@dataclass
class FileReader(ds.DataSourceReader):
    """Reads files piece by piece; texts stay texts, and a malformed line is an error."""

    folder: str
    files: FileSet

    @property
    def schema(self) -> pa.Schema:
        """Return the layout of the rows."""
        from ematix_flow.run.read.arrow_frames import file_schema

        return file_schema(self.files)

    def partitions(self) -> Sequence[ds.InputPartition]:
        """Return the pieces of the files."""
        from ematix_flow.run.read.file_partitions import file_pieces

        # Spark calls this in a process without a session; pieces are small enough for many slots anyway.
        pieces = file_pieces(self.files, strict=True, slots=lambda: os.cpu_count() or 1)
        return [PiecePartition(piece.read) for piece in pieces]

    def read(self, partition: ds.InputPartition) -> Iterator[Any]:
        """Read one piece, in a task."""
        from ematix_flow.run.read.arrow_frames import signed

        assert isinstance(partition, PiecePartition)  # noqa: S101 - our own
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


def _condition(given: ds.Filter) -> Condition | None:
    """Return a filter of Spark as a condition; None for those that no system is asked for."""
    attribute: tuple[str, ...] = getattr(given, "attribute", ())
    if len(attribute) != 1:
        return None
    if isinstance(given, ds.IsNotNull):
        return Condition(attribute[0], NOT_NULL)
    if isinstance(given, ds.In):
        return Condition(attribute[0], IN, tuple(value for value in given.value if value is not None))
    word = _COMPARED.get(type(given))
    return None if word is None else Condition(attribute[0], word, (getattr(given, "value", None),))

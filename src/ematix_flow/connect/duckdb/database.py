"""DuckDB: one file, one process; tasks stage Parquet parts and the driver loads exactly the named ones."""

from __future__ import annotations

import re
import shutil
import tempfile
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import duckdb

from ematix_flow.connect.base.columns import ColumnSchema, SourceColumn, TableName, TableSchema
from ematix_flow.connect.base.session import Opened, Split
from ematix_flow.connect.duckdb import DUCKDB
from ematix_flow.connect.duckdb.existing_types import DuckDBTypes
from ematix_flow.connect.duckdb.session import open_file, open_memory
from ematix_flow.connect.staging.file_database import FileDatabase
from ematix_flow.connect.staging.parquet import (
    process_folder,
)
from ematix_flow.connect.types.arrow import REJECTS
from ematix_flow.connect.types.digits import digits_of
from ematix_flow.connect.types.fingerprint import format_fingerprint, qualified, shortest, sum_sql
from ematix_flow.connect.types.identifiers import quoted, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.stage import StageColumn, StageSpec, WorkTable
    from ematix_flow.connect.duckdb.session import DuckDBSession
    from ematix_flow.declare.table.types import ColumnType
    from ematix_flow.records import TaskReport

READ_ROWS = 65_536

_TYPES = {
    "small_int": "SMALLINT",
    "integer": "INTEGER",
    "big_int": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "text": "VARCHAR",
    "string": "VARCHAR",
    "json": "JSON",
    "jsonb": "JSON",
    "uuid": "UUID",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamp_tz": "TIMESTAMP WITH TIME ZONE",
    "bytes": "BLOB",
}

_FAMILIES = {
    "BOOLEAN": "boolean",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP WITH TIME ZONE": "timestamp_tz",
    "BLOB": "binary",
    "UUID": "uuid",
    "JSON": "json",
    "FLOAT": "float",
    "DOUBLE": "float",
    "VARCHAR": "text",
}


class DuckDB(FileDatabase):
    """A DuckDB file, or a database in this process's memory."""

    kind = "duckdb"
    dialect = "duckdb"
    existing = DuckDBTypes()
    capabilities = DUCKDB.capabilities

    @property
    def read_paths(self) -> tuple[str, ...]:
        """Return the file, and the folder of its rows for tasks, which cannot open it while this process has it."""
        return (self.path, tempfile.gettempdir())

    @property
    def errors(self) -> tuple[type[BaseException], ...]:
        """Return the driver's exceptions."""
        return (duckdb.Error,)

    def probe(self) -> str:
        """Open the file and return what it is."""
        session = self.read_only_session() if self.exists() else self.session()
        try:
            tables = session.query("SELECT COUNT(*) FROM duckdb_tables() WHERE database_name = current_database()")
        finally:
            session.close()
        return f"DuckDB {duckdb.__version__}, {self.display_path}, {tables[0][0]} tables"

    def session(self) -> DuckDBSession:
        """Open the file, waiting a while for another process to release it."""
        if self.in_memory:
            return open_memory(self.name)
        Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        return open_file(self.path)

    def read_only_session(self) -> DuckDBSession:
        """Open the file read-only, which other readers may do at the same time; one held by a writer is an error."""
        return open_memory(self.name) if self.in_memory else open_file(self.path, read_only=True, wait=0)

    def confined_session(self) -> DuckDBSession:
        """Open the file read-only in an instance that reaches nothing else; memory has no instance but that of the loads."""
        if self.in_memory:
            return self.read_only_session()
        return open_file(self.path, read_only=True, confined=True, wait=0)

    def is_transient(self, error: BaseException) -> bool:
        """Return True for a conflict with a concurrent transaction."""
        return isinstance(error, duckdb.TransactionException) and "onflict" in str(error)

    def is_duplicate_key(self, error: BaseException) -> bool:
        """Return whether a unique constraint was violated, at once or by a duplicate that committed first."""
        return isinstance(error, (duckdb.ConstraintException, duckdb.TransactionException)) and bool(
            re.search("duplicate key", str(error), re.IGNORECASE)
        )

    # Tables

    def table_name(self, schema: str, name: str) -> TableName:
        """DuckDB has real schemas."""
        return TableName(schema, name)

    def metadata_table(self, name: str) -> TableName:
        """Our own tables live in the schema ematix_flow."""
        return TableName("ematix_flow", name)

    def ddl_type(self, column_type: ColumnType, *, in_key: bool = False) -> str:
        """Return the DDL type."""
        del in_key
        if column_type.kind == "numeric":
            precision, scale = digits_of(column_type)
            return f"DECIMAL({precision},{scale})"
        return _TYPES[column_type.kind]

    def check_clause(self, column: StageColumn) -> str:
        """Check the length of text: DuckDB reads VARCHAR(n) as VARCHAR."""
        length = getattr(column.type, "length", None)
        return f"length({quoted(column.name)}) <= {length}" if length else ""

    def create_schema(self, session: Session, schema: str) -> None:
        """Create the schema when it is missing."""
        session.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")

    def find_table(self, session: Session, table: TableName) -> TableSchema | None:
        """Describe a table from DuckDB's catalog functions."""
        where = "database_name = current_database() AND schema_name = ? AND"
        parameters = (table.schema or "main", table.name)
        rows = session.query(
            "SELECT column_name, data_type, is_nullable FROM duckdb_columns() "
            f"WHERE {where} table_name = ? ORDER BY column_index",
            parameters,
        )
        if not rows:
            return None
        constraints = session.query(
            f"SELECT constraint_type, constraint_column_names FROM duckdb_constraints() WHERE {where} table_name = ? "
            "AND constraint_type IN ('PRIMARY KEY', 'UNIQUE') ORDER BY constraint_index",
            parameters,
        )
        views = session.query(f"SELECT 1 FROM duckdb_views() WHERE {where} view_name = ?", parameters)
        primary = next((tuple(c) for kind, c in constraints if kind == "PRIMARY KEY"), ())
        return TableSchema(
            columns=tuple(ColumnSchema(n, t, bool(null)) for n, t, null in rows),
            primary_key=primary,
            unique=tuple(tuple(columns) for kind, columns in constraints if kind == "UNIQUE"),
            problem="it is a view" if views else "",
        )

    def fingerprint(self, session: Session, table: TableName, columns: Sequence[str]) -> str:
        """Add up a hash of every row, in whatever order they come; a column that is widened keeps its part."""
        existing = self.find_table(session, table)
        native = {column.name: column.type for column in existing.columns} if existing is not None else {}
        row = ", ".join(_lasting(native.get(name, ""), quoted(name)) for name in columns)
        return format_fingerprint(session.query(sum_sql(qualified(table), f"HASH({row})")))

    def widening(self, existing: str, declared: str) -> bool:
        """Return True when integers and floats grow, or decimals gain digits on either side of the point."""
        ladders = (("SMALLINT", "INTEGER", "BIGINT"), ("FLOAT", "DOUBLE"))
        for ladder in ladders:
            if existing in ladder and declared in ladder:
                return ladder.index(existing) < ladder.index(declared)
        sizes = [re.fullmatch(r"DECIMAL\((\d+),\s*(\d+)\)", name) for name in (existing, declared)]
        if not all(sizes):
            return False
        (p1, s1), (p2, s2) = ((int(m[1]), int(m[2])) for m in sizes if m)
        return (p1, s1) != (p2, s2) and s2 >= s1 and p2 - s2 >= p1 - s1

    def alter_type_sql(self, table: str, column: str, declared: str, *, nullable: bool) -> str:
        """Return the statement that widens a column."""
        del nullable
        return f"ALTER TABLE {table} ALTER COLUMN {column} SET DATA TYPE {declared}"

    # Reading

    def describe(self, session: Session, sql: str) -> tuple[SourceColumn, ...]:
        """Return the query's columns from DuckDB without running it."""
        rows = session.query(f"DESCRIBE {sql}")
        return tuple(SourceColumn(str(name), _family(str(native)), str(native)) for name, native, *_ in rows)

    def interchange(self, column: SourceColumn, expression: str) -> str:
        """Read as text what Parquet has no type for."""
        if column.family in ("uuid", "json", "other"):
            return f"CAST({expression} AS VARCHAR)"
        return expression

    def open_read(self, session: Session, sql: str, parallel: int) -> Opened:
        """Write the rows to Parquet files, because no other process can open the file while this one has it."""
        del parallel
        folder = process_folder() / f"read-{uuid.uuid4().hex}"
        options = "FORMAT parquet, PER_THREAD_OUTPUT true, COMPRESSION lz4"
        session.execute(f"COPY (\n{self._exact(session, sql)}\n) TO {text(str(folder))} ({options})")
        files = sorted(folder.glob("*.parquet"))
        return Opened(tuple(Split(sql=sql, snapshot=str(file)) for file in files), resources=_removed_after(folder))

    def _exact(self, session: Session, sql: str) -> str:
        """Return the query with every column in its interchange form, whatever SQL of the user made of it."""
        columns = self.describe(session, sql)
        forms = [self.interchange(column, quoted(column.name)) for column in columns]
        if all(form == quoted(column.name) for form, column in zip(forms, columns, strict=True)):
            return sql
        listed = ", ".join(f"{form} AS {quoted(c.name)}" for form, c in zip(forms, columns, strict=True))
        return f"SELECT {listed} FROM (\n{sql}\n) AS _read"

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Read one of the files."""
        import pyarrow.parquet as pq

        with pq.ParquetFile(split.snapshot) as file:
            yield from file.iter_batches(READ_ROWS)

    def read_in_order(self, session: Session, sql: str) -> Iterator[pa.RecordBatch]:
        """Read the rows in this process, which needs no copy of them."""
        relation: Any = cast("DuckDBSession", session).connection.sql(self._exact(session, sql))
        yield from relation.to_arrow_reader(READ_ROWS)

    # Staging

    def staged_relation(self, session: Session, spec: StageSpec, reports: Sequence[TaskReport]) -> str:
        """Read exactly the named files."""
        del session
        types = {column.name: self.ddl_type(column.type) for column in spec.columns}
        return _relation([report.path for report in reports if report.path], types)

    def reject_relation(self, session: Session, spec: StageSpec, reports: Sequence[TaskReport]) -> str:
        """Read exactly the named reject files."""
        del session, spec
        return _relation(
            [report.reject_path for report in reports if report.reject_path], dict.fromkeys(REJECTS.names, "VARCHAR")
        )

    def create_work_table(self, session: Session, table: WorkTable, incarnation: str) -> str:
        """Create a temporary table; it ends with the connection."""
        del incarnation
        columns = ", ".join(f"{quoted(c.name)} {self.ddl_type(c.type)}" for c in table.columns)
        session.execute(f"CREATE OR REPLACE TEMP TABLE {quoted(table.name)} ({columns})")
        return quoted(table.name)


def _family(native: str) -> str:
    if native.startswith("DECIMAL"):
        return "decimal"
    if native in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"):
        return "integer"
    return "timestamp" if native.startswith("TIMESTAMP_") else _FAMILIES.get(native, "other")


def _lasting(native: str, name: str) -> str:
    """Return a value so that its hash outlives a wider type."""
    match _family(native):
        case "integer":
            return f"CAST({name} AS BIGINT)"
        case "float":
            return f"CAST({name} AS DOUBLE)"
        case "decimal":
            return shortest(f"CAST({name} AS VARCHAR)")
    return name


def _relation(files: Sequence[str], types: Mapping[str, str]) -> str:
    """Return the rows of the files in these types; without a file, a relation without rows."""
    if not files:
        nothing = ", ".join(f"CAST(NULL AS {type_name}) AS {quoted(name)}" for name, type_name in types.items())
        return f"(SELECT {nothing} WHERE FALSE)"
    columns = ", ".join(f"CAST({quoted(name)} AS {type_name}) AS {quoted(name)}" for name, type_name in types.items())
    return f"(SELECT {columns} FROM read_parquet([{', '.join(text(file) for file in files)}]))"


@contextmanager
def _removed_after(folder: Path) -> Iterator[None]:
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)

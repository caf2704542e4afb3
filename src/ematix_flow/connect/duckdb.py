"""DuckDB: one file, one process; tasks stage Parquet parts and the driver loads exactly the named ones."""

from __future__ import annotations

import os
import re
import shutil
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from ematix_flow.connect.base import (
    ALL_MODES,
    Capabilities,
    Database,
    FoundColumn,
    FoundTable,
    Opened,
    Session,
    SourceColumn,
    Split,
    StageSpec,
    TableName,
)
from ematix_flow.connect.parts import ParquetStager, check_parts
from ematix_flow.errors import TransientError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from ematix_flow.connect.base import Stager, WorkTable
    from ematix_flow.declare.connection import DuckDBConnection
    from ematix_flow.declare.types import ColumnType
    from ematix_flow.records import Part

LOCK_WAIT_SECONDS = 30.0
READ_ROWS = 65_536
CATALOG = "flow_file"

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

_MEMORY: dict[str, duckdb.DuckDBPyConnection] = {}
"""Databases that live in this process only, by connection name."""


class DuckDBSession(Session):
    """A connection to the file; closed right after use, because it locks out every other process."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, *, owned: bool) -> None:
        self.connection = connection
        self._owned = owned

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        """Run a statement; DuckDB gives the changed rows as a one-row result."""
        result = self.connection.execute(sql, list(parameters))
        if result.description and result.description[0][0] == "Count":
            row = result.fetchone()
            return int(row[0]) if row else 0
        return 0

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a query and give its rows."""
        return self.connection.execute(sql, list(parameters)).fetchall()

    def begin(self) -> None:
        """Open a transaction."""
        self.connection.execute("BEGIN TRANSACTION")

    def commit(self) -> None:
        """Commit."""
        self.connection.execute("COMMIT")

    def rollback(self) -> None:
        """Roll back; without an open transaction there is nothing to do."""
        try:
            self.connection.execute("ROLLBACK")
        except duckdb.Error:
            return

    def close(self) -> None:
        """Give the file back to other processes."""
        if self._owned:
            self.connection.close()


class DuckDB(Database):
    """A DuckDB file, or a database in this process's memory."""

    kind = "duckdb"
    dialect = "duckdb"
    capabilities = Capabilities(
        modes=ALL_MODES,
        source=True,
        guarantee="exactly once, for one process at a time on one host",
        transactional_ddl=True,
        enforces_types=False,
    )

    def __init__(self, connection: DuckDBConnection) -> None:
        self.name = connection.name
        self.path = connection.path
        self.timezone = getattr(connection, "timezone", None)

    @property
    def in_memory(self) -> bool:
        """True when no other process can see the data."""
        return self.path == ":memory:"

    @property
    def errors(self) -> tuple[type[BaseException], ...]:
        """Give the driver's exceptions."""
        return (duckdb.Error,)

    def identity(self) -> tuple[str, ...]:
        """Two connections are the same database when they open the same file."""
        return ("duckdb", self.name if self.in_memory else os.path.realpath(self.path))

    def info(self) -> Mapping[str, object]:
        """Give the file under `dbname`; DuckDB has no host."""
        return {"host": None, "port": None, "dbname": self.path, "user": None}

    def session(self) -> DuckDBSession:
        """Open the file, waiting a while for another process to give it back."""
        if self.in_memory:
            shared = _MEMORY.setdefault(self.name, duckdb.connect(":memory:"))
            return DuckDBSession(_prepared(shared.cursor()), owned=False)
        Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        return DuckDBSession(_prepared(self._open(read_only=False)), owned=True)

    def exists(self) -> bool:
        """Say whether the file is there."""
        return self.in_memory or Path(self.path).exists()

    def look(self) -> DuckDBSession:
        """Open the file read-only, which other readers may do at the same time; one held by a writer is an error."""
        if self.in_memory:
            return self.session()
        try:
            return DuckDBSession(_prepared(duckdb.connect(self.path, read_only=True)), owned=True)
        except duckdb.ConnectionException:
            # This process has the file open for writing, and DuckDB wants all its connections to be alike.
            return self.session()
        except duckdb.IOException as error:
            raise (_held(self.path, error) if "lock" in str(error).lower() else error) from None

    def _open(self, *, read_only: bool) -> duckdb.DuckDBPyConnection:
        deadline = time.monotonic() + LOCK_WAIT_SECONDS
        while True:
            try:
                return _attached(self.path, read_only=read_only)
            except duckdb.IOException as error:
                if "lock" not in str(error).lower():
                    raise
                if time.monotonic() > deadline:
                    raise _held(self.path, error) from None
                time.sleep(0.2)

    def is_transient(self, error: BaseException) -> bool:
        """A conflict with a concurrent transaction may be tried again."""
        return isinstance(error, duckdb.TransactionException) or "conflict" in str(error).lower()

    def is_duplicate_key(self, error: BaseException) -> bool:
        """Say whether a unique constraint was violated."""
        return isinstance(error, duckdb.ConstraintException) and "uplicate" in str(error)

    # Tables

    def place(self, schema: str, name: str) -> TableName:
        """DuckDB has real schemas."""
        return TableName(schema, name)

    def bookkeeping(self, name: str) -> TableName:
        """Our own tables live in the schema ematix_flow."""
        return TableName("ematix_flow", name)

    def ddl_type(self, column_type: ColumnType, *, in_key: bool = False) -> str:
        """Give the DDL type."""
        del in_key
        if column_type.kind == "numeric":
            return f"DECIMAL({getattr(column_type, 'precision', 0)},{getattr(column_type, 'scale', 0)})"
        return _TYPES[column_type.kind]

    def check_clause(self, column: Any) -> str:
        """DuckDB reads VARCHAR(n) as VARCHAR, so the length needs a check."""
        length = getattr(column.type, "length", None)
        return f'length("{column.name.replace(chr(34), chr(34) * 2)}") <= {length}' if length else ""

    def create_schema(self, session: Session, schema: str) -> None:
        """Create the schema when it is missing."""
        session.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema.replace(chr(34), chr(34) * 2)}"')

    def find_table(self, session: Session, table: TableName) -> FoundTable | None:
        """Describe a table from DuckDB's catalog functions."""
        where = "schema_name = ? AND table_name = ? AND database_name = current_database()"
        rows = session.query(
            f"SELECT column_name, data_type, is_nullable FROM duckdb_columns() WHERE {where} ORDER BY column_index",
            (table.schema or "main", table.name),
        )
        if not rows:
            return None
        constraints = session.query(
            f"SELECT constraint_type, constraint_column_names FROM duckdb_constraints() WHERE {where} "
            "AND constraint_type IN ('PRIMARY KEY', 'UNIQUE') ORDER BY constraint_index",
            (table.schema or "main", table.name),
        )
        primary = next((tuple(c) for kind, c in constraints if kind == "PRIMARY KEY"), ())
        return FoundTable(
            columns=tuple(FoundColumn(n, t, bool(null)) for n, t, null in rows),
            primary_key=primary,
            unique=tuple(tuple(columns) for kind, columns in constraints if kind == "UNIQUE"),
        )

    def widening(self, found: str, wanted: str) -> bool:
        """Integers and floats grow, decimals gain digits on both sides of the point."""
        ladders = (("SMALLINT", "INTEGER", "BIGINT"), ("FLOAT", "DOUBLE"))
        for ladder in ladders:
            if found in ladder and wanted in ladder:
                return ladder.index(found) < ladder.index(wanted)
        sizes = [re.fullmatch(r"DECIMAL\((\d+),\s*(\d+)\)", text) for text in (found, wanted)]
        if not all(sizes):
            return False
        (p1, s1), (p2, s2) = ((int(m[1]), int(m[2])) for m in sizes if m)
        return s2 >= s1 and p2 - s2 >= p1 - s1

    def alter_type_sql(self, table: str, column: str, wanted: str, *, nullable: bool) -> str:
        """Give the statement that widens a column."""
        del nullable
        return f"ALTER TABLE {table} ALTER COLUMN {column} SET DATA TYPE {wanted}"

    # Reading

    def describe(self, session: Session, sql: str) -> tuple[SourceColumn, ...]:
        """Ask DuckDB for the query's columns without running it."""
        rows = session.query(f"DESCRIBE {sql}")
        return tuple(SourceColumn(str(name), _family(str(native)), str(native)) for name, native, *_ in rows)

    def interchange(self, column: SourceColumn, expression: str) -> str:
        """DuckDB speaks Arrow; only its own types need words."""
        if column.family in ("uuid", "json", "other") or column.native == "HUGEINT":
            return f"CAST({expression} AS VARCHAR)"
        return expression

    def open_read(self, session: Session, sql: str, parallel: int) -> Opened:
        """One split: separate processes could see different states of the file."""
        del parallel
        if self.in_memory:
            return Opened((Split(sql=_export(session, sql), snapshot="parquet"),))
        return Opened((Split(sql=sql),), keep_open=nullcontext())

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Read one split through a read-only connection."""
        if split.snapshot == "parquet":
            import pyarrow.parquet as pq

            yield from pq.ParquetFile(split.sql).iter_batches(READ_ROWS)
            return
        connection = self._open(read_only=True)
        try:
            connection.execute("SET TimeZone = 'UTC'")
            yield from connection.execute(split.sql).to_arrow_reader(READ_ROWS)
        finally:
            connection.close()

    # Staging

    def open_stage(self, session: Session, spec: StageSpec) -> StageSpec:
        """Make a folder beside the file that only this load writes to."""
        from dataclasses import replace

        folder = self.stage_root() / spec.name
        folder.mkdir(mode=0o700, parents=True)
        return replace(spec, folder=str(folder))

    def stage_root(self) -> Path:
        """Give the folder of all stagings of this database."""
        if self.in_memory:
            import tempfile

            return Path(tempfile.gettempdir()) / f"ematix-flow-{os.getuid()}" / "stage"
        return Path(os.path.realpath(self.path) + ".flow_stage")

    def stager(self, spec: StageSpec, partition: int, attempt: int) -> Stager:
        """Write Parquet parts named by attempt."""
        return ParquetStager(spec, partition, attempt)

    def verify_stage(self, session: Session, spec: StageSpec, parts: Sequence[Part]) -> None:
        """Compare the rows in each named file with its report."""
        del session
        check_parts(spec, parts)

    def staged_relation(self, session: Session, spec: StageSpec, parts: Sequence[Part]) -> str:
        """Read exactly the named files."""
        del session
        columns = ", ".join(_staged_column(c.name, self.ddl_type(c.type)) for c in spec.columns)
        files = [part.path for part in parts if part.path]
        if not files:
            return f"(SELECT {columns.replace(' AS ', ' AS ')} FROM (SELECT {_nulls(spec)}) WHERE FALSE)"
        return f"(SELECT {columns} FROM read_parquet([{_file_list(files)}]))"

    def reject_relation(self, session: Session, spec: StageSpec, parts: Sequence[Part]) -> str:
        """Read exactly the named reject files."""
        del session, spec
        files = [part.reject_path for part in parts if part.reject_path]
        return f"(SELECT * FROM read_parquet([{_file_list(files)}]))" if files else ""

    def drop_stage(self, session: Session, spec: StageSpec) -> None:
        """Remove the load's folder."""
        del session
        shutil.rmtree(self.stage_root() / spec.name, ignore_errors=True)

    def stages(self, session: Session) -> Iterable[tuple[str, float]]:
        """List the folders with their age."""
        del session
        root = self.stage_root()
        if root.is_dir():
            now = time.time()
            for entry in root.iterdir():
                yield entry.name, now - entry.stat().st_mtime

    def create_work_table(self, session: Session, table: WorkTable, incarnation: str) -> str:
        """Create a temporary table; it ends with the connection."""
        del incarnation
        columns = ", ".join(f'"{c.name}" {self.ddl_type(c.type)}' for c in table.columns)
        session.execute(f'CREATE OR REPLACE TEMP TABLE "{table.name}" ({columns})')
        return f'"{table.name}"'


def _attached(path: str, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    """Open the file under a fixed catalog name: its own would clash with a schema that is called like the file."""
    connection = duckdb.connect(":memory:")
    try:
        mode = " (READ_ONLY)" if read_only else ""
        connection.execute(f"ATTACH {_text(path)} AS {CATALOG}{mode}")
        connection.execute(f"USE {CATALOG}")
    except duckdb.Error:
        connection.close()
        raise
    return connection


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _prepared(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET preserve_insertion_order = false")
    return connection


def _held(path: str, error: BaseException) -> TransientError:
    pid = re.search(r"PID (\d+)", str(error))
    holder = f"process {pid[1]}" if pid else "another process"
    message = f"the DuckDB file {path} is held by {holder}"
    return TransientError(message, hint="DuckDB lets one process write at a time: close the other one and run again.")


def _family(native: str) -> str:
    if native.startswith("DECIMAL"):
        return "decimal"
    if native in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"):
        return "integer"
    return "timestamp" if native.startswith("TIMESTAMP_") else _FAMILIES.get(native, "other")


def _staged_column(name: str, ddl_type: str) -> str:
    quoted = '"' + name.replace('"', '""') + '"'
    return f"CAST({quoted} AS {ddl_type}) AS {quoted}"


def _nulls(spec: StageSpec) -> str:
    return ", ".join('NULL AS "' + c.name.replace('"', '""') + '"' for c in spec.columns)


def _file_list(files: Sequence[str]) -> str:
    return ", ".join(_text(file) for file in files)


def _export(session: Session, sql: str) -> str:
    """Write an in-memory query to a file, since no task could see it otherwise."""
    import tempfile
    import uuid

    path = Path(tempfile.gettempdir()) / f"ematix-flow-read-{uuid.uuid4().hex}.parquet"
    session.execute(f"COPY ({sql}) TO '{path}' (FORMAT parquet)")
    return str(path)

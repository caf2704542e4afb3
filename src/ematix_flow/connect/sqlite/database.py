"""SQLite: one file, one writer at a time; tasks stage Parquet parts and the driver loads exactly the named ones."""

from __future__ import annotations

import sqlite3
import uuid
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ematix_flow.connect.base.columns import TableName
from ematix_flow.connect.base.session import Opened, Split
from ematix_flow.connect.sqlite import SQLITE
from ematix_flow.connect.sqlite import catalog as sqlite_catalog
from ematix_flow.connect.sqlite import types as sqlite_types
from ematix_flow.connect.sqlite.existing_types import SQLiteTypes
from ematix_flow.connect.sqlite.session import (
    BUSY,
    DEFINE,
    is_duplicate,
    open_file,
    open_memory,
    open_reader,
    primary_code,
)
from ematix_flow.connect.sqlite.values import batch_of, rows_of
from ematix_flow.connect.staging.file_database import FileDatabase
from ematix_flow.connect.staging.parquet import (
    batches,
    changed,
    process_folder,
)
from ematix_flow.connect.types.arrow import REJECTS
from ematix_flow.connect.types.fingerprint import format_fingerprint
from ematix_flow.connect.types.identifiers import listed, quoted, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from ematix_flow.connect.base.columns import SourceColumn, TableSchema
    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.stage import StageColumn, StageSpec, WorkTable
    from ematix_flow.connect.sqlite.session import SQLiteSession
    from ematix_flow.declare.table.types import ColumnType
    from ematix_flow.records import TaskReport

READ_ROWS = 65_536

STAGED_ROWS = "_flow_stage_rows"
STAGED_REJECTS = "_flow_stage_rejects"

_AWAY = (*BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM)


class SQLite(FileDatabase):
    """An SQLite file, or a database in this process's memory."""

    kind = "sqlite"
    dialect = "sqlite"
    existing = SQLiteTypes()
    capabilities = SQLITE.capabilities

    @property
    def errors(self) -> tuple[type[BaseException], ...]:
        """Return the driver's exceptions."""
        return (sqlite3.Error,)

    def probe(self) -> str:
        """Open the file and return what it is."""
        session = self.read_only_session() if self.exists() else self.session()
        try:
            tables = session.query("SELECT COUNT(*) FROM main.sqlite_master WHERE type = 'table'")[0][0]
        finally:
            session.close()
        return f"SQLite {sqlite3.sqlite_version}, {self.display_path}, {tables} tables"

    def session(self) -> SQLiteSession:
        """Open the database; a missing file is created."""
        if self.in_memory:
            return open_memory(self.name)
        Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        return open_file(Path(self.path))

    def read_only_session(self) -> SQLiteSession:
        """Open the file that is there; it may be read while another process writes."""
        return open_memory(self.name) if self.in_memory else open_file(Path(self.path), create=False)

    def confined_session(self) -> SQLiteSession:
        """Open the file so that no other one can be attached to it."""
        session = self.read_only_session()
        session.connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        return session

    def is_transient(self, error: BaseException) -> bool:
        """Return True for locks and a full disk: they may be gone later."""
        return isinstance(error, sqlite3.Error) and primary_code(error) in _AWAY

    def is_duplicate_key(self, error: BaseException) -> bool:
        """Return whether a unique constraint was violated."""
        return is_duplicate(error)

    # Tables

    def table_name(self, schema: str, name: str) -> TableName:
        """SQLite has no schemas: any but `main` becomes a prefix."""
        return TableName("", name if schema in ("", "main") else f"{schema}_{name}")

    def metadata_table(self, name: str) -> TableName:
        """Our own tables have a prefix."""
        return TableName("", f"ematix_flow_{name}")

    def ddl_type(self, column_type: ColumnType, *, in_key: bool = False) -> str:
        """Return the DDL type."""
        del in_key
        return sqlite_types.ddl_type(column_type)

    def check_clause(self, column: StageColumn) -> str:
        """Check everything: SQLite would take any value in any column."""
        return sqlite_types.check_clause(column)

    def same_type(self, existing: str, declared: str) -> bool:
        """Compare types; a plain INTEGER is wide enough for every whole number."""
        return sqlite_types.same_type(existing, declared)

    def widening(self, existing: str, declared: str) -> bool:
        """Return True when whole numbers grow: SQLite stores all of them alike, and only a condition has to change."""
        return sqlite_types.widens(existing, declared)

    def alter_type_sql(self, table: str, column: str, declared: str, *, nullable: bool) -> str:
        """Return the statement that puts a wider condition into the definition of the table, as SQLite's manual has it."""
        wider = text(sqlite_types.integer_definition(column, declared, nullable=nullable))
        sql = "sql"
        for type_name in sqlite_types.INTEGERS:
            narrow = sqlite_types.integer_definition(column, type_name, nullable=nullable)
            sql = f"replace({sql}, {text(narrow)}, {wider})"
        name = table[1:-1].replace('""', '"')
        return f"{DEFINE} SET sql = {sql} WHERE type = 'table' AND name = {text(name)}"

    def fingerprint(self, session: Session, table: TableName, columns: Sequence[str]) -> str:
        """Add up a hash of every row, in whatever order they come."""
        sql = f"SELECT COUNT(*), flow_fingerprint({listed(columns)}) FROM main.{quoted(table.name)}"
        return format_fingerprint(session.query(sql))

    def create_schema(self, session: Session, schema: str) -> None:
        """Do nothing: a schema is only a prefix here."""

    def find_table(self, session: Session, table: TableName) -> TableSchema | None:
        """Describe a table."""
        return sqlite_catalog.find_table(session, table.name, bounds=True)

    # Reading

    def table_names(self, session: Session) -> list[tuple[str, str]]:
        """Return the tables and views; SQLite has no schemas."""
        rows = session.query("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        return [("", str(name)) for (name,) in rows]

    def describe(self, session: Session, sql: str) -> tuple[SourceColumn, ...]:
        """Return the columns of a query."""
        return sqlite_catalog.describe(session, sql)

    def interchange(self, column: SourceColumn, expression: str) -> str:
        """Rows are read as SQLite stores them, which loses nothing."""
        del column
        return expression

    def open_read(self, session: Session, sql: str, parallel: int) -> Opened:
        """One split, because one statement sees one state; a database in memory is copied for the tasks to see."""
        del parallel
        if not self.in_memory:
            return Opened((Split(sql=sql),))
        copy = process_folder() / f"read-{uuid.uuid4().hex}.sqlite"
        with closing(sqlite3.connect(copy)) as target:
            _sqlite_session(session).connection.backup(target)
        return Opened((Split(sql=sql, snapshot=str(copy)),), resources=_removed_after(copy))

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Read one split through a connection that cannot write."""
        connection = open_reader(Path(split.snapshot or self.path))
        try:
            cursor = connection.execute(split.sql)
            names = [column[0] for column in cursor.description]
            while rows := cursor.fetchmany(READ_ROWS):
                yield batch_of(names, rows)
        finally:
            connection.close()

    # Staging

    def staged_relation(self, session: Session, spec: StageSpec, reports: Sequence[TaskReport]) -> str:
        """Load the named files into a temporary table of this session."""
        table = _temporary(session, STAGED_ROWS, [f"{quoted(c.name)} {self.ddl_type(c.type)}" for c in spec.columns])
        rows = 0
        for batch in batches(spec, [report.path for report in reports if report.path]):
            rows += _sqlite_session(session).fill(table, len(spec.columns), rows_of(batch, spec.columns))
        if rows != sum(report.rows for report in reports):
            raise changed(spec, f"rows loaded: {rows}, but staged: {sum(report.rows for report in reports)}")
        _index(session, STAGED_ROWS, [column.name for column in spec.columns if column.in_key])
        return table

    def reject_relation(self, session: Session, spec: StageSpec, reports: Sequence[TaskReport]) -> str:
        """Load the named reject files into a temporary table of this session."""
        table = _temporary(session, STAGED_REJECTS, [f"{quoted(name)} TEXT" for name in REJECTS.names])
        for batch in batches(spec, [report.reject_path for report in reports if report.reject_path]):
            rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            _sqlite_session(session).fill(table, len(REJECTS), rows)
        return table

    def create_work_table(self, session: Session, table: WorkTable, incarnation: str) -> str:
        """Create a temporary table; it ends with the session."""
        del incarnation
        name = _temporary(session, table.name, [f"{quoted(c.name)} {self.ddl_type(c.type)}" for c in table.columns])
        # SQLite makes no index of its own for a look-up inside EXISTS.
        _index(session, table.name, table.key or [column.name for column in table.columns if column.in_key])
        return name

    def explain(self, session: Session, sql: str) -> None:
        """Have SQLite compile a query without running it."""
        session.query(f"EXPLAIN QUERY PLAN {sql}")


def _sqlite_session(session: Session) -> SQLiteSession:
    return cast("SQLiteSession", session)


def _temporary(session: Session, name: str, columns: Sequence[str]) -> str:
    session.execute(f"DROP TABLE IF EXISTS temp.{quoted(name)}")
    session.execute(f"CREATE TEMP TABLE {quoted(name)} ({', '.join(columns)})")
    return f"temp.{quoted(name)}"


def _index(session: Session, table: str, names: Sequence[str]) -> None:
    if names:
        session.execute(f"CREATE INDEX temp.{quoted(f'{table}_key')} ON {quoted(table)} ({listed(names)})")


@contextmanager
def _removed_after(copy: Path) -> Iterator[None]:
    try:
        yield
    finally:
        copy.unlink(missing_ok=True)

"""Tables of a run log in a database: their DDL in each dialect, and columns that older ones lack; no row is read."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from ematix_flow.commit.runlog import legacy_files as legacy
from ematix_flow.commit.runlog.records import KINDS, columns_of
from ematix_flow.connect.types.identifiers import backticked, quoted
from ematix_flow.records import RunRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ematix_flow.connect.base.session import Session

RUNS = "run_records"
RUN_COLUMNS = tuple(field.name for field in fields(RunRecord))
_NUMBERS = frozenset({"attempt", "rows_inserted", "rows_updated", "rows_deleted", "rows_rejected"})
_RUN_DEFAULTS = {"attempt": "1", "kind": "'batch'", "target": "''", "extras": "'{}'"}
_NEEDED = frozenset({"run_id", "pipeline", "status", "started_at"})
_RUN_INDEXES = {
    "started": ("started_at", "run_id"),
    "pipeline": ("pipeline", "started_at", "run_id"),
    "status": ("status", "started_at", "run_id"),
    "request": ("request_id", "target"),
}
"""The newest runs of everything, of a pipeline and of a status, and the attempts at a target: each by an index alone."""

_SHORT = frozenset(column for index in _RUN_INDEXES.values() for column in index)
_TEXT = {"sqlite": "TEXT", "postgres": "TEXT", "duckdb": "VARCHAR", "mysql": "LONGTEXT"}
_SHORT_TEXT = {**_TEXT, "mysql": "VARCHAR(255)"}
_MYSQL_OPTIONS = " ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables in one database: their schema and its dialect."""

    dialect: str
    schema: str = ""
    prefix: str = ""

    def quote(self, name: str) -> str:
        """Return the quoted name of a column or a table."""
        return backticked(name) if self.dialect == "mysql" else quoted(name)

    def name(self, table: str) -> str:
        """Return the SQL name of a table."""
        own = self.quote(f"{self.prefix}{table}")
        return f"{self.quote(self.schema)}.{own}" if self.schema else own

    def columns(self, names: tuple[str, ...]) -> str:
        """Return names of columns as a list."""
        return ", ".join(self.quote(name) for name in names)

    # What there should be

    def expected(self) -> dict[str, dict[str, str]]:
        """Return every table with its columns, each with its type and its default."""
        tables = {kind.table: {n: self._type(n, w, n in kind.key) for n, w in columns_of(kind)} for kind in KINDS}
        tables[RUNS] = {name: self._run_type(name) for name in RUN_COLUMNS}
        return tables

    def _type(self, name: str, type_name: str, in_key: bool) -> str:  # noqa: FBT001 - of a column
        if name == "version":
            return "BIGINT NOT NULL DEFAULT 1"
        if type_name != "str":
            return "BIGINT"
        return f"{_SHORT_TEXT[self.dialect]} NOT NULL" if in_key else _TEXT[self.dialect]

    def _run_type(self, name: str) -> str:
        kind = "BIGINT" if name in _NUMBERS else (_SHORT_TEXT if name in _SHORT else _TEXT)[self.dialect]
        default = _RUN_DEFAULTS.get(name)
        if default and kind != "LONGTEXT":  # which takes none
            kind = f"{kind} DEFAULT {default}"
        return f"{kind} NOT NULL" if name in _NEEDED else kind

    def ddl(self) -> list[str]:
        """Return the statements that create everything that is missing."""
        schema = [f"CREATE SCHEMA IF NOT EXISTS {self.quote(self.schema)}"] if self.schema else []
        tables = [self._create(table, columns) for table, columns in self.expected().items()]
        return [*schema, *tables, *self._indexes()]

    def _create(self, table: str, columns: Mapping[str, str]) -> str:
        key = next((kind.key for kind in KINDS if kind.table == table), ("run_id",))
        lines = [f"{self.quote(name)} {kind}" for name, kind in columns.items()]
        lines.append(f"PRIMARY KEY ({self.columns(key)})")
        if self.dialect == "mysql" and table == RUNS:
            lines += [f"INDEX {self.quote(n)} ({self.columns(c)})" for n, c in _RUN_INDEXES.items()]
        options = _MYSQL_OPTIONS if self.dialect == "mysql" else ""
        inside = ",\n  ".join(lines)
        return f"CREATE TABLE IF NOT EXISTS {self.name(table)} (\n  {inside}\n){options}"

    def _indexes(self) -> Iterator[str]:
        # DuckDB cannot replace a row whose indexed columns change, and reads a column quickly without any.
        if self.dialect in ("sqlite", "postgres"):
            for name, columns in _RUN_INDEXES.items():
                own = self.quote(f"{self.prefix}{RUNS}_{name}")
                yield f"CREATE INDEX IF NOT EXISTS {own} ON {self.name(RUNS)} ({self.columns(columns)})"

    # What there is

    def missing(self, session: Session) -> list[str]:
        """Return what is missing, as `table` or `table.column`."""
        existing = self.existing(session)
        return [
            table if table not in existing else f"{table}.{column}"
            for table, columns in self.expected().items()
            for column in (columns if table in existing else [""])
            if table not in existing or column not in existing[table]
        ]

    def existing(self, session: Session) -> dict[str, set[str]]:
        """Return the columns of the tables that are there."""
        if self.dialect == "sqlite":
            sql, values = (
                "SELECT m.name, p.name FROM sqlite_master m, pragma_table_info(m.name) p WHERE m.type = 'table'",
                (),
            )
            return self._by_table(session.query(sql, values))
        schema = {"postgres": "?", "duckdb": "?", "mysql": "DATABASE()"}[self.dialect]
        catalog = " AND table_catalog = current_database()" if self.dialect == "duckdb" else ""
        sql = f"SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = {schema}{catalog}"
        return self._by_table(session.query(sql, (self.schema,) if self.schema else ()))

    def _by_table(self, rows: list[tuple[str, str]]) -> dict[str, set[str]]:
        tables: dict[str, set[str]] = {}
        for table, column in rows:
            if table.startswith(self.prefix):
                tables.setdefault(table.removeprefix(self.prefix), set()).add(column)
        return tables

    def complete(self, session: Session) -> None:
        """Create every table and column that is missing; indexes too."""
        before = self.existing(session)
        if self.dialect == "sqlite":
            legacy.prepare(session, before, self._create("requests", self.expected()["requests"]))
        existing = self.existing(session)
        for table, columns in self.expected().items():
            for column in columns.keys() - existing.get(table, columns.keys()):
                added = columns[column].replace(" NOT NULL", "") if column != "version" else columns[column]
                session.execute(f"ALTER TABLE {self.name(table)} ADD COLUMN {self.quote(column)} {added}")
        if self.schema and not existing and not self._has_schema(session):
            session.execute(self.ddl()[0])
        for statement in self.ddl()[1 if self.schema else 0 :]:
            session.execute(statement)
        if self.dialect == "sqlite" and "pipeline_state" not in before:
            legacy.take_over(session, before)

    def _has_schema(self, session: Session) -> bool:
        """Return whether the schema is there: where it is, no right to create one is needed."""
        catalog = "pg_namespace WHERE nspname" if self.dialect == "postgres" else "duckdb_schemas() WHERE schema_name"
        return bool(session.query(f"SELECT 1 FROM {catalog} = ?", (self.schema,)))

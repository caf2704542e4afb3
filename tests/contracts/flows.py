"""Pipelines for contract tests: a source table and a target table in one database, loaded by the engine.

The same flow takes either path: inside the database, or staged by the engine of the run (`--contract-engine`).
"""

from __future__ import annotations

import uuid
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.clock import Clock
from ematix_flow.commit.ledger import Ledger, parse_instant
from ematix_flow.connect.base.stage import StageColumn
from ematix_flow.connect.registry import open_database
from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.table.types import Boolean, Bytes, TimestampTZ
from ematix_flow.engine import Options, run_pipeline
from ematix_flow.plan.sql.ddl import ColumnDefinition, TableDefinition, create_table_sql
from ematix_flow.plan.sql.render import native_column, native_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from ematix_flow.connect.base.database import Database
    from ematix_flow.connect.base.session import Session
    from ematix_flow.declare.connection.registry import Connection
    from ematix_flow.declare.table.schema import Column, Table
    from ematix_flow.declare.table.types import ColumnType
    from ematix_flow.run_log import RunLog

Row = dict[str, Any]

START = datetime(2026, 1, 1, tzinfo=UTC)
VERSION = {"valid_from": TimestampTZ(), "valid_to": TimestampTZ(), "is_current": Boolean(), "row_hash": Bytes()}


@dataclass
class Flow:
    """A pipeline from a source table into a target table of the same database; each run is an hour after the last."""

    connection: Connection
    table: Table
    write: Row
    path: str
    spark: Any
    run_log: RunLog
    name: str = "flow"
    source: tuple[Column, ...] = ()
    """The source's columns, where they are not those of the target."""
    declared: Row = field(default_factory=dict)
    """Options of the pipeline that do not belong to its write."""
    query: str = ""
    """The source query, where it is not the whole source table."""
    count: int = 0
    held: Session | None = None
    """A session for what the test itself does, which saves it a connection each time."""
    slept: list[float] = field(default_factory=list)
    """How long the engine waited before it tried again."""
    origin: Connection | None = None
    """The database of the source, where it is not the one of the target."""

    def __post_init__(self) -> None:
        self.source = self.source or self.table.columns
        self.given = open_database(self.origin or self.connection)
        self.database: Database = self.given
        columns = tuple(ColumnDefinition(StageColumn(c.name, c.type), nullable=True) for c in self.source)
        self.source_table = self.given.table_name(self.table.schema, f"src_{self.table.name}"[:50])
        with self._session() as session:
            if self.given.find_table(session, self.source_table) is None:
                self.given.create_schema(session, self.source_table.schema)
                session.execute(create_table_sql(TableDefinition(self.source_table, columns, (), ()), self.given))

    # Names

    @property
    def source_name(self) -> str:
        return native_name(self.source_table, self.given.dialect)

    @property
    def target_name(self) -> str:
        return native_name(self.database.table_name(self.table.schema, self.table.name), self.database.dialect)

    def metadata_name(self, table: str) -> str:
        return Ledger(self.database).name(table)

    # Source

    def give(self, rows: Sequence[Row]) -> None:
        """Make these the rows of the source."""
        self.execute(f"DELETE FROM {self.source_name}")
        self.add(rows)

    def add(self, rows: Sequence[Row]) -> None:
        """Add rows to the source."""
        names = ", ".join(native_column(column.name, self.given.dialect) for column in self.source)
        placeholders = ", ".join(f"({', '.join('?' for _ in self.source)})" for _ in rows)
        values = [self._given(row.get(column.name), column.type.kind) for row in rows for column in self.source]
        if rows:
            with self._session() as session:
                session.execute(f"INSERT INTO {self.source_name} ({names}) VALUES {placeholders}", values)

    def _given(self, value: Any, kind: str) -> Any:
        """Return a value as every driver takes it: numbers and moments as text in the database's own spelling."""
        if isinstance(value, datetime):
            zone = "+00:00" if kind == "timestamp_tz" and self.given.kind != "mysql" else ""
            return value.replace(tzinfo=None).isoformat(" ", "microseconds") + zone
        if isinstance(value, Decimal):
            return format(value, "f")
        return str(value) if isinstance(value, date) else value

    # Runs

    @property
    def target(self) -> TargetDeclaration:
        return TargetDeclaration(self.table, write(**self.write), self.connection)

    @property
    def pipeline(self) -> Pipeline:
        force = "same_db" if self.path == "same_db" else "cross_db" if self.origin is None else None
        sql = self.query or f"SELECT * FROM {self.source_name}"
        source = self.origin or self.connection
        created = Pipeline(self.name, lambda: sql, (self.target,), source_connection=source, force_path=force)
        return replace(created, **self.declared)

    def now(self) -> datetime:
        return START + timedelta(hours=self.count)

    def run(self, rows: Sequence[Row] | None = None, *, slot: str | None = None) -> Row:
        """Load the source, or these rows as the source, under a slot of its own or the one given."""
        if rows is not None:
            self.give(rows)
        self.count += 1
        return run_pipeline(self.pipeline, self.options(slot))  # type: ignore[no-any-return]

    def options(self, slot: str | None = None) -> Options:
        clock = Clock(now=self.now, wait=lambda _, seconds: bool(self.slept.append(seconds)))
        slot = slot or f"slot-{self.count}-{uuid.uuid4().hex}"
        return Options(slot=slot, run_log=self.run_log, clock=clock, spark=self.spark)

    # What is there afterwards

    def _session(self) -> AbstractContextManager[Session]:
        return closing(self.given.session()) if self.held is None else nullcontext(self.held)

    def execute(self, *statements: str) -> None:
        with self._session() as session:
            for statement in statements:
                session.execute(statement)

    def select(self, sql: str) -> list[tuple[Any, ...]]:
        with self._session() as session:
            return session.query(sql)

    def rows(self, **more: ColumnType) -> list[Row]:
        """Return the target's rows in the declared types, in the order of their keys."""
        types = {column.name: column.type for column in self.table.columns} | more
        names = ", ".join(native_column(name, self.database.dialect) for name in types)
        stored_rows = self.select(f"SELECT {names} FROM {self.target_name}")
        rows = [{n: plain(v, types[n]) for n, v in zip(types, row, strict=True)} for row in stored_rows]
        keys = [*self.table.primary_key, *(["valid_from"] if "valid_from" in more else [])]
        return sorted(rows, key=lambda row: [row[key] for key in keys])

    def versions(self) -> list[Row]:
        """Return the versions of an scd2 target."""
        return self.rows(**VERSION)

    def stamps(self) -> dict[Any, tuple[datetime, str]]:
        """Return when and by which load each row was last written, by the first key column."""
        key = native_column(self.table.primary_key[0], self.database.dialect)
        rows = self.select(f"SELECT {key}, _loaded_at, _batch_id FROM {self.target_name}")
        return {row[0]: (parse_instant(row[1]), str(row[2])) for row in rows}

    def points(self, name: str) -> list[Row]:
        """Return the rows of one of our own tables, in the order in which they were begun."""
        from ematix_flow.plan.metadata_tables import _TABLES

        types = {column: kind for column, kind, _ in _TABLES[name]}
        names = ", ".join(native_column(column, self.database.dialect) for column in types)
        stored_rows = self.select(f"SELECT {names} FROM {self.metadata_name(name)}")
        rows = [{n: plain(v, types[n]) for n, v in zip(types, row, strict=True)} for row in stored_rows]
        order = {"ledger": "committed_at", "run_history": "started_at", "rejects": "reject_id"}.get(name, "updated_at")
        return sorted(rows, key=lambda row: str(row.get(order)))


_PLAIN: dict[str, Callable[[Any], Any]] = {
    "timestamp_tz": parse_instant,
    "timestamp": lambda value: parse_instant(value).replace(tzinfo=None),
    "date": lambda value: date.fromisoformat(str(value)),
    "boolean": bool,
    "bytes": bytes,
    "uuid": str,
}
"""How a value of a kind becomes what Python calls it, whatever the driver gave."""


def plain(value: Any, kind: ColumnType) -> Any:
    """Return a value that a driver returned as Python has it."""
    if value is None:
        return None
    if kind.kind == "numeric":
        return Decimal(str(value)).quantize(Decimal(1).scaleb(-getattr(kind, "scale", 0)), context=Context(76))
    return _PLAIN.get(kind.kind, lambda as_it_is: as_it_is)(value)


in_and_out = pytest.mark.parametrize("path", ["staged", "same_db"])
"""Runs a test with staging and inside the database."""

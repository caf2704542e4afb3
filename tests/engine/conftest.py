"""A warehouse with two source rows on each database, for tests that only ask what a load would do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from ematix_flow import BigInt, Text, pk, register_connection  # noqa: TC001 - read from annotations
from ematix_flow.clock import Clock
from ematix_flow.commit.runlog.open import forgotten_run_log
from ematix_flow.connect.registry import system_of
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.decorators import ematix
from ematix_flow.engine import Options
from tests.engine.schedules import Rig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ematix_flow.connect.base.database import Database
    from ematix_flow.declare.pipeline.pipeline import Pipeline

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SYSTEMS = (
    "duckdb",
    "sqlite",
    pytest.param("postgres", marks=pytest.mark.service),
    pytest.param("mysql", marks=pytest.mark.service),
)


@dataclass(frozen=True, slots=True)
class Warehouse:
    """One database under the connection name `warehouse`."""

    kind: str
    database: Database
    orders: str
    """The name of the source table in SQL."""
    target: str
    """The name of the target table in SQL."""

    def run(self, *statements: str) -> None:
        """Execute statements."""
        session = self.database.session()
        try:
            for statement in statements:
                session.execute(statement)
        finally:
            session.close()

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        session = self.database.session()
        try:
            return session.query(sql)
        finally:
            session.close()

    def everything(self) -> list[tuple[Any, ...]]:
        """Return every schema and table there is, with the number of its rows."""
        if self.kind == "sqlite":
            names = [(name,) for (name,) in self.rows("SELECT name FROM sqlite_master WHERE type = 'table'")]
        else:
            schemas = self.rows("SELECT schema_name FROM information_schema.schemata")
            rows = self.rows("SELECT table_schema, table_name FROM information_schema.tables")
            system = ("information_schema", "mysql", "performance_schema", "sys")
            # PostgreSQL keeps the empty schemas of temporary tables.
            names = [name for name in (*schemas, *rows) if name[0] not in system and not name[0].startswith("pg_")]
        tables = [name for name in names if self.kind == "sqlite" or len(name) > 1]
        quote_char = "`" if self.kind == "mysql" else '"'
        quoted = [".".join(f"{quote_char}{part}{quote_char}" for part in name) for name in tables]
        return [*sorted(names), *sorted((t, self.rows(f"SELECT COUNT(*) FROM {t}")[0][0]) for t in quoted)]


@pytest.fixture(params=SYSTEMS)
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    """Return the warehouse on each system in turn."""
    return create_warehouse(request.param, request, tmp_path)


@pytest.fixture
def duck(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    """Return the warehouse on DuckDB, for what does not depend on the system."""
    return create_warehouse("duckdb", request, tmp_path)


def create_warehouse(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    """Return an open database of this kind with the source table in it."""
    if kind in ("postgres", "mysql"):
        fields = {"kind": kind, "url": request.getfixturevalue(f"{kind}_url")}
    else:
        fields = {"kind": kind, "path": str(tmp_path / f"warehouse.{kind}")}
    connection = register_connection(connection_from_fields("warehouse", fields))
    database: Database = system_of(connection)  # type: ignore[assignment]
    schema = database.info()["dbname"] if kind == "mysql" else "raw"
    named = {"sqlite": "raw_orders", "mysql": f"{schema}.raw_orders"}.get(kind, "raw.orders")
    target = {"sqlite": "mart_orders", "mysql": f"{schema}.orders"}.get(kind, "mart.orders")
    created = Warehouse(kind, database, named, target)
    create = f"CREATE TABLE {named} (id BIGINT, name VARCHAR(50))"
    schemas = ["CREATE SCHEMA raw"] if kind in ("duckdb", "postgres") else []
    created.run(*schemas, create, f"INSERT INTO {named} VALUES (1, 'a'), (2, 'b')")
    return created


@pytest.fixture
def rig() -> Rig:
    """Return a run log and a clock for tests of slots."""
    return Rig(forgotten_run_log())


@pytest.fixture
def fixed() -> Options:
    """Return options with a clock that stands still."""
    return Options(clock=Clock(now=lambda: NOW))


@pytest.fixture
def declare() -> Callable[..., Pipeline]:
    """Return the function that declares a pipeline from `raw.orders` into `mart.orders`."""

    def create(warehouse: Warehouse, sql: str | None = None, **options: Any) -> Pipeline:
        schema = warehouse.target.partition(".")[0] if warehouse.kind == "mysql" else "mart"

        @ematix.table(schema=schema, name="orders")
        class Orders:
            id: Annotated[BigInt, pk()]
            name: Text

        target = {} if "targets" in options else {"target": Orders, "mode": "merge"}

        @ematix.pipeline(**{"name": "load", "target_connection": "warehouse", **target, **options})
        def load(conn: Any) -> str:
            return sql or f"SELECT id, name FROM {warehouse.orders}"

        return load.pipeline

    return create

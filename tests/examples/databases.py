"""Databases as the examples' users see them: through their own drivers, not through the package under test."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import duckdb
import psycopg
import pymysql

CUSTOMERS = (
    (1, " Ada@Example.COM ", "Ada", "2026-01-01 00:00:00"),
    (2, "  ", "Bob", "2026-01-02 00:00:00"),
    (3, None, None, "2026-01-03 00:00:00"),
)
EVENTS = ((1, "opened", "2026-01-01 10:00:00"), (2, None, "2026-01-01 11:00:00"), (3, "closed", "2026-01-01 12:00:00"))


@dataclass(frozen=True)
class UserDatabase:
    """One database by its URL."""

    url: str

    @property
    def kind(self) -> str:
        """Return the scheme of the URL."""
        return urlsplit(self.url).scheme

    @property
    def instant(self) -> str:
        """Return the type of a column with instants."""
        return {"mysql": "DATETIME(6)", "sqlite": "TEXT"}.get(self.kind, "TIMESTAMPTZ")

    def table(self, name: str) -> str:
        """Return the name of a table where schemas are not schemas."""
        return name.replace(".", "_") if self.kind == "sqlite" else name

    def run(self, *statements: str) -> None:
        """Run statements, each on its own."""
        with closing(self._connect()) as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with closing(self._connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(sql)
            return [tuple(row) for row in cursor.fetchall()]

    def count(self, table: str) -> int:
        """Return the number of rows of a table."""
        return int(self.rows(f"SELECT COUNT(*) FROM {self.table(table)}")[0][0])

    def _connect(self) -> Any:
        parts = urlsplit(self.url)
        match parts.scheme:
            case "postgresql" | "postgres":
                return psycopg.connect(self.url, autocommit=True, options="-c timezone=UTC")
            case "mysql":
                return pymysql.connect(
                    host=parts.hostname,
                    port=parts.port or 3306,
                    user=parts.username,
                    password=parts.password or "",
                    database=parts.path.strip("/"),
                    autocommit=True,
                )
            case "duckdb":
                return duckdb.connect(parts.path.removeprefix("/"))
            case _:
                return sqlite3.connect(parts.path.removeprefix("/"), isolation_level=None)

    # What the examples read

    def schemas(self, *names: str) -> None:
        """Create schemas where there are such things."""
        if self.kind != "sqlite":
            self.run(*(f"CREATE SCHEMA IF NOT EXISTS {name}" for name in names))

    def create_customers(self, table: str = "raw.customers", name: str = "name") -> None:
        """Create and fill the table of customers."""
        self.run(
            f"CREATE TABLE {self.table(table)} "
            f"(customer_id BIGINT, email VARCHAR(256), {name} VARCHAR(256), updated_at {self.instant})"
        )
        for row in CUSTOMERS:
            self.add_customer(row, table)

    def add_customer(self, row: tuple[Any, ...], table: str = "raw.customers") -> None:
        """Add one customer."""
        self.run(f"INSERT INTO {self.table(table)} VALUES ({', '.join(map(literal, row))})")

    def create_events(self, table: str = "raw.events") -> None:
        """Create and fill the table of events."""
        self.run(f"CREATE TABLE {self.table(table)} (event_id BIGINT, name VARCHAR(256), received_at {self.instant})")
        for row in EVENTS:
            self.add_event(row, table)

    def add_event(self, row: tuple[Any, ...], table: str = "raw.events") -> None:
        """Add one event."""
        self.run(f"INSERT INTO {self.table(table)} VALUES ({', '.join(map(literal, row))})")


def literal(value: Any) -> str:
    """Return a value as SQL text."""
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, int) else f"'{value}'"

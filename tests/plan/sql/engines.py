"""Runs one shape on each of the five engines and gives Python values that can be compared."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from sqlglot import exp

from ematix_flow.connect.sqlite.functions import register
from ematix_flow.plan.sql.shape.query import read_columns, shape_query

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from ematix_flow.declare.table.class_body import Table

Rows = list[tuple[Any, ...]]

TYPES: dict[str, dict[str, str]] = {
    "text": {"mysql": "LONGTEXT CHARACTER SET utf8mb4", "spark": "STRING"},
    "integer": {"": "BIGINT"},
    "decimal": {"": "DECIMAL(20, 6)"},
    "float": {"": "DOUBLE PRECISION", "spark": "DOUBLE"},
    "boolean": {"": "BOOLEAN"},
    "date": {"": "DATE"},
    "timestamp": {"": "TIMESTAMP", "mysql": "DATETIME(6)", "spark": "TIMESTAMP_NTZ"},
    "timestamp_tz": {"": "TIMESTAMPTZ", "mysql": "DATETIME(6)", "sqlite": "TIMESTAMP", "spark": "TIMESTAMP"},
}


@dataclass(frozen=True, slots=True)
class Engine:
    """A dialect, and a function that puts rows into the relation `raw` and runs one query over it."""

    dialect: str
    run: Callable[[dict[str, str], Rows, str], Rows]

    def shape(self, table: Table, columns: dict[str, str], rows: Rows, **options: Any) -> list[dict[str, Any]]:
        """Return the shaped rows in the order of `i`, the first source column, with comparable values."""
        query = shape_query("SELECT * FROM raw", columns, table, self.dialect, **options)
        stored_rows = self.run(columns, rows, f"SELECT * FROM ({query.sql(self.dialect)}) AS s")
        names = [e.alias_or_name for e in query.expressions]
        kinds = {c.name: c.type.kind for c in table.columns}
        shaped = [{k: plain(v, kinds.get(k, "")) for k, v in zip(names, row, strict=True)} for row in stored_rows]
        return sorted(shaped, key=lambda row: row["i"])

    def failures(self, table: Table, columns: dict[str, str], rows: Rows, **options: Any) -> list[list[str]]:
        """Return, per row, the columns that could not be read."""
        read = read_columns(table, self.dialect, columns, **options)
        pairs = zip(table.column_names, read.values, strict=True)
        conditions = [(name, exp.or_(*value.failures)) for name, value in pairs if value.failures]
        flags = [
            exp.alias_(exp.Case(ifs=[exp.If(this=c, true=exp.Literal.number(1))]), n, quoted=True)
            for n, c in conditions
        ]
        query = exp.select(exp.column("i", quoted=True), *flags).from_("raw")
        shaped = sorted(self.run(columns, rows, query.sql(self.dialect)))
        return [[n for (n, _), bad in zip(conditions, row[1:], strict=True) if bad] for row in shaped]


def plain(value: Any, kind: str) -> Any:
    """Return a driver's value as the Python value that the declared type means."""
    if value is None:
        return None
    if kind in {"timestamp", "timestamp_tz"}:
        instant = datetime.fromisoformat(value) if isinstance(value, str) else value
        return instant.astimezone(UTC).replace(tzinfo=None) if instant.tzinfo else instant
    if kind == "date":
        return date.fromisoformat(value) if isinstance(value, str) else value
    if kind == "numeric":
        return Decimal(str(value))
    readers = {"boolean": bool, "big_int": int, "integer": int, "float": float, "uuid": str, "bytes": bytes}
    return readers[kind](value) if kind in readers else value


def ddl(columns: dict[str, str], dialect: str) -> str:
    """Return the column list of the relation `raw`."""
    types = {name: TYPES[family].get(dialect) or TYPES[family].get("", "TEXT") for name, family in columns.items()}
    quote = "`" if dialect in {"mysql", "spark"} else '"'
    return ", ".join(f"{quote}{name}{quote} {type_}" for name, type_ in types.items())


def _insert(columns: Sequence[str], placeholder: str) -> str:
    return f"INSERT INTO raw VALUES ({', '.join([placeholder] * len(columns))})"


def sqlite_engine() -> Engine:
    """Return SQLite in memory with our functions."""

    def run(columns: dict[str, str], rows: Rows, sql: str) -> Rows:
        with closing(sqlite3.connect(":memory:")) as connection:
            register(connection)
            connection.execute(f"CREATE TABLE raw ({ddl(columns, 'sqlite')})")
            flat = [tuple(_sqlite_value(v) for v in row) for row in rows]
            connection.executemany(_insert(list(columns), "?"), flat)
            return connection.execute(sql).fetchall()

    return Engine("sqlite", run)


def _sqlite_value(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat(" ") if isinstance(value, datetime) else value.isoformat()
    return str(value) if isinstance(value, Decimal) else value


def duckdb_engine() -> Engine:
    """Return DuckDB in memory, in a session whose zone is not UTC."""
    import duckdb

    def run(columns: dict[str, str], rows: Rows, sql: str) -> Rows:
        with closing(duckdb.connect(":memory:")) as connection:
            connection.execute("SET TimeZone = 'America/New_York'")
            connection.execute(f"CREATE TABLE raw ({ddl(columns, 'duckdb')})")
            connection.executemany(_insert(list(columns), "?"), rows)
            connection.execute(f"CREATE TABLE result AS {sql}")
            connection.execute("SET TimeZone = 'UTC'")
            return connection.execute("SELECT * FROM result").fetchall()

    return Engine("duckdb", run)


def postgres_engine(url: str) -> Engine:
    """Return PostgreSQL, in a session whose zone is not UTC."""
    import psycopg

    def run(columns: dict[str, str], rows: Rows, sql: str) -> Rows:
        with psycopg.connect(url) as connection, connection.cursor() as cursor:
            cursor.execute("SET TIME ZONE 'America/New_York'")
            cursor.execute(f"CREATE TEMPORARY TABLE raw ({ddl(columns, 'postgres')}) ON COMMIT DROP")
            cursor.executemany(_insert(list(columns), "%s"), rows)
            cursor.execute(f"CREATE TEMPORARY TABLE result ON COMMIT DROP AS {sql}")
            cursor.execute("SET TIME ZONE 'UTC'")
            return cursor.execute("SELECT * FROM result").fetchall()

    return Engine("postgres", run)


def mysql_engine(url: str) -> Engine:
    """Return MySQL or MariaDB; the query runs inside an INSERT, where strict mode makes every warning an error."""
    import pymysql

    parts = urlsplit(url)

    def run(columns: dict[str, str], rows: Rows, sql: str) -> Rows:
        address = {"host": parts.hostname, "port": parts.port, "user": parts.username, "password": parts.password or ""}
        connection = pymysql.connect(**address, database=parts.path.lstrip("/"), charset="utf8mb4")
        with closing(connection), connection.cursor() as cursor:
            cursor.execute("SET time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES'")
            cursor.execute(f"CREATE TEMPORARY TABLE raw ({ddl(columns, 'mysql')})")
            cursor.executemany(_insert(list(columns), "%s"), [tuple(_naive(v) for v in row) for row in rows])
            cursor.execute(f"CREATE TEMPORARY TABLE result AS {sql}")
            cursor.execute("SELECT * FROM result")
            return list(cursor.fetchall())

    return Engine("mysql", run)


def _naive(value: Any) -> Any:
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) and value.tzinfo else value


def spark_engine(session: SparkSession) -> Engine:
    """Return Spark; its results are collected as Arrow, which keeps instants apart from the driver's zone."""

    def run(columns: dict[str, str], rows: Rows, sql: str) -> Rows:
        session.createDataFrame(rows, ddl(columns, "spark")).createOrReplaceTempView("raw")
        table = session.sql(sql).toArrow()
        return [tuple(row.values()) for row in table.to_pylist()] if table.num_columns else []

    return Engine("spark", run)

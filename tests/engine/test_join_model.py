"""Random joins over two systems give the rows that one database gives which has both tables."""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack, closing
from random import Random
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from ematix_flow.connect.registry import system_of
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.engine.batch.inspect import wait_for
from ematix_flow.engine.batch.joins import Side, inspect_join, joined_frame
from ematix_flow.engine.spark.session import session_settings
from ematix_flow.run.spark.session import spark_session

if TYPE_CHECKING:
    from pathlib import Path

ORDERS = "(1, 1, 10.50, DATE '2026-01-01', 'a'), (2, 1, NULL, DATE '2026-01-02', NULL), (3, 2, 0.00, NULL, 'B'), (4, NULL, -1.25, DATE '2025-12-31', ''), (5, 9, 99.99, DATE '2026-01-02', 'b')"
CUSTOMERS = "(1, 'ada', 5), (2, NULL, 7), (3, 'Bob', NULL), (NULL, 'eve', 1)"
ATOMS = (
    "o.id > 1", "2 >= o.id", "o.amount > 0", "o.amount = 0.00", "o.amount < 10.5", "o.day >= DATE '2026-01-02'",
    "o.day BETWEEN DATE '2026-01-01' AND DATE '2026-01-31'", "o.note = 'B'", "o.note IN ('a', 'b', '')", "o.note < 'b'",
    "o.note IS NULL", "o.note IS NOT NULL", "c.rank > 4", "c.rank IS NULL", "c.rank IS NOT NULL", "c.name = 'ada'",
    "c.name IN ('Bob', 'eve')", "c.id <> 2", "NOT (o.id = 1)", "o.customer = c.rank", "c.id IN (1, 2)", "(o.id < 4 AND c.id > 0)",
)  # fmt: skip
JOINS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")


def query_of(random: Random) -> str:
    atoms = random.sample(ATOMS, random.randint(0, 3))
    where = f" WHERE {random.choice((' AND ', ' AND ', ' OR ')).join(atoms)}" if atoms else ""
    more = f" AND {random.choice(ATOMS)}" if random.random() < 0.4 else ""
    shown = random.choice(("o.id, c.name", "o.id, o.day, c.rank", "count(*) AS n, max(o.amount) AS top", "o.*, c.*"))
    return f"SELECT {shown} FROM a.orders o {random.choice(JOINS)} b.customers c ON o.customer = c.id{more}{where}"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("examples", [8, pytest.param(120, marks=pytest.mark.deep)])
def test_joins_give_what_one_database_gives(examples: int, tmp_path: Path) -> None:
    spark = spark_session(session_settings())
    sides = [
        Side(name, name, system_of(connection_from_fields(name, {"kind": kind, "path": str(tmp_path / name)})))
        for name, kind in (("a", "duckdb"), ("b", "sqlite"))
    ]
    layout = "(id BIGINT, customer BIGINT, amount DECIMAL(8, 2), day DATE, note VARCHAR)"
    with duckdb.connect(str(tmp_path / "a")) as database:
        database.execute(f"CREATE TABLE orders {layout}")
        database.execute(f"INSERT INTO orders VALUES {ORDERS}")
    with closing(sqlite3.connect(tmp_path / "b")) as lite, lite:
        lite.execute("CREATE TABLE customers (id INTEGER, name TEXT, rank INTEGER)")
        lite.execute(f"INSERT INTO customers VALUES {CUSTOMERS}")
    model = duckdb.connect()
    model.execute("CREATE SCHEMA a; CREATE SCHEMA b; CREATE TABLE b.customers (id BIGINT, name VARCHAR, rank BIGINT)")
    model.execute(f"CREATE TABLE a.orders {layout}")
    model.execute(f"INSERT INTO a.orders VALUES {ORDERS}; INSERT INTO b.customers VALUES {CUSTOMERS}")
    random, sent = Random(examples), 0  # noqa: S311 - examples, and the same ones every time
    for _ in range(examples):
        query = query_of(random)
        with ExitStack() as stack:
            inspection = inspect_join(query, sides, wait_for)
            sent += sum(" WHERE " in one.sql for one in inspection.tables)
            rows = [tuple(row) for row in joined_frame(spark, inspection, stack).collect()]
        assert in_order(rows) == in_order(model.execute(query).fetchall()), query
    assert sent


def in_order(rows: list[tuple[Any, ...]]) -> list[str]:
    return sorted(map(str, rows))

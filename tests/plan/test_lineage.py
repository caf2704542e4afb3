"""Where columns come from, read off the plans of real pipelines."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from ematix_flow import BigInt, Numeric, Text, ematix, pk  # noqa: TC001 - the decorator reads the annotations
from ematix_flow.declare.connection.registry import (
    DuckDBConnection,
    ObjectStoreLocalConnection,
    PostgresConnection,
    SQLiteConnection,
)
from ematix_flow.engine import Options, run_pipeline
from ematix_flow.events import RunPlanned
from ematix_flow.normalize import deduplicate_by, lower
from ematix_flow.observe.bus import Bus
from ematix_flow.plan.explain.lineage import DatasetLocation, _located, _table

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.events import Event, LoadFacts


@ematix.table(schema="main", name="sold")
class Sold:
    id: Annotated[BigInt, pk()]
    customer: Annotated[Text, lower()]
    amount: Numeric[10, 2]


@pytest.fixture
def shop(tmp_path: Path) -> SQLiteConnection:
    """Return a database with two tables."""
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE orders (id INTEGER, mail TEXT, price TEXT, country_id INTEGER)")
        database.execute("CREATE TABLE countries (id INTEGER, rate TEXT)")
        database.execute("INSERT INTO orders VALUES (1, 'Ada@Example.com', '2.50', 1)")
        database.execute("INSERT INTO countries VALUES (1, '1.2')")
    database.close()
    return SQLiteConnection(name="shop", path=str(path))


def planned(source: Any, target: Any, query: Any, **options: Any) -> LoadFacts:
    """Run a pipeline and return what its plan said; facts are asked for after the run, as observers do."""
    heard: list[Event] = []
    bus = Bus()
    bus.subscribe(heard.append)
    declare = ematix.pipeline(
        target=Sold, source_connection=source, target_connection=target, mode="append", name="sold", **options
    )
    run_pipeline(declare(lambda _: query).pipeline, Options(bus=bus))
    (plan,) = (event for event in heard if isinstance(event, RunPlanned))
    return plan.facts()


def origins_of(facts: LoadFacts) -> dict[str, set[tuple[str, str]]]:
    return {name: {(one.dataset.name, one.field) for one in origins} for name, origins in facts.origins.items()}


JOINED = """
WITH dear AS (SELECT o.id, o.mail, o.price, o.country_id FROM orders AS o WHERE o.price > 1)
SELECT d.id, d.mail AS customer, d.price * c.rate AS amount FROM dear AS d JOIN countries AS c ON c.id = d.country_id
"""


@pytest.mark.slow
def test_columns_go_through_joins_and_names_of_subqueries(shop: SQLiteConnection, tmp_path: Path) -> None:
    facts = planned(shop, DuckDBConnection(name="w", path=str(tmp_path / "w.duckdb")), JOINED)
    assert [one.name for one in facts.inputs] == ["main.countries", "main.orders"]
    assert {one.namespace for one in facts.inputs} == {f"sqlite://{tmp_path}/shop.db"}
    assert (facts.output.namespace, facts.output.name) == (f"duckdb://{tmp_path}/w.duckdb", "main.sold")
    assert facts.columns == (("id", "big_int"), ("customer", "text"), ("amount", "numeric"))
    assert origins_of(facts) == {
        "id": {("main.orders", "id")},
        "customer": {("main.orders", "mail")},
        "amount": {("main.orders", "price"), ("main.countries", "rate")},
    }


def test_a_star_and_a_map_of_columns_inside_one_database(shop: SQLiteConnection) -> None:
    facts = planned(shop, shop, "SELECT * FROM orders", column_map={"customer": "mail", "amount": "price || '0'"})
    assert origins_of(facts) == {
        "id": {("main.orders", "id")},
        "customer": {("main.orders", "mail")},
        "amount": {("main.orders", "price")},
    }


@pytest.mark.service
def test_names_of_postgres_are_folded_as_it_does(postgres_url: str) -> None:
    import psycopg

    with psycopg.connect(postgres_url, autocommit=True) as database:
        database.execute('CREATE TABLE "Orders" (ID bigint, "Mail" text, Price numeric(10, 2))')
        database.execute("INSERT INTO \"Orders\" VALUES (1, 'A', 2.5)")
    connection = PostgresConnection(name="place", url=postgres_url)
    query = 'SELECT Id, "Mail" AS customer, PRICE AS amount FROM public."Orders"'
    facts = planned(connection, connection, query, transforms_pre=[deduplicate_by("id", order_by="amount DESC")])
    assert {name: [(one.field, one.changed) for one in origins] for name, origins in facts.origins.items()} == {
        "id": [("id", False)],
        "customer": [("Mail", True)],
        "amount": [("price", False)],
    }
    assert [one.name.split(".", 1)[1] for one in facts.inputs] == ["public.Orders"]


@pytest.mark.spark
def test_spark_sql_over_folders(tmp_path: Path) -> None:
    for name in ("orders", "prices"):
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "a.csv").write_text("id,mail,price\n1,A,2.5\n")
    source = ObjectStoreLocalConnection(name="raw", path=str(tmp_path / "in"), format="csv")
    target = DuckDBConnection(name="w", path=str(tmp_path / "w.duckdb"))
    query = "SELECT o.id, o.mail AS customer, p.price AS amount FROM orders o JOIN prices p ON p.id = o.id"
    facts = planned(source, target, query)
    assert [one.name for one in facts.inputs] == [f"{tmp_path}/in/orders", f"{tmp_path}/in/prices"]
    assert origins_of(facts)["amount"] == {(f"{tmp_path}/in/prices", "price")}


def test_what_the_text_does_not_say_is_left_out(shop: SQLiteConnection) -> None:
    query = "SELECT o.id, mail AS customer, 1 AS amount FROM orders o JOIN countries c ON c.id = o.country_id"
    assert origins_of(planned(shop, shop, query)) == {"id": {("main.orders", "id")}}


@pytest.mark.slow
def test_files_into_a_folder(tmp_path: Path) -> None:
    (tmp_path / "in" / "orders").mkdir(parents=True)
    (tmp_path / "in" / "orders" / "a.csv").write_text("id,customer,amount\n1,A,2.5\n")
    (tmp_path / "out").mkdir()
    source = ObjectStoreLocalConnection(name="raw", path=str(tmp_path / "in"), format="csv")
    target = ObjectStoreLocalConnection(name="lake", path=str(tmp_path / "out"), format="parquet")
    facts = planned(source, target, "orders")
    assert [(one.namespace, one.name) for one in facts.inputs] == [("file", f"{tmp_path}/in/orders")]
    assert (facts.output.namespace, facts.output.name) == ("file", f"{tmp_path}/out/main/sold")
    assert origins_of(facts)["customer"] == {(f"{tmp_path}/in/orders", "customer")}


@pytest.mark.slow
def test_rows_in_memory_come_from_nowhere_known(tmp_path: Path) -> None:
    import pyarrow as pa

    rows = pa.table({"id": [1], "customer": ["a"], "amount": ["1.5"]})
    facts = planned(None, DuckDBConnection(name="w", path=str(tmp_path / "w.duckdb")), rows)
    assert (facts.inputs, facts.origins) == ((), {})


def test_names_of_datasets() -> None:
    postgres = DatasetLocation("postgres", "postgres", {"host": "db", "port": 5432, "dbname": "shop"})
    mysql = DatasetLocation("mysql", "mysql", {"host": "db", "port": 3306, "dbname": "shop"})
    inputs = [_table(postgres, "", "orders"), _table(postgres, "sales", "orders"), _table(mysql, "", "orders")]
    assert [(one.namespace, one.name) for one in inputs] == [
        ("postgres://db:5432", "shop.public.orders"),
        ("postgres://db:5432", "shop.sales.orders"),
        ("mysql://db:3306", "shop.orders"),
    ]
    inputs = [
        _located("s3://bucket/raw/", "orders"),
        _located("file:///data", "a", "b"),
        _located("gs://bucket", "x"),
        _located("s3a://bucket/x"),
    ]
    assert [(one.namespace, one.name) for one in inputs] == [
        ("s3://bucket", "raw/orders"), ("file", "/data/a/b"), ("gs://bucket", "x"), ("s3://bucket", "x"),
    ]  # fmt: skip

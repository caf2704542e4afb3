"""Loads that a test runs in a process of its own, over whatever Spark session the environment names."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Annotated

from ematix_flow import BigInt, Numeric, String, Text, TimestampTZ, ematix, pk
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.spark.parallelism import slots_of
from ematix_flow.engine.spark.session import session_for
from ematix_flow.normalize import lower, trim


@ematix.connection
class landing:
    kind = "files"
    path = "landing"
    format = "csv"


@ematix.connection
class raw:
    kind = "sqlite"
    path = "raw.db"


@ematix.connection
class warehouse:
    kind = "duckdb"
    path = "warehouse.duckdb"


@ematix.table(schema="shop")
class Orders:
    order_id: Annotated[BigInt, pk()]
    customer: Annotated[String[20], trim(), lower()]
    amount: Numeric[10, 2]


@ematix.table(schema="shop")
class Cities:
    city_id: Annotated[BigInt, pk()]
    name: Text | None


@ematix.table(schema="shop")
class Prices:
    sku: Annotated[Text, pk()]
    price: Numeric[10, 2]
    changed_at: TimestampTZ


@ematix.table(schema="shop")
class Frames:
    number: Annotated[BigInt, pk()]


@ematix.pipeline(
    target=Orders, source_connection="landing", target_connection="warehouse", mode="append", on_bad_row="reject"
)
def orders(files):
    return "orders.csv"


@ematix.pipeline(target=Cities, source_connection="raw", target_connection="warehouse", mode="merge")
def cities(conn):
    return "SELECT id AS city_id, name FROM cities"


@ematix.pipeline(
    target=Prices,
    source_connection="landing",
    target_connection="warehouse",
    mode="scd2",
    compare_columns=["price"],
    event_timestamp_column="changed_at",
)
def prices(files):
    return "SELECT sku, price, changed_at FROM source WHERE sku <> 'skip'"


@ematix.pipeline(target=Frames, target_connection="warehouse", mode="truncate")
def frames(spark):
    return spark.range(5).withColumnRenamed("id", "number")


def main() -> None:
    """Write the sources, run every pipeline and print the results."""
    Path("landing").mkdir()
    Path("landing/orders.csv").write_text("order_id,customer,amount\n1, ADA ,1.50\n2,bob,oops\n3,Eve,3\n")
    with sqlite3.connect("raw.db") as db:
        db.execute("CREATE TABLE cities (id INTEGER PRIMARY KEY, name TEXT)")
        db.execute("INSERT INTO cities VALUES (1, 'Bern'), (2, NULL)")
    results = {"orders": orders(), "cities": cities(), "frames": frames()}
    Path("landing/orders.csv").unlink()
    Path("landing/prices.csv").write_text(
        "sku,price,changed_at\nA,1,2026-01-01T00:00:00Z\nA,2,2026-01-02T00:00:00Z\nskip,9,2026-01-02T00:00:00Z\n"
    )
    results["prices"] = prices()
    results["slots"] = {"slots": slots_of(session_for(Options()))}
    print(json.dumps(results))


if __name__ == "__main__":
    main()

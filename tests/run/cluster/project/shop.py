"""Loads that a test runs on a cluster; everything that is not here is in the environment."""

from __future__ import annotations

import json
import os
from typing import Annotated

import labels
import pyarrow as pa
import pyarrow.compute as pc

from ematix_flow import BigInt, Double, Text, ematix, pk, udf
from ematix_flow.declare.connection.registry import connection_from_fields, register_connection

for _name, _fields in json.loads(os.environ["SHOP_CONNECTIONS"]).items():
    register_connection(connection_from_fields(_name, _fields))


@ematix.table(schema="public", name="orders")
class Orders:
    id: Annotated[BigInt, pk()]
    note: Text


@ematix.table(schema="public", name="priced")
class Priced:
    id: Annotated[BigInt, pk()]
    price: Double | None


@ematix.table(schema="public", name="labelled")
class Labelled:
    id: Annotated[BigInt, pk()]
    note: Text


@udf(args=("Float64",), returns="Float64")
def with_rate(prices: pa.Array) -> pa.Array:
    from pricing import RATE

    return pc.multiply(prices, RATE)


def add_labels(batches):
    for batch in batches:
        numbers = batch.column(0)
        yield pa.RecordBatch.from_arrays(
            [numbers, pa.array([labels.label(n.as_py()) for n in numbers])], ["id", "note"]
        )


@ematix.pipeline(target=Orders, source_connection="source", target_connection="target", mode="append")
def database(conn):
    return "SELECT id, note FROM orders"


@ematix.pipeline(
    target=Priced, source_connection="bucket", target_connection="target", mode="truncate", udfs=[with_rate]
)
def files(conn):
    return "SELECT id, with_rate(price) AS price FROM source"


@ematix.pipeline(target=Orders, source_connection="source", target_connection="duck", mode="merge", on_bad_row="reject")
def into_duckdb(conn):
    return "SELECT id, CASE WHEN id = 13 THEN NULL ELSE note END AS note FROM orders"


@ematix.pipeline(target=Priced, source_connection="bucket", target_connection="lite", mode="append")
def into_sqlite(conn):
    return "prices.csv"


@ematix.pipeline(target=Orders, source_connection="source", target_connection="outbox", mode="append")
def into_parquet(conn):
    return "SELECT id, note FROM orders"


@ematix.pipeline(target=Orders, source_connection="source", target_connection="lake", mode="append")
def into_delta(conn):
    return "SELECT id, note FROM orders WHERE id <= 600"


@ematix.pipeline(target=Orders, source_connection="source", target_connection="lake", mode="merge")
def merged_delta(conn):
    return "SELECT id, CASE WHEN id % 2 = 0 THEN 'even' ELSE note END AS note FROM orders"


@ematix.table(schema="public", name="copied")
class Copied:
    id: Annotated[BigInt, pk()]
    note: Text


@ematix.pipeline(target=Copied, source_connection="lake", target_connection="target", mode="append")
def from_delta(conn):
    return "SELECT id, note FROM public.orders"


@ematix.pipeline(target=Orders, source_connection="lite", target_connection="target", mode="append", name="from_sqlite")
def from_sqlite(conn):
    return "SELECT 1 AS id, 'x' AS note"


@ematix.pipeline(target=Labelled, target_connection="target", mode="merge")
def frame(spark):
    return spark.range(0, 10, 1, 2).mapInArrow(add_labels, "id long, note string")


@ematix.table(schema="public", name="framed")
class Framed:
    id: Annotated[BigInt, pk()]
    note: Text


@ematix.pipeline(target=Framed, target_connection="target", mode="append")
def as_frame(spark):
    orders = spark.read.format("ematix").option("connection", "source").option("table", "orders").load()
    return orders.where("id <= 10").select("id", "note")

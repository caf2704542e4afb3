"""A stream that a test runs on a cluster."""

from __future__ import annotations

import os
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc

from ematix_flow import BigInt, Double, Text, ematix, pk, udf
from ematix_flow.declare.connection.registry import connection_from_fields, register_connection

register_connection(
    connection_from_fields("events", {"kind": "kafka", "bootstrap_servers": os.environ["BROKERS"], "group_id": "g"})
)
register_connection(connection_from_fields("target", {"kind": "postgres", "url": os.environ["TARGET"]}))
register_connection(
    connection_from_fields("inbox", {"kind": "object_store_local", "path": "inbox", "format": "json_lines"})
)


@udf(args=("Float64",), returns="Float64")
def with_rate(prices: pa.Array) -> pa.Array:
    from pricing import RATE

    return pc.multiply(prices, RATE)


@ematix.table(schema="public", name="seen")
class Received:
    id: Annotated[BigInt, pk()]
    note: Text


@ematix.table(schema="public", name="rated")
class Rated:
    id: Annotated[BigInt, pk()]
    price: Double


@ematix.streaming_pipeline(
    source="events", source_query=os.environ["TOPIC"], target="target", target_table=Received, transform_on_error="dlq"
)
def plain(): ...


@ematix.streaming_pipeline(
    source="events",
    source_query=os.environ["TOPIC"],
    target="target",
    target_table=Rated,
    transform_sql="SELECT id, with_rate(CAST(price AS DOUBLE)) AS price FROM source",
    udfs=[with_rate],
    transform_on_error="dlq",
)
def priced(): ...


@ematix.streaming_pipeline(source="inbox", source_query="*.jsonl", target="target", target_table=Received)
def from_folder(): ...

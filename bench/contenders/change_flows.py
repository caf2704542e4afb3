"""The measured change data capture of this product: changes of a topic or of a log into a table that mirrors another one."""

from __future__ import annotations

import os
from typing import Annotated

from ematix_flow import CDC, ematix, pk
from ematix_flow.types import BigInt, Boolean, Double, Integer, Numeric, String, Text, TimestampTZ

TARGET = {"postgres": "dst", "delta": "lake", "duckdb": "file"}[os.environ["BENCH_CHANGE_TARGET"]]


@ematix.connection
class feed:
    """The broker of the bench."""

    kind = "kafka"
    bootstrap_servers = os.environ.get("BENCH_BROKER", "localhost:9092")


@ematix.connection
class log:
    """The log of the database with the source."""

    kind = "postgres_cdc"
    url = os.environ["BENCH_SRC_URL"]


@ematix.connection
class lake:
    """Delta tables in a folder."""

    kind = "delta_local"
    path = os.environ["BENCH_LAKE"]


@ematix.connection
class file:
    """A DuckDB file."""

    kind = "duckdb"
    path = os.environ["BENCH_DUCKDB"]


@ematix.table(schema="bench")
class Events:
    """Eight columns of mixed types."""

    id: Annotated[BigInt, pk()]
    customer: Integer
    name: Text
    code: String[40]
    amount: Numeric[12, 2]
    score: Double
    happened_at: TimestampTZ
    active: Boolean


@ematix.streaming_pipeline(
    source=os.environ.get("BENCH_CHANGE_SOURCE", "feed"),
    source_query=os.environ["BENCH_QUERY"],
    target=Events,
    target_connection=TARGET,
    cdc=CDC(),
    max_rows_per_batch=int(os.environ["BENCH_BATCH"]),
)
def changes():
    """Every change."""

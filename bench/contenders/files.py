"""The measured pipelines over files, big and tiny; only this product runs them."""

from typing import Annotated

from ematix_flow import BigInt, Boolean, Double, Integer, Numeric, String, Text, TimestampTZ, ematix, pk


@ematix.connection
class landing:
    """The folder with the files."""

    kind = "files"
    path = "${BENCH_FILES}"
    format = "${BENCH_FORMAT}"


@ematix.connection
class lake:
    """The DuckDB file."""

    kind = "duckdb"
    path = "${BENCH_DUCKDB}"


@ematix.connection
class delta:
    """The folder of Delta tables."""

    kind = "delta_local"
    path = "${BENCH_LAKE}"


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


@ematix.pipeline(target=Events, source_connection="landing", target_connection="lake", mode="append")
def into_duckdb(files):
    """Every row of the files."""
    return "."


@ematix.pipeline(target=Events, source_connection="landing", target_connection="dst", mode="append")
def into_postgres(files):
    """Every row of the files."""
    return "."


@ematix.pipeline(target=Events, source_connection="landing", target_connection="delta", mode="append")
def into_delta(files):
    """Every row of the files."""
    return "."


@ematix.pipeline(target=Events, source_connection="src", target_connection="lake", mode="append")
def postgres_into_duckdb(conn):
    """Every row of the table."""
    return "SELECT id, customer, name, code, amount, score, happened_at, active FROM raw.events_a"

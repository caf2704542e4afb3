"""Functions and aggregates of the user in the SQL of batch pipelines: called by Spark, refused where a database runs the query."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ematix_flow import BigInt, Double, Text, ematix, pk, udaf, udf  # noqa: TC001 - the table reads its annotations
from ematix_flow.declare.connection.registry import connection_from_fields, register_connection
from ematix_flow.errors import DeclareError, DeclareTypeError, PlanError


@udf(args=("Float64",), returns="Float64")
def with_tax(amount: pa.Array) -> pa.Array:
    return pc.multiply(amount, 1.19)


@udaf(args=("Float64",), state=("Float64",), returns="Float64")
class Widest:
    """The greatest distance between two values."""

    def __init__(self) -> None:
        self.low, self.high = float("inf"), float("-inf")

    def update_batch(self, values: pa.Array) -> None:
        bounds = pc.min_max(values)
        self.low, self.high = min(self.low, bounds["min"].as_py()), max(self.high, bounds["max"].as_py())

    def merge_batch(self, *states: pa.Array) -> None:
        raise NotImplementedError

    def state(self) -> tuple[pa.Array, ...]:
        raise NotImplementedError

    def evaluate(self) -> pa.Array:
        return pa.array([self.high - self.low])


def declared(query: str, **more: Any) -> Any:
    Path("inbox").mkdir(exist_ok=True)
    Path("inbox/orders.csv").write_text("id,customer,amount\n1,ada,10\n2,ada,30\n3,bob,5\n")
    connections = {
        "inbox": {"kind": "object_store_local", "path": "inbox", "format": "csv"},
        "warehouse": {"kind": "duckdb", "path": "warehouse.duckdb"},
    }
    for name, fields in connections.items():
        register_connection(connection_from_fields(name, fields))

    @ematix.table(schema="main")
    class Taxed:
        id: Annotated[BigInt, pk()]
        customer: Text
        amount: Double

    @ematix.pipeline(
        target=Taxed, mode="append", target_connection="warehouse", **{"source_connection": "inbox", **more}
    )
    def load(conn: Any) -> str:
        return query

    return load


@pytest.mark.spark
def test_a_query_over_files_calls_functions_and_aggregates() -> None:
    scalar = "SELECT CAST(id AS BIGINT) AS id, customer, with_tax(CAST(amount AS DOUBLE)) AS amount FROM source"
    assert declared(scalar, name="one", udfs=[with_tax])()["rows_inserted"] == 3
    grouped = (
        "SELECT CAST(MIN(id) AS BIGINT) + 10 AS id, customer, Widest(CAST(amount AS DOUBLE)) AS amount "
        "FROM source GROUP BY customer"
    )
    assert declared(grouped, name="two", udfs=[with_tax], aggregate_udfs=[Widest])()["rows_inserted"] == 2
    with duckdb.connect("warehouse.duckdb") as file:
        rows = file.execute("SELECT id, customer, round(amount, 2) FROM main.taxed ORDER BY id").fetchall()
    assert rows == [(1, "ada", 11.9), (2, "ada", 35.7), (3, "bob", 5.95), (11, "ada", 20.0), (13, "bob", 0.0)]


def test_a_database_that_runs_the_query_itself_cannot_call_them() -> None:
    load = declared("SELECT 1 AS id", source_connection="warehouse", udfs=[with_tax])
    with pytest.raises(PlanError, match="for SQL over files or lake tables, and the source is a database"):
        load()


def test_what_is_no_function_or_has_a_name_twice_is_refused() -> None:
    with pytest.raises(DeclareTypeError, match=r"udfs= takes what @udf\(...\) made, not function"):
        declared("SELECT 1", udfs=[lambda x: x])
    with pytest.raises(DeclareError, match="two functions are named 'with_tax'"):
        declared("SELECT 1", udfs=[with_tax, with_tax])

"""Frames of Spark in and out of systems, and frames of other libraries in and out of lakes."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from ematix_flow import ematix, register_connection, spark
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.spark.session import session_for
from tests.lakes.targets import lake_fields

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("lakes")]

FRAME = pl.DataFrame({"id": [1, 2], "amount": [Decimal("1.50"), None], "doc": [{"a": 1}, None]})


@pytest.fixture
def session(quick_lakes: None) -> SparkSession:
    """Return the session of this process, which knows Delta."""
    return session_for(Options())()  # type: ignore[no-any-return]


def declared(fields: dict[str, Any]) -> Any:
    return register_connection(connection_from_fields("it", fields))


@pytest.mark.parametrize("kind", ["duckdb", pytest.param("postgres", marks=[pytest.mark.service, pytest.mark.deep])])
def test_spark_frames_of_a_database(kind: str, session: SparkSession, request: pytest.FixtureRequest) -> None:
    field = "url" if kind == "postgres" else "path"
    it = declared({"kind": kind, field: str(request.getfixturevalue(f"{kind}_{field}"))})
    frame = spark.to_pyspark(FRAME, session)
    result = it.write_spark_df(frame, "shop.orders", mode="merge", keys=["id"])
    assert (result["rows_inserted"], result["path"], result["engine"]) == (2, "inferred_merge", "spark")
    assert it.from_pyspark(frame, "shop.orders", mode="merge", keys=["id"])["rows_unchanged"] == 2
    read = it.read_spark_df(session, "SELECT id, amount FROM shop.orders")
    assert sorted(tuple(row) for row in read.collect()) == [(1, Decimal("1.50")), (2, None)]
    again = ematix.dataset("shop.orders", it).select("id").to_pyspark(session)
    assert sorted(row.id for row in again.collect()) == [1, 2]
    with pytest.raises(TypeError, match="no frame of Spark"):
        it.write_spark_df(FRAME, "shop.orders")


@pytest.mark.deep
@pytest.mark.parametrize("variant", ["delta_local", pytest.param("iceberg", marks=pytest.mark.deep)])
def test_a_lake_table_is_written_and_read(variant: str, session: SparkSession, tmp_path: Path) -> None:
    it = declared(lake_fields(variant, tmp_path, None))
    assert it.write_df(FRAME, "shop.orders")["rows_inserted"] == 2
    assert it.write_df(FRAME.head(1), "shop.orders", mode="merge", keys=["id"])["rows_unchanged"] == 1
    expected = [{"id": 1, "amount": Decimal("1.50"), "doc": '{"a":1}'}, {"id": 2, "amount": None, "doc": None}]
    assert it.read_df("SELECT * FROM shop.orders ORDER BY id").to_dicts() == expected
    assert ematix.dataset("shop.orders", it).to_arrow().sort_by("id").to_pylist() == expected
    assert it.read_spark_df(session, "SELECT MAX(id) AS top FROM shop.orders").collect()[0].top == 2


@pytest.mark.deep
def test_sql_over_files_is_run_by_spark(session: SparkSession, tmp_path: Path) -> None:
    it = declared({"kind": "object_store_local", "path": str(tmp_path / "lake"), "format": "parquet"})
    it.write_df(FRAME, "shop.orders")
    assert it.read_df("SELECT SUM(id) AS total FROM source")["total"].to_list() == [3]
    assert it.read_spark_df(session, "shop/orders").count() == 2
    assert it.read_spark_df(session, "SELECT id FROM source WHERE id > 1").collect()[0].id == 2

"""Functions that are given Spark read every declared connection as a frame."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Annotated, Any

import duckdb
import pytest

from ematix_flow import BigInt, Text, ematix, pk  # noqa: TC001 - the table reads its annotations
from ematix_flow.connect.config.lookup import travelling_connections
from ematix_flow.declare.connection.registry import connection_from_fields, register_connection

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_connections_travel_filled_in_where_the_environment_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "canary")
    url = "postgres://me:${SHOP_PASSWORD}@host/db"
    register_connection(connection_from_fields("shop", {"kind": "postgres", "url": url}))
    register_connection(connection_from_fields("away", {"kind": "postgres", "url": "postgres://me:${MISSING}@host/db"}))
    stored = "postgres://me:${vault:secret/db#password}@host/db"
    register_connection(connection_from_fields("stored", {"kind": "postgres", "url": stored}))
    connections: dict[str, Any] = dict(travelling_connections())
    assert connections["shop"].url == "postgres://me:canary@host/db"
    assert connections["away"].url == "postgres://me:${MISSING}@host/db"
    assert connections["stored"].url == stored


@pytest.mark.spark
@pytest.mark.slow
def test_a_function_joins_what_it_reads(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    del spark
    monkeypatch.setenv("SHOP_FILE", str(tmp_path / "shop.sqlite"))
    with sqlite3.connect(tmp_path / "shop.sqlite") as database:
        database.execute("CREATE TABLE orders (id INTEGER, customer INTEGER)")
        database.execute("INSERT INTO orders VALUES (1, 7), (2, 8), (3, 7)")
    (tmp_path / "names").mkdir()
    (tmp_path / "names" / "one.csv").write_text("customer,name\n7,ada\n8,bob\n", "utf-8")
    register_connection(connection_from_fields("shop", {"kind": "sqlite", "path": "${SHOP_FILE}"}))
    register_connection(connection_from_fields("folder", {"kind": "files", "path": str(tmp_path), "format": "csv"}))
    register_connection(connection_from_fields("target", {"kind": "duckdb", "path": "target.duckdb"}))

    @ematix.table(schema="main")
    class Named:
        id: Annotated[BigInt, pk()]
        name: Text

    @ematix.pipeline(target=Named, target_connection="target", mode="merge")
    def named(spark: Any) -> Any:
        orders = spark.read.format("ematix").option("connection", "shop").option("table", "orders").load()
        names = spark.read.format("ematix").option("connection", "folder").option("path", "names").load()
        return orders.where("id > 1").join(names, "customer").select("id", "name")

    result: Any = named()
    assert result["rows_inserted"] == 2
    with duckdb.connect("target.duckdb") as target:
        assert target.execute("SELECT id, name FROM named ORDER BY id").fetchall() == [(2, "bob"), (3, "ada")]

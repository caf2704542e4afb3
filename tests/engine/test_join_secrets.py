"""What Spark keeps of a join across connections, its event log, holds no secret of theirs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.services.postgres import PASSWORD

SRC = str(Path(__file__).parents[2] / "src")

FLOWS = """
from typing import Annotated
from ematix_flow import BigInt, Source, Text, ematix, pk

@ematix.connection
class shop:
    kind = "duckdb"
    path = "shop.duckdb"

@ematix.table(schema="main", name="named")
class Named:
    id: Annotated[BigInt, pk()]
    name: Text

@ematix.pipeline(target=Named, target_connection="shop", mode="append")
def joined(conn):
    query = "SELECT o.id, c.name FROM pg.orders o JOIN pg.customers c ON c.id = o.id"
    return Source.sql(query, connections={"pg": "pg"})

@ematix.pipeline(target=Named, target_connection="shop", mode="merge")
def given(spark):
    return spark.read.format("ematix").option("connection", "pg").option("table", "customers").load().where("id > 1")
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.service
@pytest.mark.deep
def test_the_event_log_of_spark_holds_no_secret(postgres_url: str, tmp_path: Path) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as session:
        session.execute("CREATE TABLE orders AS SELECT generate_series(1, 3) AS id")
        session.execute("CREATE TABLE customers AS SELECT generate_series(1, 3) AS id, 'x' AS name")
    Path("flows.py").write_text(FLOWS, encoding="utf-8")
    settings = {
        "EMATIX_FLOW_DSN_PG": postgres_url,
        "EMATIX_FLOW_ENGINE": "spark",
        "EMATIX_FLOW_SPARK_CONF_spark__eventLog__enabled": "true",
        "EMATIX_FLOW_SPARK_CONF_spark__eventLog__dir": tmp_path.as_uri(),
        "EMATIX_FLOW_SPARK_CONF_spark__eventLog__compress": "false",
    }
    for name in ("joined", "given"):
        done = subprocess.run(
            [sys.executable, "-m", "ematix_flow", "run", name, "-m", "flows"],
            env={**os.environ, "PYTHONPATH": SRC, **settings},
            capture_output=True,
            text=True,
            check=False,
            timeout=280,
        )
        assert done.returncode == 0, done.stderr
        assert PASSWORD not in done.stdout + done.stderr
    logs = [file for file in tmp_path.rglob("*") if file.is_file()]
    content = b"".join(file.read_bytes() for file in logs)
    assert b"MapInArrow" in content
    assert b"ematix" in content
    assert PASSWORD.encode() not in content

"""Runs the queries of TPC-H over Parquet files or Delta tables in one process: a first pass and a warm one.

`python tpch_queries.py ENGINE DATA FIGURES parquet|delta`: ours is the session that this product starts for long work, spark is PySpark
as it comes, sail is a server of pysail over Spark Connect, duckdb is DuckDB.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tpch

if TYPE_CHECKING:
    from collections.abc import Callable

PASSES = 3


def main() -> None:
    """Run all queries a few times and write down the seconds of the first pass and of the last."""
    engine, data, figures, layout = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
    answer = _ENGINES[engine](data, layout)
    seconds = []
    for _ in range(PASSES):
        began = time.monotonic()
        for sql in tpch.queries().values():
            answer(sql)
        seconds.append(time.monotonic() - began)
    figures.write_text(json.dumps({"first_seconds": seconds[0], "warm_seconds": seconds[-1]}))
    os._exit(0)  # how an engine shuts down is not what is measured


def _over(spark: Any, data: Path, layout: str) -> Callable[[str], Any]:
    for table in tpch.TABLES:
        spark.read.format(layout).load(str(data / table)).createOrReplaceTempView(table)
    return lambda sql: spark.sql(sql).toArrow()


def _ours(data: Path, layout: str) -> Callable[[str], Any]:
    from ematix_flow.connect.delta.table import REQUIREMENTS
    from ematix_flow.declare.spark_settings import SparkSettings
    from ematix_flow.engine.spark.session import with_requirements
    from ematix_flow.run.spark.session import spark_session

    needed = [REQUIREMENTS] if layout == "delta" else []
    return _over(spark_session(with_requirements(SparkSettings(profile="long"), needed)), data, layout)


def _spark(data: Path, layout: str) -> Callable[[str], Any]:
    from pyspark.sql import SparkSession
    from spark_jdbc import DELTA

    builder = SparkSession.builder.master("local[*]")
    for key, value in (DELTA if layout == "delta" else {}).items():
        builder = builder.config(key, value)
    return _over(builder.getOrCreate(), data, layout)


def _sail(data: Path, layout: str) -> Callable[[str], Any]:
    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession

    server = SparkConnectServer()
    server.start(background=True)
    _, port = server.listening_address
    answer = _over(SparkSession.builder.remote(f"sc://localhost:{port}").getOrCreate(), data, layout)
    return lambda sql, _server=server: answer(sql)  # a server that nobody holds ends


def _duckdb(data: Path, _: str) -> Callable[[str], Any]:
    import duckdb

    connection = duckdb.connect()
    for table in tpch.TABLES:
        connection.execute(f"CREATE VIEW {table} AS FROM read_parquet('{data}/{table}/*.parquet')")
    return lambda sql: connection.sql(sql).to_arrow_table()


_ENGINES = {"ours": _ours, "spark": _spark, "sail": _sail, "duckdb": _duckdb}


if __name__ == "__main__":
    main()

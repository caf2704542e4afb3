"""Plain PySpark: files into PostgreSQL by JDBC, into Delta, or into DuckDB through Arrow on the driver."""

import os
import sys

from pyspark.sql import SparkSession
from spark_jdbc import DELTA, JARS, jdbc

SCHEMA = (
    "id bigint, customer int, name string, code string, amount decimal(12,2), score double, "
    "happened_at timestamp, active boolean"
)


def main() -> None:
    """Copy one folder of files."""
    kind, target = sys.argv[1:3]
    builder = SparkSession.builder.master("local[*]").config("spark.sql.session.timeZone", "UTC")
    if target == "postgres":
        builder = builder.config("spark.jars.packages", JARS)
    elif target == "delta":
        for key, value in DELTA.items():
            builder = builder.config(key, value)
    else:
        builder = builder.config("spark.driver.memory", "4g").config("spark.driver.maxResultSize", "0")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    folder = os.environ["BENCH_FILES"]
    frame = spark.read.csv(folder, header=True, schema=SCHEMA) if kind == "csv" else spark.read.parquet(folder)
    if target == "postgres":
        writer = frame.write.format("jdbc").options(**jdbc(os.environ["BENCH_DST_URL"]))
        writer.option("dbtable", "bench.events").option("batchsize", 10_000).mode("append").save()
    elif target == "delta":
        frame.write.format("delta").mode("append").save(f"{os.environ['BENCH_LAKE']}/events")
    else:
        import duckdb

        rows = frame.toArrow()  # noqa: F841 - DuckDB finds it by its name
        with duckdb.connect(os.environ["BENCH_DUCKDB"]) as connection:
            connection.execute("CREATE SCHEMA IF NOT EXISTS bench")
            connection.execute("CREATE TABLE IF NOT EXISTS bench.events AS FROM rows LIMIT 0")
            connection.execute("INSERT INTO bench.events FROM rows")
    spark.stop()


if __name__ == "__main__":
    main()

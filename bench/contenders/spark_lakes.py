"""Plain PySpark: PostgreSQL into a lake by JDBC, or Parquet files into a lake by a MERGE written by hand."""

import os
import sys

from pyspark.sql import SparkSession
from spark_jdbc import DELTA, JARS, jdbc

LAKE = os.environ["BENCH_LAKE"]
ICEBERG = {
    "spark.jars.packages": f"{JARS},org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "hadoop",
    "spark.sql.catalog.lake.warehouse": LAKE,
}
COMPARED = ("customer", "name", "code", "amount", "score", "happened_at", "active")


def main() -> None:
    """Load once."""
    kind, mode, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
    builder = SparkSession.builder.master("local[*]").config("spark.sql.session.timeZone", "UTC")
    for key, value in (ICEBERG if kind == "iceberg" else DELTA).items():
        builder = builder.config(key, value)
    spark = builder.config("spark.driver.memory", "4g").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    table = "lake.bench.events" if kind == "iceberg" else f"delta.`{LAKE}/events`"
    if mode == "append":
        append(spark, kind, table, rows)
    else:
        spark.read.parquet(os.environ["BENCH_FILES"]).createOrReplaceTempView("changed")
        {"first": first, "merge": merge, "scd2": scd2, "first_scd2": first_scd2}[mode](spark, kind, table)
    spark.stop()


def append(spark, kind, table, rows) -> None:
    """Copy a table of PostgreSQL, in four ranges of its key."""
    reader = spark.read.format("jdbc").options(**jdbc(os.environ["BENCH_SRC_URL"])).option("fetchsize", 10_000)
    ranges = {"partitionColumn": "id", "lowerBound": "1", "upperBound": str(rows), "numPartitions": "4"}
    frame = reader.option("dbtable", "raw.events_a").options(**ranges).load()
    if kind == "parquet":
        frame.write.mode("append").parquet(f"{LAKE}/events")
    elif kind == "delta":
        frame.write.format("delta").mode("append").save(f"{LAKE}/events")
    else:
        frame.writeTo(table).using("iceberg").createOrReplace()


def first(spark, kind, table) -> None:
    """Make the table that changes are merged into."""
    spark.sql(f"CREATE TABLE {table} USING {kind} AS SELECT * FROM changed")


def first_scd2(spark, kind, table) -> None:
    """Make the table with one version of every row."""
    spark.sql(
        f"CREATE TABLE {table} USING {kind} AS SELECT *, current_timestamp() AS valid_from, "
        "CAST(NULL AS TIMESTAMP) AS valid_to, TRUE AS is_current FROM changed"
    )


def merge(spark, kind, table) -> None:
    """Merge by the statement that the guides show."""
    del kind
    spark.sql(
        f"MERGE INTO {table} AS t USING changed AS s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def scd2(spark, kind, table) -> None:
    """Close changed versions, then insert the new ones."""
    del kind
    differs = " OR ".join(f"NOT (t.{name} <=> s.{name})" for name in COMPARED)
    spark.sql(
        f"MERGE INTO {table} AS t USING changed AS s ON t.id = s.id AND t.is_current "
        f"WHEN MATCHED AND ({differs}) THEN UPDATE SET is_current = FALSE, valid_to = current_timestamp()"
    )
    spark.sql(
        f"INSERT INTO {table} SELECT s.*, current_timestamp(), CAST(NULL AS TIMESTAMP), TRUE FROM changed AS s "
        f"LEFT ANTI JOIN (SELECT id FROM {table} WHERE is_current) AS t ON t.id = s.id"
    )


if __name__ == "__main__":
    main()

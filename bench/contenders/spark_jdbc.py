"""Plain PySpark: a JDBC read in four ranges of the key and a JDBC append, as the guide of Spark shows it."""

import os
import sys

from pyspark.sql import SparkSession

JARS = "org.postgresql:postgresql:42.7.8"
DELTA = {
    "spark.jars.packages": f"{JARS},io.delta:delta-spark_4.1_2.13:4.4.0",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def jdbc(url: str) -> dict[str, str]:
    """Return the JDBC options of a PostgreSQL URL."""
    rest = url.removeprefix("postgresql://")
    login, address = rest.split("@")
    user, password = login.split(":")
    target = f"jdbc:postgresql://{address}?reWriteBatchedInserts=true"
    return {"url": target, "user": user, "password": password, "driver": "org.postgresql.Driver"}


def main() -> None:
    """Copy one table."""
    table, rows = sys.argv[1], int(sys.argv[2])
    spark = SparkSession.builder.master("local[*]").config("spark.jars.packages", JARS).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    reader = spark.read.format("jdbc").options(**jdbc(os.environ["BENCH_SRC_URL"])).option("fetchsize", 10_000)
    ranges = {"partitionColumn": "id", "lowerBound": "1", "upperBound": str(rows), "numPartitions": "4"}
    frame = reader.option("dbtable", table).options(**ranges).load()
    writer = frame.write.format("jdbc").options(**jdbc(os.environ["BENCH_DST_URL"]))
    writer.option("dbtable", "bench.events").option("batchsize", 10_000).mode("append").save()
    spark.stop()


if __name__ == "__main__":
    main()

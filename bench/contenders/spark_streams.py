"""Plain PySpark: a topic into PostgreSQL by foreachBatch and a JDBC append, or into Delta, as the guides show it."""

import json
import os
import signal
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json
from spark_files import SCHEMA
from spark_jdbc import jdbc


def main() -> None:
    """Run until the topic is read, or until it is told to end."""
    target, home = sys.argv[1], os.environ["HOME"]
    builder = SparkSession.builder.master("local[*]").config("spark.sql.session.timeZone", "UTC")
    for key, value in json.loads(os.environ["BENCH_SPARK_CONF"]).items():
        builder = builder.config(key, value)
    # Two hundred partitions are for clusters; nothing is shuffled here anyway.
    spark = builder.config("spark.driver.memory", "2g").config("spark.sql.shuffle.partitions", "4").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    raw = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", os.environ["BENCH_BROKER"])
        .option("subscribe", os.environ["BENCH_QUERY"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", os.environ["BENCH_BATCH"])
        .load()
    )
    rows = raw.select(from_json(col("value").cast("string"), SCHEMA).alias("row")).select("row.*")
    writer = rows.writeStream.option("checkpointLocation", f"{home}/checkpoint")
    if target == "delta":
        lake = f"{os.environ['BENCH_LAKE']}/events"
        writer.format("delta").trigger(availableNow=True).start(lake).awaitTermination()
        return
    query = writer.foreachBatch(append).start()
    signal.signal(signal.SIGTERM, lambda *_: query.stop())
    query.awaitTermination()


def append(batch, number) -> None:
    """Write one batch."""
    del number
    options = jdbc(os.environ["BENCH_DST_URL"])
    batch.write.format("jdbc").options(**options).option("dbtable", "bench.events").option("batchsize", 10_000).mode(
        "append"
    ).save()


main()

"""Plain PySpark: windows, sessions and a join of topics into PostgreSQL by foreachBatch, as the guides show it."""

import json
import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from spark_files import SCHEMA
from spark_jdbc import jdbc


def main() -> None:
    """Run until the topics are read and what follows from them is written."""
    kind, home = sys.argv[1], os.environ["HOME"]
    builder = SparkSession.builder.master("local[*]").config("spark.sql.session.timeZone", "UTC")
    for key, value in json.loads(os.environ["BENCH_SPARK_CONF"]).items():
        builder = builder.config(key, value)
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    builder = builder.config("spark.sql.streaming.stateStore.providerClass", provider)
    builder = builder.config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    spark = builder.config("spark.driver.memory", "2g").config("spark.sql.shuffle.partitions", "4").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    topics = os.environ["BENCH_QUERY"].split(",")
    left = events(spark, topics[0]).withWatermark("happened_at", "0 seconds")
    if kind == "join":
        right = events(spark, topics[1]).select(sf.col("id").alias("other"), sf.col("happened_at").alias("paid_at"))
        minute = sf.expr("INTERVAL 60 SECONDS")
        near = (sf.col("paid_at") >= sf.col("happened_at") - minute) & (
            sf.col("paid_at") <= sf.col("happened_at") + minute
        )
        rows = left.join(right.withWatermark("paid_at", "0 seconds"), (sf.col("id") == sf.col("other")) & near)
        rows = rows.select("id", "customer", "amount", "happened_at", "paid_at")
    else:
        span = (
            sf.window("happened_at", "1 minute")
            if kind == "tumbling"
            else sf.session_window("happened_at", "7 seconds")
        )
        grouped = left.groupBy(span.alias("span"), "customer")
        rows = grouped.agg(sf.count("*").alias("events"), sf.sum("amount").alias("amount"))
        rows = rows.select(
            sf.col("span.start").alias("window_start"),
            sf.col("span.end").alias("window_end"),
            "customer",
            "events",
            "amount",
        )
    writer = rows.writeStream.outputMode("append").option("checkpointLocation", f"{home}/checkpoint")
    writer.foreachBatch(append).trigger(availableNow=True).start().awaitTermination()


def events(spark, topic):
    """Return the records of a topic."""
    raw = spark.readStream.format("kafka").option("kafka.bootstrap.servers", os.environ["BENCH_BROKER"])
    raw = raw.option("subscribe", topic).option("startingOffsets", "earliest")
    raw = raw.option("maxOffsetsPerTrigger", os.environ["BENCH_BATCH"]).load()
    return raw.select(sf.from_json(sf.col("value").cast("string"), SCHEMA).alias("row")).select("row.*")


def append(batch, number) -> None:
    """Write one batch."""
    del number
    writer = batch.write.format("jdbc").options(**jdbc(os.environ["BENCH_DST_URL"]))
    writer.option("dbtable", "bench.results").option("batchsize", 10_000).mode("append").save()


main()

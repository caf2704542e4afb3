"""What is measured of streams: sustained rows a second, the time until a record is visible, and memory over many minutes.

How fast rows came is read from the table afterwards: PostgreSQL knows when the transaction of every row was committed, so
that nothing has to be asked while a contender runs, and all of them are measured alike.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import sys
import uuid
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING

import environments
import records
from cases import CONTENDERS, OURS, Case, Command, empty_target, no_preparation, python_of

from tests.services.kafka import KafkaBroker
from tests.services.rabbitmq import RabbitMQServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cases import Bench

PARTITIONS = 4
BATCH = 100_000
"""Records of a batch at most, of ours and of plain PySpark."""
BATCHES = 20
"""Batches of a full topic at least, so that a quick look has a rate too."""
RATE, SECONDS = 1_000, 60
"""Records a second, and how long, where the time until they are visible is measured."""
SOAK_RATE = 2_000
MINUTES = 15
WARM = 10
"""A sustained rate begins when one row of so many is there."""

_PACKAGES = (
    "org.postgresql:postgresql:42.7.8",
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3",
    "io.delta:delta-spark_4.1_2.13:4.4.0",
)
_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
OLD_COLUMNS = (
    "id bigint primary key, customer bigint, name text, code text, amount double precision, score double precision, "
    "happened_at text, active boolean"
)
"""1.0.0 takes the types that JSON shows, and refuses to write them into narrower or exact ones."""


@cache
def kafka() -> KafkaBroker:
    """Return the broker of all rounds."""
    broker = KafkaBroker()
    broker.start()
    atexit.register(broker.close)
    return broker


@cache
def rabbitmq() -> RabbitMQServer:
    """Return the broker of all rounds."""
    broker = RabbitMQServer()
    broker.start()
    atexit.register(broker.close)
    return broker


@cache
def full_topic(rows: int) -> str:
    """Return a topic with so many records, made once."""
    topic = kafka().create_topic(PARTITIONS)
    records.fill_topic(kafka().address, topic, rows)
    return topic


@cache
def spark_conf(folder: Path, *, delta: bool) -> str:
    """Return the settings of plain PySpark as JSON; a part that the repositories lack is replaced as this product does it."""
    from ematix_flow.run.spark.java import find_java
    from ematix_flow.run.spark.packages.substitutes import with_substitutes

    packages = _PACKAGES if delta else _PACKAGES[:2]
    conf = {"spark.jars.packages": ",".join(packages)} | (_DELTA if delta else {})
    return json.dumps(with_substitutes(conf, find_java(os.environ), folder))


# Commands


def consume(bench: Bench, contender: str, target: str, env: dict[str, object], *arguments: str) -> Command:
    """Return the command that reads a topic or a queue until it is stopped or, with `--once`, has read what is there."""
    lake = bench.home(contender) / "lake"
    env = {
        "BENCH_BATCH": BATCH, "BENCH_STREAM_TARGET": target, "BENCH_GROUP": uuid.uuid4().hex, "BENCH_LAKE": lake, **env,
    }  # fmt: skip
    if contender in OURS:
        env |= OURS[contender]
        start: list[str | Path] = [
            python_of(contender),
            "-m",
            "ematix_flow",
            "consume",
            "events",
            "-m",
            "stream_flows",
            *arguments,
        ]
    elif contender == "ematix":
        flow = environments.python_of("ematix").with_name("flow")
        start = [flow, "consume", "events", "--module", "old_streams"]
    else:
        env["BENCH_SPARK_CONF"] = spark_conf(bench.home(contender), delta=target == "lake")
        kind = "delta" if target == "lake" else "postgres"
        start = [environments.python_of("spark"), CONTENDERS / "spark_streams.py", kind]
    return Command(start, bench.env(contender, **env))


def followed(bench: Bench, contender: str, command: Command, *arguments: object) -> Command:
    """Return a command that is ended when its table has every row."""
    follow = [sys.executable, environments.BENCH / "follow.py", "--figures", figures_file(bench, contender)]
    return Command([*follow, *map(str, arguments), "--", *command.arguments], command.env)


def figures_file(bench: Bench, contender: str) -> Path:
    """Return the file in which a command leaves what it saw."""
    return bench.home(contender) / "figures"


def reset(bench: Bench, contender: str) -> None:
    """Remove everything that a contender remembers, and give it an empty database."""
    for name in ("checkpoint", "lake", ".ematix-flow", "bench"):
        shutil.rmtree(bench.home(contender) / name, ignore_errors=True)
    figures_file(bench, contender).unlink(missing_ok=True)
    empty_target(bench, contender)
    if contender == "ematix":
        bench.server.sql(f"dst_{contender}", "CREATE SCHEMA bench", f"CREATE TABLE bench.events ({OLD_COLUMNS})")
    bench.server.execute("CHECKPOINT")


def from_kafka(topic: str) -> dict[str, object]:
    """Return what tells a contender where its records are."""
    return {"BENCH_STREAM": "kafka", "BENCH_BROKER": kafka().address, "BENCH_QUERY": topic}


def from_full_topic(rows: int) -> dict[str, object]:
    """Return where a contender finds so many records, in several batches."""
    return {**from_kafka(full_topic(rows)), "BENCH_BATCH": max(1, min(BATCH, rows // BATCHES))}


def kafka_postgres(bench: Bench, contender: str, number: int) -> Command:
    """Read a full topic into a table."""
    del number
    reset(bench, contender)
    command = consume(bench, contender, "dst", from_full_topic(bench.rows))
    return followed(bench, contender, command, "--rows", bench.rows)


def kafka_delta(bench: Bench, contender: str, number: int) -> Command:
    """Read a full topic into a Delta table, and end."""
    del number
    reset(bench, contender)
    return consume(bench, contender, "lake", from_full_topic(bench.rows), "--once")


def fed(rate: int, *arguments: object) -> Callable[[Bench, str, int], Command]:
    """Return a command that reads a topic into which records come at a rate; one partition keeps their order."""

    def command(bench: Bench, contender: str, number: int) -> Command:
        del number
        reset(bench, contender)
        topic = kafka().create_topic(1)
        built = consume(bench, contender, "dst", from_kafka(topic))
        feed = ("--broker", kafka().address, "--topic", topic, "--rate", rate, "--seconds", bench.rows // rate)
        return followed(bench, contender, built, *feed, *arguments)

    return command


def rabbit_postgres(bench: Bench, contender: str, number: int) -> Command:
    """Read a full queue into a table, or into nothing."""
    del number
    reset(bench, contender)
    queue = rabbitmq().create_queue()
    channel = rabbitmq().channel()
    records.fill_queue(channel, queue, bench.rows)
    channel.connection.close()
    env: dict[str, object] = {"BENCH_STREAM": "rabbitmq", "BENCH_BROKER": rabbitmq().url, "BENCH_QUERY": queue}
    if contender == "pika":
        env["BENCH_FIGURES"] = figures_file(bench, contender)
        drain = [sys.executable, CONTENDERS / "rabbit_drain.py", str(bench.rows)]
        return Command(drain, bench.env(contender, **env))
    return followed(bench, contender, consume(bench, contender, "dst", env), "--rows", bench.rows)


# Figures


def left(bench: Bench, contender: str) -> dict[str, float]:
    """Return the figures that the command left."""
    figures: dict[str, float] = json.loads(figures_file(bench, contender).read_text())
    return figures


def sustained(bench: Bench, contender: str) -> dict[str, float]:
    """Return the rows a second from the commit that brought the first tenth of the rows to the last one."""
    if contender == "pika":
        return left(bench, contender)
    counts = bench.server.sql(
        f"dst_{contender}",
        "SELECT extract(epoch FROM pg_xact_commit_timestamp(xmin)), count(*) FROM bench.events GROUP BY 1 ORDER BY 1",
    )
    commits = [(float(at), int(count)) for at, count in (line.split("|") for line in counts.split())]
    there = list(accumulate(count for _, count in commits))
    warm = next(index for index, rows in enumerate(there) if rows >= bench.rows // WARM)
    seconds = commits[-1][0] - commits[warm][0]
    rate = (there[-1] - there[warm]) / seconds if seconds else 0.0
    return {"rows_per_second": rate, "commits": len(commits)}


STREAM_CASES = (
    Case("kafka-postgres", "Kafka into PostgreSQL", 2_000_000, ("ours", "local", "spark", "ematix"), no_preparation,
         kafka_postgres, rounds=2, figures=sustained),
    Case("kafka-delta", "Kafka into delta", 2_000_000, ("ours", "spark"), no_preparation, kafka_delta, rounds=2),
    Case("kafka-latency", f"record to visible row, {RATE:,} a second", RATE * SECONDS, ("ours", "local", "spark", "ematix"),
         no_preparation, fed(RATE), rounds=1, figures=left),
    Case("rabbit-postgres", "RabbitMQ into PostgreSQL", 500_000, ("ours", "pika"), no_preparation, rabbit_postgres,
         rounds=2, figures=sustained),
    Case("stream-soak", f"memory, {SOAK_RATE:,} records a second", SOAK_RATE * 60 * MINUTES, ("ours",), no_preparation,
         fed(SOAK_RATE, "--memory"), rounds=1, figures=left),
)  # fmt: skip

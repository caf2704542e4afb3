"""What is measured of change data capture: a full topic of changes, the first rows of a table by its log, and the way of one change.

A load of the same rows stands beside the first rows. A topic has one partition, as Debezium's have where nobody says otherwise, so that every contender may apply messages as they
come. Eight of ten changes are updates, one is a delete, and one creates a deleted row again; the last one is a new row,
and a contender without an end of its own is stopped when the table shows it.
"""

from __future__ import annotations

import sys
import uuid
from typing import TYPE_CHECKING

import environments
import measure
import records
from cases import CONTENDERS, OURS, Case, Command, flow, no_preparation, python_of
from stream_cases import OLD_COLUMNS, RATE, SECONDS, followed, kafka, left, reset

if TYPE_CHECKING:
    from collections.abc import Callable

    from cases import Bench

BATCH = 50_000
"""Changes of a batch of ours."""
SINK_BATCH = 500
"""Changes of a batch of the sink, as the JDBC sinks of Debezium and Confluent have them; each is one transaction."""
FIRST = {"sink": SINK_BATCH, "ematix": 1_000}
"""Changes of the first commit of contenders whose batches are not ours; 1.0.0 commits every thousand."""
BEGAN: dict[str, str] = {}
"""By contender, the server's time before the changes that are timed."""
TARGETS = {"postgres": "PostgreSQL", "delta": "delta", "duckdb": "DuckDB"}


def changes_into(target: str) -> Callable[[Bench, str, int], Command]:
    """Return the command that applies as many changes as the table has rows."""

    def command(bench: Bench, contender: str, number: int) -> Command:
        del number
        prepare_target(bench, contender)
        topic = kafka().create_topic(1)
        env = {
            "BENCH_BROKER": kafka().address, "BENCH_QUERY": topic, "BENCH_GROUP": uuid.uuid4().hex,
            "BENCH_CHANGE_TARGET": target, "BENCH_BATCH": BATCH, "BENCH_SINK_BATCH": SINK_BATCH,
        }  # fmt: skip
        records.fill_changes(kafka().address, topic, records.first_rows(bench.rows))
        first = applied(bench, contender, env, bench.rows)
        measure.run(first.arguments, first.env)
        records.fill_changes(kafka().address, topic, records.changes(bench.rows))
        if target == "postgres":
            bench.server.sql(f"dst_{contender}", "VACUUM ANALYZE", "CHECKPOINT")
            BEGAN[contender] = bench.server.sql(f"dst_{contender}", "SELECT clock_timestamp()").strip()
        return applied(bench, contender, env, bench.rows + 1)

    return command


def prepare_target(bench: Bench, contender: str) -> None:
    """Create an empty target for a contender; those that create no table find one in PostgreSQL."""
    reset(bench, contender)
    (bench.home(contender) / "target.duckdb").unlink(missing_ok=True)
    if contender == "sink":
        table = f"CREATE TABLE bench.events ({environments.COLUMNS})"
        bench.server.sql(f"dst_{contender}", "CREATE SCHEMA bench", table)
    if contender == "ematix":
        # It takes the types that JSON shows; its books of changes are in a schema of their own.
        bench.server.sql(f"dst_{contender}", "DROP TABLE bench.events", f"CREATE TABLE bench.events ({OLD_COLUMNS})")


def applied(bench: Bench, contender: str, env: dict[str, object], rows: int) -> Command:
    """Return the command that applies what the topic has and ends, when the table has so many rows or the topic no more."""
    if contender == "sink":
        arguments = [sys.executable, CONTENDERS / "row_sink.py", str(rows)]
        return Command(arguments, bench.env(contender, **env))
    if contender == "ematix":
        arguments = [environments.python_of("ematix"), CONTENDERS / "old_changes.py"]
        return followed(bench, contender, Command(arguments, bench.env(contender, **env)), "--rows", rows)
    start = [python_of(contender), "-m", "ematix_flow", "consume", "changes", "-m", "change_flows", "--once"]
    return Command(start, bench.env(contender, **env, **OURS[contender]))


def from_log(bench: Bench, contender: str, *arguments: str) -> Command:
    """Return the command that mirrors a table of the source by the log of its database."""
    env: dict[str, object] = {
        "BENCH_CHANGE_SOURCE": "log", "BENCH_QUERY": "raw.events_a", "BENCH_CHANGE_TARGET": "postgres", "BENCH_BATCH": BATCH,
    }  # fmt: skip
    start = [python_of(contender), "-m", "ematix_flow", "consume", "changes", "-m", "change_flows", *arguments]
    return Command(start, bench.env(contender, **env, **OURS.get(contender, {})))


def without_slots(bench: Bench) -> None:
    """Remove what an earlier round left at the source: each begins with the rows of the table."""
    bench.server.sql("src", "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")


def first_rows(bench: Bench, contender: str, number: int) -> Command:
    """Return the command that brings the rows a table has: by its log, or by a load."""
    del number
    bench.source("events_a")
    without_slots(bench)
    reset(bench, contender)
    return flow(bench, contender, "append") if contender == "append" else from_log(bench, contender, "--once")


def slot_to_row(bench: Bench, contender: str, number: int) -> Command:
    """Return the command that follows the log while rows are inserted at a rate."""
    del number
    bench.server.recreate("src")
    bench.server.sql("src", "CREATE SCHEMA raw", f"CREATE TABLE raw.events_a ({environments.COLUMNS})")
    reset(bench, contender)
    feed = ("--table", "raw.events_a", "--rate", RATE, "--seconds", bench.rows // RATE)
    return followed(bench, contender, from_log(bench, contender), *feed)


def counted(bench: Bench, contender: str) -> dict[str, float]:
    """Return the rows that are there afterwards, so that contenders can be seen to have done the same, and their rate.

    The rate is that of the changes after the first commit, by the commit times of the rows, so no start is part of it.
    """
    query = "SELECT count(*), sum(amount)::bigint FROM bench.events"
    rows, total = bench.server.sql(f"dst_{contender}", query).strip().split("|")
    commits = "SELECT pg_xact_commit_timestamp(xmin) AS at FROM bench.events"
    span = f"SELECT coalesce(extract(epoch FROM max(at) - min(at)), 0) FROM ({commits}) AS c WHERE at > '{BEGAN[contender]}'"
    seconds = float(bench.server.sql(f"dst_{contender}", span).strip())
    after = bench.rows - FIRST.get(contender, BATCH)
    rate = {"changes_per_second": after / seconds} if seconds and after > 0 else {}
    return {"rows": float(rows), "amount": float(total), **rate}


CHANGE_CASES = (
    Case("cdc-postgres", "changes into PostgreSQL", 1_000_000, ("ours", "local", "sink", "ematix"), no_preparation,
         changes_into("postgres"), rounds=2, figures=counted),
    Case("cdc-delta", "changes into delta", 1_000_000, ("ours",), no_preparation, changes_into("delta"), rounds=2),
    Case("cdc-duckdb", "changes into DuckDB", 1_000_000, ("ours", "local"), no_preparation, changes_into("duckdb"), rounds=2),
    Case("cdc-snapshot", "the first rows of a mirror", 5_000_000, ("ours", "append"), no_preparation, first_rows, rounds=2),
    Case("cdc-latency", f"change to visible row, {RATE:,} a second", RATE * SECONDS, ("ours", "local"), no_preparation,
         slot_to_row, rounds=1, figures=left),
)  # fmt: skip

"""What is measured of change data capture: a full topic of changes into a table that has the rows already.

A topic has one partition, as Debezium's have where nobody says otherwise, so that every contender may apply messages as they
come. Eight of ten changes are updates, one is a delete, and one creates a deleted row again; the last one is a new row,
and a contender without an end of its own is stopped when the table shows it.
"""

from __future__ import annotations

import sys
import uuid
from typing import TYPE_CHECKING

import measure
import places
import records
from cases import CONTENDERS, OURS, Case, Command, no_preparation, python_of
from stream_cases import OLD_COLUMNS, followed, fresh, kafka

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
    """Give the command that applies as many changes as the table has rows."""

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
        measure.run(first.words, first.env)
        records.fill_changes(kafka().address, topic, records.changes(bench.rows))
        if target == "postgres":
            bench.server.sql(f"dst_{contender}", "VACUUM ANALYZE", "CHECKPOINT")
            BEGAN[contender] = bench.server.sql(f"dst_{contender}", "SELECT clock_timestamp()").strip()
        return applied(bench, contender, env, bench.rows + 1)

    return command


def prepare_target(bench: Bench, contender: str) -> None:
    """Give a contender an empty target; those that create no table find one in PostgreSQL."""
    fresh(bench, contender)
    (bench.home(contender) / "target.duckdb").unlink(missing_ok=True)
    if contender == "sink":
        table = f"CREATE TABLE bench.events ({places.COLUMNS})"
        bench.server.sql(f"dst_{contender}", "CREATE SCHEMA bench", table)
    if contender == "ematix":
        # It takes the types that JSON shows; its books of changes are in a schema of their own.
        bench.server.sql(f"dst_{contender}", "DROP TABLE bench.events", f"CREATE TABLE bench.events ({OLD_COLUMNS})")


def applied(bench: Bench, contender: str, env: dict[str, object], rows: int) -> Command:
    """Give the command that applies what the topic has and ends, when the table has so many rows or the topic no more."""
    if contender == "sink":
        words = [sys.executable, CONTENDERS / "row_sink.py", str(rows)]
        return Command(words, bench.env(contender, **env))
    if contender == "ematix":
        words = [places.python_of("ematix"), CONTENDERS / "old_changes.py"]
        return followed(bench, contender, Command(words, bench.env(contender, **env)), "--rows", rows)
    start = [python_of(contender), "-m", "ematix_flow", "consume", "changes", "-m", "change_flows", "--once"]
    return Command(start, bench.env(contender, **env, **OURS[contender]))


def counted(bench: Bench, contender: str) -> dict[str, float]:
    """Give the rows that are there afterwards, so that contenders can be seen to have done the same, and their rate.

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
)  # fmt: skip

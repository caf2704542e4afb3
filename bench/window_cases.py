"""What is measured of streams that remember: windows, sessions and a join, from a full topic until everything is written.

Every contender reads the same topics in batches of the same size and ends by itself, so the time of the whole command
counts. The last record of every partition is an hour later than the others, and closes what they have opened.
"""

from __future__ import annotations

import subprocess
import sys
import time
from functools import cache
from typing import TYPE_CHECKING

import environments
import records
from cases import CONTENDERS, Case, Command, no_preparation
from stream_cases import PARTITIONS, RATE, SECONDS, followed, kafka, left, reset, spark_conf

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cases import Bench

KINDS = {
    "tumbling": "tumbling windows of 10,000 groups",
    "session": "sessions of 10,000 groups",
    "join": "join of two topics",
}
BATCHES = 10
"""Batches of a full topic."""


@cache
def topics(kind: str, rows: int) -> str:
    """Return the names of the topics of a case, made once."""
    names = [kafka().create_topic(PARTITIONS) for _ in range(2 if kind == "join" else 1)]
    for name in names:
        records.fill_partitions(kafka().address, name, rows // len(names), PARTITIONS)
    return ",".join(names)


def remembering(kind: str) -> Callable[[Bench, str, int], Command]:
    """Return the command that reads the topics into what they result in, and ends."""

    def command(bench: Bench, contender: str, number: int) -> Command:
        del number
        reset(bench, contender)
        env = {
            "BENCH_BROKER": kafka().address,
            "BENCH_QUERY": topics(kind, bench.rows),
            "BENCH_BATCH": max(1, bench.rows // BATCHES),
            "EMATIX_FLOW_CHECKPOINT_ROOT": bench.home(contender) / "checkpoint",
        }
        if contender == "spark":
            env["BENCH_SPARK_CONF"] = spark_conf(bench.home(contender), delta=False)
            arguments = [environments.python_of("spark"), CONTENDERS / "spark_windows.py", kind]
        else:
            arguments = [sys.executable, "-m", "ematix_flow", "consume", kind, "-m", "window_flows", "--once"]
        COMMANDS[contender] = Command(arguments, bench.env(contender, **env))
        return COMMANDS[contender]

    return command


def emission(bench: Bench, contender: str, number: int) -> Command:
    """Return the command that counts records by the second while they come."""
    del number
    reset(bench, contender)
    topic = kafka().create_topic(1)
    state = bench.home(contender) / "checkpoint"
    env = {
        "BENCH_BROKER": kafka().address, "BENCH_QUERY": topic, "BENCH_BATCH": RATE * 10, "EMATIX_FLOW_CHECKPOINT_ROOT": state,
    }  # fmt: skip
    arguments: list[str | Path] = [sys.executable, "-m", "ematix_flow", "consume", "seconds", "-m", "window_flows"]
    feed = ("--broker", kafka().address, "--topic", topic, "--rate", RATE, "--seconds", bench.rows // RATE)
    return followed(bench, contender, Command(arguments, bench.env(contender, **env)), *feed, "--windows", state)


def results(bench: Bench, contender: str) -> dict[str, float]:
    """Return how many rows were written, so that two contenders can be seen to have done the same."""
    table = "results" if contender == "spark" else "events"
    return {"results": float(bench.server.sql(f"dst_{contender}", f"SELECT count(*) FROM bench.{table}"))}


def begun_again(bench: Bench, contender: str) -> dict[str, float]:
    """Return how many rows were written, and how long the same command takes with all of that remembered and nothing new."""
    again = COMMANDS[contender]
    begun = time.monotonic()
    subprocess.run([*map(str, again.arguments)], env=again.env, cwd=again.env["HOME"], check=True, capture_output=True)
    return results(bench, contender) | {"restart_s": time.monotonic() - begun}


COMMANDS: dict[str, Command] = {}
"""The last command of each contender."""


WINDOW_CASES = (
    *(
        Case(f"stream-{kind}", f"{title}, Kafka into PostgreSQL", 2_000_000, ("ours", "spark"), no_preparation,
             remembering(kind), rounds=2, figures=results)
        for kind, title in KINDS.items()
    ),
    Case("stream-emission", f"end of a window to its visible row, {RATE:,} records a second", RATE * SECONDS, ("ours",),
         no_preparation, emission, rounds=1, figures=left),
    Case("stream-keys", "rows without repetitions, every key remembered, 2 GiB of Java heap", 5_000_000, ("ours",),
         no_preparation, remembering("keys"), rounds=1, watch=True, heap="2g", figures=begun_again),
)  # fmt: skip

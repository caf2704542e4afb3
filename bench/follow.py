"""Runs the command of a stream that has no end, ends it when its table has every row, and writes what was seen on the way.

`follow.py --rows N` waits for N rows. With `--rate R --seconds S` it also sends R records a second to a topic, or inserts
R rows a second into a table of the source, and asks the table every 5 ms what is visible, from a process of its own; the start of the stream is not part of the figures.
With `--windows FOLDER` it looks at the ends of windows instead, and at the batches that the stream counts below a folder.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

import psycopg
from measure import tree_memory
from records import at_rate, producer, record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import LiteralString

POLL_SECONDS = 0.005
WARM_UP_SECONDS = 10.0
"""After the first row; what waited for the start of the stream is through by then."""
GIVE_UP_SECONDS = 1800.0
ERA_SECONDS = 62_135_596_800.0
"""From the year 1 to 1970: what the query gives Spark as time is later by that (run/streams/query.py)."""


def main() -> int:
    """Follow one command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--rate", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--broker")
    parser.add_argument("--topic")
    parser.add_argument("--table")
    parser.add_argument(
        "--windows",
        type=Path,
        help="follow windows by their ends; the folder below which the stream counts its batches",
    )
    parser.add_argument("--memory", action="store_true", help="look at the memory of the command every second")
    parser.add_argument("--figures", type=Path)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    process = subprocess.Popen(options.command)
    try:
        with psycopg.connect(os.environ["BENCH_DST_URL"], autocommit=True) as connection:
            follow = closed if options.windows else fed if options.rate else filled
            figures = follow(options, process, connection)
    finally:
        ended(process)
    if options.figures:
        options.figures.write_text(json.dumps(figures))
    return 0


def ended(process: subprocess.Popen[bytes]) -> None:
    """Ask the command to end, as an operator would."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def highest(connection: psycopg.Connection[Any], of: LiteralString) -> int:
    """Return the highest value that is visible; the table may not be there yet."""
    try:
        row = connection.execute(f"SELECT max({of}) FROM bench.events").fetchone()
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        return 0
    return int((row and row[0]) or 0)


def polled(
    process: subprocess.Popen[bytes], connection: psycopg.Connection[Any], every: float, of: LiteralString = "id"
) -> Iterator[int]:
    """Return the highest value of a column again and again while the command lives."""
    begun = time.monotonic()
    while process.poll() is None and time.monotonic() - begun < GIVE_UP_SECONDS:
        yield highest(connection, of)
        time.sleep(every)
    sys.exit("the command ended, or took too long, before every row was there")


def filled(
    options: argparse.Namespace, process: subprocess.Popen[bytes], connection: psycopg.Connection[Any]
) -> dict[str, float]:
    """Wait until every row is visible; nothing is asked that would take time from the command."""
    for top in polled(process, connection, 0.25):
        if top == options.rows and counted(connection) == options.rows:
            break
    return {}


def counted(connection: psycopg.Connection[Any]) -> int:
    """Return the number of rows."""
    row = connection.execute("SELECT count(*) FROM bench.events").fetchone()
    return int(row[0]) if row else 0


@dataclass
class Feeder(threading.Thread):
    """Sends records at a rate until it is told to stop; each says when it was sent."""

    address: str
    topic: str
    rate: int
    over: threading.Event = field(default_factory=threading.Event)
    sent: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        """Send."""
        sender = producer(self.address)
        for due in at_rate(self.rate):
            if self.over.is_set():
                break
            for number in due:
                at = time.time()
                self.sent.append(at)
                sender.produce(self.topic, record(number, at))
            sender.poll(0)
        sender.flush()


class TableFeeder(Feeder):
    """Inserts rows into a table of the source at a rate; those that are due at once are one transaction."""

    def run(self) -> None:
        """Insert; a row counts from the moment at which its transaction begins."""
        statement = f"INSERT INTO {self.topic} VALUES (%s, 1, 'a customer', 'code', 1.5, 0.5, now(), true)"
        with psycopg.connect(self.address) as connection:
            for due in at_rate(self.rate):
                if self.over.is_set():
                    break
                self.sent += [time.time()] * len(due)
                with connection.transaction(), connection.cursor() as cursor:
                    cursor.executemany(statement, [(number,) for number in due])


def fed(
    options: argparse.Namespace, process: subprocess.Popen[bytes], connection: psycopg.Connection[Any]
) -> dict[str, float]:
    """Send records while the command runs, and note when which of them was visible."""
    feeder = (
        TableFeeder(os.environ["BENCH_SRC_URL"], options.table, options.rate)
        if options.table
        else Feeder(options.broker, options.topic, options.rate)
    )
    feeder.start()
    recorded: list[tuple[float, int]] = []
    memory: list[tuple[float, int]] = []
    for top in polled(process, connection, POLL_SECONDS):
        now = time.time()
        if top and (not recorded or top > recorded[-1][1]):
            recorded.append((now, top))
        if options.memory and recorded and (not memory or now - memory[-1][0] >= 1):
            memory.append((now, tree_memory(process.pid)))
        if recorded and now > recorded[0][0] + WARM_UP_SECONDS + options.seconds:
            feeder.over.set()
            if not feeder.is_alive() and top == len(feeder.sent):
                break
    if counted(connection) != len(feeder.sent):
        sys.exit(f"{len(feeder.sent)} records were sent, and the table has {counted(connection)}")
    begin = recorded[0][0] + WARM_UP_SECONDS
    figures = delays(feeder.sent, recorded, begin, begin + options.seconds)
    return figures | (held([kib for at, kib in memory if at >= begin]) if options.memory else {})


def closed(
    options: argparse.Namespace, process: subprocess.Popen[bytes], connection: psycopg.Connection[Any]
) -> dict[str, float]:
    """Send records while the command runs, and note how long after its end which window of a second was visible."""
    feeder = Feeder(options.broker, options.topic, options.rate)
    feeder.start()
    recorded: list[tuple[float, int]] = []
    for end in polled(process, connection, POLL_SECONDS, "extract(epoch FROM window_end)"):
        now = time.time()
        if end and (not recorded or end > recorded[-1][1]):
            recorded.append((now, end))
        if recorded and now > recorded[0][0] + WARM_UP_SECONDS + options.seconds:
            break
    feeder.over.set()
    feeder.join()
    begin = recorded[0][0] + WARM_UP_SECONDS
    ends = [float(end) for end in range(recorded[0][1], recorded[-1][1] + 1)]
    within = [index for index, end in enumerate(ends) if begin <= end < begin + options.seconds - WARM_UP_SECONDS]
    tops = [end for _, end in recorded]
    visible = {ends[index]: recorded[bisect_left(tops, ends[index])][0] for index in within}
    waits = [at - end for end, at in visible.items()]
    passed = watermarks(options.windows)
    behind = [at - passed[bisect_left(passed, (end, 0.0))][1] for end, at in visible.items()]
    batches = sorted(file.stat().st_mtime for file in options.windows.glob("**/commits/[0-9]*"))
    trigger = median(after - before for before, after in pairwise(batches))
    p95, p95_behind = (quantiles(times, n=100)[94] for times in (waits, behind))
    return {
        "records": len(feeder.sent), "windows": len(waits), "p50_ms": median(waits) * 1000, "p95_ms": p95 * 1000,
        "trigger_ms": trigger * 1000, "p95_triggers": p95 / trigger,
        "watermark_p50_ms": median(behind) * 1000, "watermark_p95_ms": p95_behind * 1000,
        "watermark_p95_triggers": p95_behind / trigger,
    }  # fmt: skip


def watermarks(folder: Path) -> list[tuple[float, float]]:
    """Return the watermarks of a query in order, each with the time at which the first batch under it began, by Spark's log."""
    passed: dict[float, float] = {}
    for file in folder.glob("**/offsets/[0-9]*"):
        batch = json.loads(file.read_text("utf-8").splitlines()[1])
        watermark, begun = batch["batchWatermarkMs"] / 1000 - ERA_SECONDS, batch["batchTimestampMs"] / 1000
        passed[watermark] = min(begun, passed.get(watermark, begun))
    return sorted(passed.items())


def delays(sent: list[float], recorded: list[tuple[float, int]], begin: float, end: float) -> dict[str, float]:
    """Return how long it took from the record to the visible row, for records of a time."""
    tops = [top for _, top in recorded]
    waits = [
        recorded[bisect_left(tops, number)][0] - at for number, at in enumerate(sent, start=1) if begin <= at < end
    ]  # fmt: skip
    cuts = quantiles(waits, n=100)
    return {"records": len(waits), "p50_ms": median(waits) * 1000, "p95_ms": cuts[94] * 1000, "p99_ms": cuts[98] * 1000}


def held(samples: list[int]) -> dict[str, float]:
    """Return the memory of the first and the last fifth of a time, and the most, in MiB."""
    fifth = max(1, len(samples) // 5)
    first, last = median(samples[:fifth]), median(samples[-fifth:])
    return {"first_mib": first / 1024, "last_mib": last / 1024, "most_mib": max(samples) / 1024}


if __name__ == "__main__":
    raise SystemExit(main())

"""A project with streams, as a module and as files, and the command that runs them in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tests.services.messages import send_orders

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.services.kafka import KafkaBroker

SRC = str(Path(__file__).parents[3] / "src")

MODULE = """
from typing import Annotated

from ematix_flow import BigInt, Text, ematix, pk


@ematix.connection
class broker:
    kind = "kafka"
    bootstrap_servers = "{broker}"
    group_id = "{topic}"


@ematix.connection
class place:
    {place}


@ematix.table(schema="main", name="orders")
class Orders:
    id: Annotated[BigInt, pk()]
    name: Text


@ematix.table(schema="main", name="copies")
class Copies:
    id: Annotated[BigInt, pk()]
    name: Text


def declare(name, table, topic="{topic}"):
    settings = dict(source="broker", source_query=topic, target="place", target_table=table, idle_pause_ms=50)
    ematix.streaming_pipeline(name=name, **settings)(lambda: None)


declare("orders", Orders)
declare("copies", Copies)
"""

SQLITE = 'kind = "sqlite"\n    path = "lite.db"'


@dataclass(frozen=True, slots=True)
class Project:
    """The working folder with the module `streams`, and the topic that its streams read."""

    broker: KafkaBroker
    topic: str

    def send(self, ids: Iterable[int]) -> None:
        """Send orders to the topic."""
        send_orders(self.broker, self.topic, ids)

    def ids(self, table: str = "orders") -> list[int]:
        """Return the ids that the SQLite file has, in order."""
        with closing(sqlite3.connect("lite.db")) as connection:
            return [row[0] for row in connection.execute(f"SELECT id FROM {table} ORDER BY id")]


def create_project(broker: KafkaBroker, location: str = SQLITE) -> Project:
    """Write the module `streams` into the working folder."""
    topic = broker.create_topic(2)
    Path("streams.py").write_text(MODULE.format(broker=broker.address, topic=topic, place=location), encoding="utf-8")
    return Project(broker, topic)


@contextmanager
def running(*arguments: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """Run `flow consume` on the side; it is ended with the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ematix_flow", "consume", *arguments, "-m", "streams"],
        env={**os.environ, "PYTHONPATH": SRC, **environ},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0,
    )  # fmt: skip
    with process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(text: str, stream: IO[str] | None) -> str:
    """Read lines until one holds the words; the pipe's end means that they never came."""
    assert stream is not None
    lines = []
    for line in stream:
        lines.append(line)
        if text in line:
            return line
    raise AssertionError(f"{text!r} never came:\n{''.join(lines)}")


def wait_for_rows(stream: IO[str] | None, rows: int) -> None:
    """Read batches as lines of JSON until they have brought so many rows."""
    while rows > 0:
        rows -= json.loads(wait_for('"batch"', stream))["rows_written"]


def stopped(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> tuple[int, str, str]:
    """Send a signal and return the exit code, what was not read yet of stdout, and stderr."""
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err

"""What is measured of frames: a query of PostgreSQL as a frame of polars, and a frame as a table of PostgreSQL."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import environments
from cases import CONTENDERS, Case, Command, no_preparation

if TYPE_CHECKING:
    from collections.abc import Callable

    from cases import Bench


def frames(action: str) -> Callable[[Bench, str, int], Command]:
    """Return the command that reads the source as a frame, or writes a Parquet file into an empty database."""

    def command(bench: Bench, contender: str, number: int) -> Command:
        del number
        bench.source("events_a")
        bench.server.recreate(f"dst_{contender}")
        bench.server.sql(f"dst_{contender}", "CREATE SCHEMA bench")
        files = environments.export(bench.server, bench.rows, "parquet") if action == "write" else ""
        python = sys.executable if contender == "ours" else environments.python_of(contender)
        arguments = [python, CONTENDERS / "frames.py", contender, action, str(bench.rows), str(files)]
        return Command(arguments, bench.env(contender))

    return command


FRAME_CASES = (
    Case("read-df", "a query of PostgreSQL as a polars frame", 2_000_000, ("ours", "adbc", "connectorx"), no_preparation, frames("read")),
    Case("write-df", "a frame as a table of PostgreSQL", 2_000_000, ("ours", "adbc"), no_preparation, frames("write")),
)  # fmt: skip

"""What is measured of lake tables and files as targets: appends from PostgreSQL, and changes merged into millions of rows."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import environments
from cases import Case, flow, no_preparation, script

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cases import Bench, Command

KINDS = ("delta", "iceberg", "parquet")
EVERY = 50
"""One row of so many is in a load of changes."""


def lake_of(bench: Bench, contender: str) -> Path:
    """Return the folder of a contender's lake."""
    return bench.home(contender) / "lake"


def load(bench: Bench, contender: str, kind: str, mode: str, files: Path | None = None) -> Command:
    """Return the command of one load into a contender's lake."""
    env: dict[str, object] = {"BENCH_LAKE": lake_of(bench, contender), "BENCH_LAKE_KIND": kind}
    if files is not None:
        env["BENCH_FILES"] = files
    if contender == "spark":
        return script(bench, contender, "spark_lakes.py", kind, mode, bench.rows, **env)
    if contender == "dlt":
        return script(bench, contender, "dlt_load.py", mode, "raw.events_a", kind, **env)
    pipeline = "from_postgres" if mode == "append" else mode.removeprefix("first_").replace("first", "merge")
    return flow(bench, contender, pipeline, "lakes", **env)


def append(kind: str) -> Callable[[Bench, str, int], Command]:
    """Return the command that loads everything into a lake that is not there."""

    def command(bench: Bench, contender: str, number: int) -> Command:
        del number
        bench.source("events_a")
        shutil.rmtree(lake_of(bench, contender), ignore_errors=True)
        shutil.rmtree(bench.home(contender) / "bench", ignore_errors=True)
        return load(bench, contender, kind, "append")

    return command


def loaded_once(kind: str, mode: str) -> Callable[[Bench, str], None]:
    """Return the preparation of a load of changes: the contender has loaded the rows before."""

    def prepare(bench: Bench, contender: str) -> None:
        import measure

        first = "first" if mode == "merge" else "first_scd2"
        command = load(bench, contender, kind, first, environments.export(bench.server, bench.rows, "parquet"))
        measure.run(command.arguments, command.env)

    return prepare


def changes(kind: str, mode: str) -> Callable[[Bench, str, int], Command]:
    """Return the command of a load of changes; each round changes the same rows to other values."""

    def command(bench: Bench, contender: str, number: int) -> Command:
        files = environments.export(bench.server, bench.rows, "parquet", every=EVERY, suffix=f" in round {number}")
        return load(bench, contender, kind, mode, files)

    return command


LAKE_CASES = (
    *(
        Case(f"{kind}-append", f"PostgreSQL into {kind}", 2_000_000, ("ours", "spark"), no_preparation, append(kind), rounds=2)
        for kind in KINDS
    ),
    Case("delta-append10", "PostgreSQL into delta", 10_000_000, ("ours", "dlt"), no_preparation, append("delta"),
         rounds=1),
    *(
        Case(f"{kind}-{mode}", f"{mode} of every fiftieth row, {kind}", 10_000_000, ("ours", "spark"),
             loaded_once(kind, mode), changes(kind, mode), rounds=2)
        for kind in ("delta", "iceberg") for mode in ("merge", "scd2")
    ),
)  # fmt: skip

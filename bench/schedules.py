"""Measures how deciding, ticking and status grow with pipelines and runs: `python bench/schedules.py`.

The run log is an SQLite file. Its own round trips are timed apart, since a server's would take longer.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ematix_flow import pipeline
from ematix_flow.commit.runlog.records import Claim, columns_of, values_of
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine.schedule.status import status_snapshot
from ematix_flow.plan.schedule.cron import slot_text
from ematix_flow.plan.schedule.decide import Situation, decide
from ematix_flow.plan.schedule.retry import begun, succeeded
from ematix_flow.records import PipelineState
from ematix_flow.run_log import SqliteRunLog

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)


def declare(count: int, *, due: bool) -> None:
    """Declare pipelines with schedules of many kinds; chains of ten depend on each other."""
    PROJECT.clear()
    for number in range(count):
        schedule = "0 12 * * *" if due else f"{number % 60} {number // 60 % 24} * * *"
        upstream = [f"p{number - 1}"] if number % 10 else None
        pipeline.register(name=f"p{number}", schedule=schedule, depends_on=upstream)(lambda: None)


def filled(folder: Path, count: int, runs: int) -> SqliteRunLog:
    """Return a run log in which every pipeline ran yesterday."""
    log = SqliteRunLog(folder / f"{count}-{runs}.db")
    before = NOW - timedelta(days=1)
    states = [
        succeeded(begun(PipelineState(f"p{number}"), slot_text(before), before), "", before) for number in range(count)
    ]
    names = [name for name, _ in columns_of(PipelineState)]
    with closing(sqlite3.connect(folder / f"{count}-{runs}.db")) as file, file:
        placeholders = ", ".join("?" for _ in names)
        file.executemany(
            f"INSERT INTO pipeline_state ({', '.join(names)}) VALUES ({placeholders})",
            [values_of(replace(state, version=1)) for state in states],
        )
        file.executemany(
            "INSERT INTO run_records (run_id, pipeline, status, started_at, finished_at) VALUES (?, ?, ?, ?, ?)",
            [
                (
                    f"r{number}",
                    f"p{number % count}",
                    "succeeded",
                    *[(before - timedelta(seconds=number)).isoformat()] * 2,
                )
                for number in range(runs)
            ],
        )
    return log


def timed(work: Callable[[], object]) -> float:
    """Return the milliseconds of the best of three."""
    best = []
    for _ in range(3):
        start = time.perf_counter()
        work()
        best.append(time.perf_counter() - start)
    return min(best) * 1000


def decided(log: SqliteRunLog) -> tuple[float, float]:
    """Return the milliseconds of the round trips and of the decisions."""
    trips = timed(lambda: (log.all(PipelineState), log.all(Claim)))
    states = {state.pipeline: state for state in log.all(PipelineState)}
    at = Situation(PROJECT, NOW, states)

    def decide_all() -> object:
        due_now = [name for name, one in PROJECT.pipelines.items() if decide(one, replace(at)) is not None]
        return PROJECT.order(due_now)

    return trips, timed(decide_all)


def main() -> int:
    """Print one line for each size."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for due, counts in ((True, (100, 1_000, 10_000)), (False, (100, 1_000, 10_000))):
            for count in counts:
                declare(count, due=due)
                trips, due_names = decided(filled(folder, count, int(due)))
                what = "all due" if due else "few due"
                sys.stdout.write(f"{what}: {count:,} pipelines: {due_names:.0f} ms, round trips {trips:.0f} ms\n")
        for runs in (1_000, 10_000, 100_000):
            declare(1_000, due=False)
            log = filled(folder, 1_000, runs)
            took = timed(lambda log=log: status_snapshot(log, NOW))
            listed = timed(lambda log=log: log.list_runs(limit=20))
            sys.stdout.write(
                f"status: 1,000 pipelines, {runs:,} runs: {took:.0f} ms; newest 20 runs: {listed:.0f} ms\n"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())

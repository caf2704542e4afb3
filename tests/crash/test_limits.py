"""Full disks, polite signals and rows of unusual size: an error that says so, nothing half done, and then the load."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
from contextlib import closing, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import duckdb
import pytest

from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt
from ematix_flow.engine import Options, run_pipeline
from ematix_flow.errors import CommitError
from ematix_flow.run_log import SqliteRunLog
from tests.crash.folders import FOLDER
from tests.crash.harness import Sweep
from tests.crash.journey import BIG, EPOCH, Load, prepare

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.crash.journey import CrashTarget
    from tests.crash.nursery import Nursery

pytestmark = pytest.mark.crash

SMALL = 65_536
"""The size beyond which a child may not write any file, as if its disk were full."""


@pytest.mark.in_turn
@pytest.mark.parametrize("kind", ["duckdb", "sqlite", FOLDER])
@pytest.mark.parametrize("point", ["stage.task_start", "commit.connected"])
def test_a_full_disk_fails_the_run_and_changes_nothing(
    nursery: Nursery, target_of: Callable[[str], CrashTarget], kind: str, point: str
) -> None:
    target = target_of(kind)
    prepare(target, "filled")
    sweep = Sweep(nursery, target, "append", "filled")
    assert sweep.undisturbed() == []
    load = Load("append", BIG, "filled")
    stopped = sweep.run(load, f"{point}=stop@1")
    resource.prlimit(stopped.stopped, resource.RLIMIT_FSIZE, (SMALL, SMALL))
    assert sweep.refused(nursery.resume(stopped), "Error") == []
    assert sweep.run(load).answer is not None
    assert sweep.judged(load, []) == []


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "point", ["stage.mid_rows", "commit.fence_locked", "commit.before_commit", "commit.commit_sent", "post.before"]
)
def test_a_polite_signal_ends_a_load_that_the_next_run_takes_up(
    nursery: Nursery, target: CrashTarget, point: str
) -> None:
    prepare(target, "stopped")
    sweep = Sweep(nursery, target, "append", "stopped")
    load = sweep.next_load()
    stopped = nursery.run("stoppable", target, load, failpoints=f"{point}=stop@1")
    os.kill(stopped.stopped, signal.SIGTERM)
    ending = nursery.resume(stopped)
    # A signal that is heard once the answer to COMMIT is awaited lets the load finish.
    finished = point == "commit.before_commit" and ending.answer is not None
    assert finished or "StoppedError" in ending.error, ending
    assert (sweep.judged(load, []) if finished else sweep.undisturbed()) == []


def with_giant_row(target: CrashTarget, path: Path) -> CrashTarget:
    """Return a target whose source has one load of one row of 64 MiB."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "CREATE TABLE events (load INTEGER, id INTEGER, seq INTEGER, value TEXT, seen_at TIMESTAMPTZ)"
        )
        connection.execute("INSERT INTO events VALUES (0, 1, 1, ?, ?)", ("x" * (64 << 20), EPOCH.isoformat(" ")))
    return replace(target, source=str(path))


@pytest.mark.deep
@pytest.mark.slow
def test_a_row_of_64_mebibytes_is_loaded_or_refused(nursery: Nursery, target: CrashTarget, tmp_path: Path) -> None:
    giant = with_giant_row(target, tmp_path / "giant.sqlite")
    prepare(giant)
    ending = nursery.run("load", giant, Load("merge", 0, "giant"))
    sweep = Sweep(nursery, giant, "merge", "giant")
    if ending.answer is None:
        assert sweep.refused(ending, "Error") == []
    else:
        assert ending.answer["rows_inserted"] == 1


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "message"), [("duckdb", ""), ("sqlite", "too many columns")])
def test_five_thousand_columns_are_loaded_or_refused(tmp_path: Path, kind: str, message: str) -> None:
    names = [f"c{number}" for number in range(5_000)]
    with duckdb.connect(str(tmp_path / "wide.duckdb")) as connection:
        connection.execute(f"CREATE TABLE wide AS SELECT {', '.join(f'{n} AS c{n}' for n in range(len(names)))}")
    columns = tuple(Column(BigInt(), nullable=name != "c0", primary_key=name == "c0", name=name) for name in names)
    target = connection_from_fields("target", {"kind": kind, "path": str(tmp_path / "target")})
    pipeline = Pipeline(
        "wide",
        lambda: "SELECT * FROM wide",
        (TargetDeclaration(Table("main", "wide", columns), write("merge"), target),),
        source_connection=connection_from_fields("source", {"kind": "duckdb", "path": str(tmp_path / "wide.duckdb")}),
    )
    options = Options(run_log=SqliteRunLog(tmp_path / "run_log"))
    with pytest.raises(CommitError, match=message) if message else nullcontext():
        assert run_pipeline(pipeline, options)["rows_inserted"] == 1

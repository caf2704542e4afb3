"""Splits staged in threads of this process: each once, tried again when it may help, and the first failure is told."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ematix_flow import failpoints
from ematix_flow.connect.base.session import Split
from ematix_flow.connect.base.stage import StageColumn, StageSpec
from ematix_flow.connect.registry import open_database
from ematix_flow.connect.types.arrow import staged_schema
from ematix_flow.declare.connection.registry import DuckDBConnection, SQLiteConnection
from ematix_flow.declare.table.types import BigInt
from ematix_flow.errors import RunError, TransientError
from ematix_flow.records import TaskReport
from ematix_flow.run.local import threads
from ematix_flow.run.local.threads import stage_in_threads
from ematix_flow.run.stage.conform import Rules
from ematix_flow.run.stage.tasks import StageWork, split_partitions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ematix_flow.connect.base.database import Database

SPLITS = tuple(Split(f"SELECT {number} AS a") for number in range(7))


@pytest.fixture
def source(sqlite_path: Path) -> Database:
    database = open_database(SQLiteConnection("src", path=str(sqlite_path)))
    database.session().close()
    return database


@pytest.fixture
def work(duckdb_path: Path) -> StageWork:
    database = open_database(DuckDBConnection("dst", path=str(duckdb_path)))
    columns = (StageColumn("a", BigInt()),)
    spec = StageSpec("stg_1", staged_schema(columns).serialize().to_pybytes(), columns=columns)
    with closing(database.session()) as session:
        spec = database.open_stage(session, spec)
    return StageWork(database, spec, Rules(columns, frozenset()))


@pytest.fixture(autouse=True)
def _calm(no_waits: None) -> Iterator[None]:
    yield
    failpoints.arm("")


def staged(work: StageWork, source: Database, splits: tuple[Split, ...] = SPLITS) -> list[int]:
    """Stage splits and return the values that the reports stand for."""
    parts = stage_in_threads(split_partitions(work, source, splits))
    assert [part.partition for part in parts] == list(range(len(splits)))
    assert len({part.attempt for part in parts}) == len(splits)
    with closing(work.target.session()) as session:
        work.target.verify_stage(session, work.spec, parts)
        rows = session.query(f"SELECT a FROM {work.target.staged_relation(session, work.spec, parts)} ORDER BY a")
    return [row[0] for row in rows]


def test_every_split_is_staged_once(work: StageWork, source: Database) -> None:
    assert staged(work, source) == list(range(7))


def test_no_split_is_no_part(work: StageWork, source: Database) -> None:
    assert stage_in_threads(split_partitions(work, source, ())) == ()


@pytest.mark.parametrize("point", ["stage.task_start", "stage.mid_rows", "stage.after_task_commit"])
def test_a_split_that_fails_in_passing_is_tried_again_and_counts_once(
    work: StageWork, source: Database, point: str
) -> None:
    failpoints.arm(f"{point}=raise@1-3")
    assert staged(work, source) == list(range(7))


def test_a_split_that_never_succeeds_fails_the_load(work: StageWork, source: Database) -> None:
    failpoints.arm("stage.mid_rows=raise")
    with pytest.raises(failpoints.FailpointError, match=r"stage\.mid_rows"):
        staged(work, source)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("flow-stage")]


def test_what_will_not_pass_is_told_at_once(work: StageWork, source: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []

    def refuse(split: Split) -> Iterator[object]:
        read.append(split)
        raise RunError("no such column")

    monkeypatch.setattr(source, "read", refuse)
    with pytest.raises(RunError, match="no such column"):
        stage_in_threads(split_partitions(work, source, SPLITS[:1]))
    assert len(read) == 1


def test_the_error_that_came_first_is_told_and_stops_the_others(
    work: StageWork, source: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = threading.Event()
    own = source.read

    def read(split: Split) -> Iterator[object]:
        if split is SPLITS[0]:
            failed.set()
            raise RunError("the first")
        while True:
            assert failed.wait(10)
            yield from own(replace(split, sql="SELECT 1 AS a"))

    monkeypatch.setattr(source, "read", read)
    monkeypatch.setattr(threads.os, "cpu_count", lambda: 2)
    with pytest.raises(RunError, match="the first") as caught:
        stage_in_threads(split_partitions(work, source, SPLITS[:2]))
    assert not isinstance(caught.value, TransientError)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("flow-stage")]


def test_no_more_pieces_are_staged_at_once_than_may_be_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    busy: list[int] = []
    most = 0
    together = threading.Barrier(2, timeout=20)

    def partition(attempt: tuple[int, int], cancel_check: object = None) -> TaskReport:
        nonlocal most
        del cancel_check
        busy.append(attempt[0])
        most = max(most, len(busy))
        together.wait()  # two of them run side by side, or this breaks
        busy.remove(attempt[0])
        return TaskReport(*attempt, rows=1)

    assert [part.partition for part in stage_in_threads([partition] * 6, 2)] == list(range(6))
    assert most == 2

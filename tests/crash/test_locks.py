"""Files that others hold, readers that watch and pipelines that share a table: old or new, never between."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from threading import Event, Timer
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from ematix_flow.plan.sql.render import native_name
from tests.crash.conftest import on
from tests.crash.harness import Sweep, in_background
from tests.crash.journey import Load, difference, expected, prepare, table_rows
from tests.crash.nursery import Nursery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.crash.journey import CrashTarget

pytestmark = pytest.mark.crash


@pytest.fixture
def second_nursery(tmp_path: Path) -> Iterator[Nursery]:
    """Return another process that forks children, so that two loads can run at once."""
    opened = Nursery(tmp_path)
    yield opened
    opened.close()


def test_a_locked_sqlite_file_is_waited_for(nursery: Nursery, target_of: Callable[[str], CrashTarget]) -> None:
    target = target_of("sqlite")
    prepare(target, "locked")
    with closing(sqlite3.connect(target.fields["path"], isolation_level=None, check_same_thread=False)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        Timer(1.5, holder.execute, ["ROLLBACK"]).start()
        assert nursery.run("load", target, Load("append", 0, "locked")).answer is not None
    assert difference(table_rows(target, Load("append", 0, "locked")), expected("append", [0])) == []


def test_an_sqlite_file_that_stays_locked_fails_the_run(
    nursery: Nursery, target_of: Callable[[str], CrashTarget]
) -> None:
    target = target_of("sqlite")
    prepare(target, "locked")
    sweep = Sweep(nursery, target, "append", "locked")
    with closing(sqlite3.connect(target.fields["path"], isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        ending = sweep.run(sweep.next_load(), impatient=True)
        holder.execute("ROLLBACK")
    assert sweep.refused(ending, "locked") == []
    assert sweep.undisturbed() == []


def test_a_held_duckdb_file_is_refused_with_the_holder_named(
    nursery: Nursery, target_of: Callable[[str], CrashTarget]
) -> None:
    target = target_of("duckdb")
    prepare(target, "held")
    sweep = Sweep(nursery, target, "append", "held")
    with closing(duckdb.connect(target.fields["path"])):
        ending = sweep.run(sweep.next_load(), impatient=True)
    assert sweep.refused(ending, "TransientError", f"is held by process {os.getpid()}") == []
    assert sweep.undisturbed() == []


@pytest.mark.parametrize(
    ("kind", "begin"),
    [
        ("sqlite", "BEGIN"),
        pytest.param("postgres", "BEGIN ISOLATION LEVEL READ COMMITTED", marks=pytest.mark.service),
        pytest.param(
            "postgres",
            "BEGIN ISOLATION LEVEL REPEATABLE READ",
            marks=[pytest.mark.service, pytest.mark.deep],
        ),
        pytest.param("mysql", "START TRANSACTION WITH CONSISTENT SNAPSHOT", marks=pytest.mark.service),
    ],
)
def test_a_reader_sees_the_old_rows_or_the_new_ones(
    nursery: Nursery, target_of: Callable[[str], CrashTarget], kind: str, begin: str
) -> None:
    target = target_of(kind)
    prepare(target)
    sweep = Sweep(nursery, target, "truncate", "watched")
    assert sweep.undisturbed() == []
    snapshots: set[tuple[int, ...]] = set()
    done = Event()
    with in_background(lambda: watch(target, begin, snapshots, done)):
        for _ in range(5):
            assert sweep.undisturbed() == []
        done.set()
    whole = {tuple(row[1] for row in expected("truncate", [number])) for number in range(6)}
    assert snapshots
    assert {tuple(sorted(state)) for state in snapshots} <= {tuple(sorted(state)) for state in whole}


def watch(target: CrashTarget, begin: str, snapshots: set[tuple[int, ...]], done: Event) -> None:
    database = target.database
    name = native_name(database.table_name(target.schema, "watched"), database.dialect)
    with closing(database.session()) as session:
        while not done.is_set():
            session.execute(begin)
            snapshots.add(tuple(sorted(int(row[0]) for row in session.query(f"SELECT seq FROM {name}"))))
            session.rollback()


@on("sqlite", "postgres")
def test_two_pipelines_write_one_table(nursery: Nursery, second_nursery: Nursery, target: CrashTarget) -> None:
    prepare(target, "shared")
    rounds = 4
    failed: list[Any] = []

    def load(chosen: Nursery, name: str, first: int) -> None:
        for number in range(first, first + rounds * 2, 2):
            # A run log each: they share the table and nothing else.
            apart = replace(target, run_log=f"{target.run_log}.{name}")
            ending = chosen.run("load", apart, Load("append", number, "shared", pipeline=name))
            failed.extend([ending] if ending.answer is None else [])

    with in_background(lambda: load(second_nursery, "odd", 1)):
        load(nursery, "even", 0)
    assert failed == []
    assert difference(table_rows(target, Load("append", 0, "shared")), expected("append", range(rounds * 2))) == []


@pytest.mark.in_turn
@pytest.mark.parametrize("point", ["token.after_insert", "stage.collected", "commit.connected", "commit.fence_locked"])
def test_two_drivers_of_one_load_make_it_once(nursery: Nursery, target: CrashTarget, point: str) -> None:
    prepare(target, "twice")
    sweep = Sweep(nursery, target, "append", "twice", options={"incremental_column": None}, slots=True)
    load = sweep.next_load()
    frozen = sweep.interrupted(point, impatient=True)
    other = sweep.run(load, impatient=True)
    woken = nursery.resume(frozen)
    # Whoever was second was fenced off, or could not get at what the first one held.
    assert [bool(other.answer), bool(woken.answer)].count(True) == 1, (other, woken)
    errors = other.error + woken.error
    assert "FencedError" in errors or "TransientError" in errors
    again = sweep.run(load)
    assert again.answer["recovered"] is True
    assert sweep.judged(load, []) == []

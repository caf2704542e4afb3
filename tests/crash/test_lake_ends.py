"""What is left when only one of them ends: a statement that outlives its driver, a change that comes late, a Spark that dies."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.commit.ledger import Ledger
from ematix_flow.records import Token
from tests.crash.harness import Sweep, wait_until
from tests.crash.journey import Load, difference, expected, table_rows
from tests.crash.lakes import LAKES, data_files, leave, strange_commits
from tests.depth import deep

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.crash.journey import CrashTarget
    from tests.crash.nursery import Ending, Nursery
    from tests.services.spark import SparkServer

pytestmark = [
    pytest.mark.crash,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("lake_kills"),
]

PLAIN = {"incremental_column": None}
"""Without a watermark only the token keeps an append from doubling."""


@pytest.fixture
def sweep_of(lake_nursery: Nursery, target_of: Callable[[str], CrashTarget]) -> Callable[[str], Sweep]:
    """Return the function that makes a table of a kind with one load in it."""

    def create(kind: str) -> Sweep:
        sweep = Sweep(lake_nursery, target_of(kind), "append", "things", "", PLAIN, slots=True)
        assert sweep.undisturbed() == []
        return sweep

    return create


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["delta_local", deep("iceberg")])
def test_a_statement_that_outlives_its_driver_is_taken_over_or_refused(
    sweep_of: Callable[[str], Sweep], kind: str
) -> None:
    sweep = sweep_of(kind)
    for _ in range(2):
        driver = in_the_middle(sweep)
        os.kill(driver.stopped, signal.SIGKILL)
        sweep.nursery.resume(driver)
        assert sweep.undisturbed() == []


@pytest.mark.parametrize(
    ("kind", "bug"),
    [
        ("delta_local", ""),
        ("delta_local", "late_changes_applied"),
        ("delta_local", "unnumbered"),
        deep("iceberg_sql", ""),
        deep("iceberg_sql", "overtaken_commits_repeated"),
        deep("iceberg_sql", "late_changes_applied"),
        deep("iceberg", ""),
        deep("iceberg", "late_changes_applied"),
        deep("iceberg", "straight_to_the_table"),
    ],
)
def test_a_change_that_comes_late_is_refused_unless_there_is_a_bug(
    sweep_of: Callable[[str], Sweep], kind: str, bug: str
) -> None:
    sweep = sweep_of(kind)
    late, next_one = (Load("append", number, "things", f"slot-{number}", PLAIN) for number in (1, 2))
    slow = sweep.nursery.run("load", sweep.target, late, failpoints="store.before_change=stop", bug=bug)
    # Whoever comes next takes the one that is frozen for dead, and is halfway when that one wakes.
    quick = sweep.nursery.run(
        "load", sweep.target, next_one, failpoints="stage.collected=stop", bug=bug, impatient=True
    )
    assert sweep.nursery.resume(slow).error.startswith("FencedError")
    assert sweep.nursery.resume(quick).answer is not None
    assert bool(difference(table_rows(sweep.target, late), expected("append", [0, 2]))) == bool(bug)
    if not bug:
        assert sweep.run(late).answer is not None
        assert difference(table_rows(sweep.target, late), expected("append", [0, 1, 2])) == []


@pytest.mark.deep
@pytest.mark.parametrize(
    ("kind", "bug", "point"),
    [
        ("iceberg", "intent_is_not_written", "store.after_change"),
        ("delta_local", "ownership_is_not_checked", "store.before_change"),
    ],
)
def test_a_kill_shows_the_bug(sweep_of: Callable[[str], Sweep], kind: str, bug: str, point: str) -> None:
    sweep = sweep_of(kind)
    sweep.bug = bug
    assert sweep.point(point, "kill") != []


@pytest.mark.parametrize("kind", ["delta_local", deep("iceberg"), deep("iceberg_sql")])
def test_a_load_goes_on_after_one_of_another_pipeline_died_changing_rows(
    sweep_of: Callable[[str], Sweep], kind: str
) -> None:
    sweep = sweep_of(kind)
    dead, alive = (Load("append", n, "things", f"slot-{n}", PLAIN, f"of_{n}") for n in (1, 2))
    halfway = sweep.nursery.run("load", sweep.target, alive, failpoints="stage.collected=stop")
    assert sweep.nursery.run("load", sweep.target, dead, failpoints="store.before_change=kill").died
    assert sweep.nursery.resume(halfway).answer is not None
    assert difference(table_rows(sweep.target, alive), expected("append", [0, 2])) == []
    assert sweep.nursery.run("load", sweep.target, dead).answer is not None
    assert difference(table_rows(sweep.target, alive), expected("append", [0, 1, 2])) == []


@pytest.mark.deep
def test_a_spark_that_dies_changing_rows_leaves_each_load_to_be_made_once(
    sweep_of: Callable[[str], Sweep], spark_server: SparkServer
) -> None:
    sweeps = [sweep_of(kind) for kind in LAKES]
    drivers = [in_the_middle(sweep) for sweep in sweeps]
    leave(spark_server.remote)
    spark_server.crash()
    # One driver dies with it, the other one is told and tries again.
    os.kill(drivers[0].stopped, signal.SIGKILL)
    spark_server.start()
    for sweep, driver in zip(sweeps, drivers, strict=True):
        sweep.nursery.resume(driver)
        assert sweep.undisturbed() == []


@pytest.mark.deep
@pytest.mark.parametrize("kind", LAKES)
def test_two_writers_of_one_table_lose_nothing(
    lake_nursery: Nursery, target_of: Callable[[str], CrashTarget], kind: str
) -> None:
    target = target_of(kind)
    loads = [Load("merge", n, "shared", f"slot-{n}", pipeline="odd" if n % 2 else "even") for n in range(10)]
    ending = lake_nursery.run(
        "side_by_side", target, *([asdict(load) for load in loads[n::2]] for n in (0, 1)), kill_after=500
    )
    assert ending.answer == [0, 0]
    order = committed(target, loads)
    assert sorted(order) == list(range(10))
    assert difference(table_rows(target, loads[0]), expected("merge", order)) == []
    assert strange_commits(target.opened("shared")) == []


def in_the_middle(sweep: Sweep) -> Ending:
    """Start the next load in a child and come back when its change has written rows that no commit names yet."""
    lake: Any = sweep.target.opened(sweep.table)
    before = data_files(lake)
    driver = sweep.interrupted("store.before_change")
    os.kill(driver.stopped, signal.SIGCONT)
    wait_until(lambda: data_files(lake) - before, 120)
    return driver


def committed(target: CrashTarget, loads: list[Load]) -> list[int]:
    """Return the numbers of loads in the order in which the ledger got them."""
    numbers = {Token(x.pipeline, f"target:{target.schema}.{x.table}", x.slot or "").key: x.number for x in loads}
    lake = target.opened(loads[0].table)
    with closing(lake.session()) as session:
        rows = session.query(f"SELECT token FROM {Ledger(lake).name('ledger')} ORDER BY rowid")
    return [numbers[token] for (token,) in rows]

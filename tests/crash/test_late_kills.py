"""Plain appends by `flow run` that are killed past their commit: the rows are there once, and the result is printed once."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

import pytest

from ematix_flow.failpoints import RESULT_NAMES
from tests.crash.conftest import on
from tests.crash.folders import FOLDER
from tests.crash.journey import Load, difference, expected, prepare, table_rows
from tests.depth import quick_or_deep

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.crash.journey import CrashTarget
    from tests.crash.nursery import Ending, Nursery

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

POINTS = ("commit.after_commit", "runlog.before_success", "runlog.after_success", *RESULT_NAMES)
KILLS = quick_or_deep(3, 12)
RUNS = 4
"""A load that is not acknowledged after so many runs is lost."""


@dataclass
class Operator:
    """Runs load after load and goes on when a result is printed that was not seen before."""

    nursery: Nursery
    target: CrashTarget
    out: Path
    run_ids: list[str] = field(default_factory=list)
    bug: str = ""

    @property
    def load(self) -> Load:
        """Return the load that comes next."""
        return Load("append", len(self.run_ids), "late", options={"incremental_column": None})

    def run(self, failpoints: str = "", **how: object) -> Ending:
        """Run the next load once; it is acknowledged when its result is printed."""
        self.out.unlink(missing_ok=True)
        ending = self.nursery.run(
            "flow", self.target, self.load, str(self.out), failpoints=failpoints, bug=self.bug, **how
        )
        output = self.out.read_text() if self.out.exists() else ""
        run_id = json.loads(output)["run_id"] if output.endswith("}\n") else ""
        if run_id and run_id not in self.run_ids:
            self.run_ids.append(run_id)
        return ending

    def finish(self, number: int) -> list[str]:
        """Run until a load is acknowledged; returns the complaints about the table."""
        for _ in range(RUNS):
            if len(self.run_ids) > number:
                break
            self.run()
        complaints = [] if len(self.run_ids) == number + 1 else [f"{len(self.run_ids)} results of {number + 1} loads"]
        return complaints + difference(table_rows(self.target, self.load), expected("append", range(number + 1)))


@pytest.fixture
def operator(nursery: Nursery, target: CrashTarget, tmp_path: Path) -> Operator:
    prepare(target, "late")
    return Operator(nursery, target, tmp_path / "out")


@on("postgres", "files")
def test_a_plain_append_that_is_killed_past_its_commit_is_loaded_once(operator: Operator) -> None:
    for number, point in enumerate(POINTS):
        ending = operator.run(f"{point}=kill")
        assert ending.died, ending
        assert operator.finish(number) == [], point


@pytest.mark.parametrize("point", POINTS[:-1])
def test_whoever_goes_by_exit_codes_loads_once_too(
    nursery: Nursery, target_of: Callable[[str], CrashTarget], tmp_path: Path, point: str
) -> None:
    operator = Operator(nursery, target_of(FOLDER), tmp_path / "out")
    load = operator.load
    assert operator.run(f"{point}=kill").died
    again = nursery.run("flow", operator.target, load, str(operator.out))
    assert (again.answer, again.error) == (0, "")
    assert difference(table_rows(operator.target, load), expected("append", [0])) == []


@on("postgres", "files")
def test_late_kills_lose_and_double_nothing(operator: Operator, tmp_path: Path) -> None:
    random, note = Random(int(os.environ.get("CRASH_SEED", "20260101"))), tmp_path / "committed"  # noqa: S311
    assert operator.finish(0) == []
    longest, kills, number = 0.02, 0, 0
    while kills < KILLS:
        note.unlink(missing_ok=True)
        number = len(operator.run_ids)
        ending = operator.run(f"commit.commit_sent=note:{note}", kill_after=random.uniform(0, longest), since=str(note))
        kills += ending.died
        longest *= 1.3 if ending.died else 0.9
        assert operator.finish(number) == [], f"after {kills} kills"


def test_a_request_that_is_closed_too_early_shows(
    nursery: Nursery, target_of: Callable[[str], CrashTarget], tmp_path: Path
) -> None:
    """Our own harness under test: what this file is about, done the wrong way, doubles rows."""
    operator = Operator(nursery, target_of(FOLDER), tmp_path / "out", bug="closed_before_the_print")
    assert operator.run("result.before_print=kill").died
    assert operator.finish(0) != []

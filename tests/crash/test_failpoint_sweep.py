"""Every failpoint, every mode, every database: killed or raised there, a load is whole or absent, and then exactly once."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

import pytest

from tests.crash.conftest import on
from tests.crash.folders import FOLDER
from tests.crash.harness import Sweep
from tests.crash.journey import MODES, prepare
from tests.depth import DEEP, quick_or_deep

if TYPE_CHECKING:
    from tests.crash.journey import CrashTarget
    from tests.crash.nursery import Nursery

DATABASES = ("duckdb", "sqlite", "postgres", "mysql", FOLDER)

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]


@pytest.mark.parametrize("mode", MODES)
def test_a_load_that_is_killed_at_any_failpoint_is_whole_or_absent(
    nursery: Nursery, target: CrashTarget, mode: str
) -> None:
    table = f"swept_{mode}"
    prepare(target, *([table] if mode == "append" else []))
    assert Sweep(nursery, target, mode, table).points("kill", _in_turn(target, mode)) == []


def _in_turn(target: CrashTarget, mode: str) -> tuple[str, ...]:
    """Return every eighth failpoint, others for the neighbouring mode and database; all of them with `--deep`.

    So every mode is killed at every failpoint, and every database too, though not each at each in one run.
    """
    turn = 0 if DEEP else list(MODES).index(mode) + DATABASES.index(target.kind)
    step = quick_or_deep(8, 1)
    return target.points[turn % step :: step]


@on("duckdb", "postgres")
def test_an_error_at_any_failpoint_leaves_a_load_whole_or_absent(nursery: Nursery, target: CrashTarget) -> None:
    prepare(target, "raised_append")
    sweeps = cycle([Sweep(nursery, target, mode, f"raised_{mode}") for mode in target.modes(MODES)])
    points = zip(_in_turn(target, "append"), sweeps, strict=False)
    assert [complaint for name, sweep in points for complaint in sweep.points("raise", [name])] == []


@pytest.mark.in_turn
@pytest.mark.parametrize("point", ["ddl.before_expand", "ddl.after_expand", "token.after_insert", "commit.applied"])
def test_the_first_load_of_all_can_end_anywhere_too(nursery: Nursery, target: CrashTarget, point: str) -> None:
    prepare(target)
    assert Sweep(nursery, target, target.modes(["scd2_event", "append"])[0], "first").point(point, "kill") == []

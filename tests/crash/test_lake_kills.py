"""Lake tables whose drivers are killed while the Spark that they use goes on: kills at random, and every failpoint."""

from __future__ import annotations

import os
from random import Random
from typing import TYPE_CHECKING

import pytest

from ematix_flow.failpoints import ADDING_NAMES
from tests.crash.harness import KillLoop, Sweep
from tests.crash.jobs import KILL_LOOP
from tests.crash.lakes import AFTER_THE_CHANGE, BEFORE_THE_CHANGE, LAKES, branches, folded
from tests.depth import deep

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.crash.journey import CrashTarget
    from tests.crash.nursery import Nursery

pytestmark = [
    pytest.mark.crash,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("lake_kills"),
]

KILLS = 40


@pytest.mark.deep
@pytest.mark.parametrize("kind", [*LAKES, "iceberg_sql"])
def test_kills_lose_and_double_nothing(
    lake_nursery: Nursery, target_of: Callable[[str], CrashTarget], kind: str, tmp_path: Path
) -> None:
    seed = int(os.environ.get("CRASH_SEED", "20260101"))
    target = target_of(kind)
    loop = KillLoop(lake_nursery, target, tmp_path / "acknowledged", Random(seed), longest=2.0, growth=1.05)  # noqa: S311
    complaints = loop.lives(KILLS)
    print(f"seed {seed}: {KILLS} kills, {loop.done()} loads, {loop.unacknowledged} commits that nobody was told of")  # noqa: T201
    assert complaints == []
    assert loop.done() >= KILLS // 8
    # A statement of the last one that was killed may have come back to its branch.
    assert max(len(branches(target.opened(f"loop_{mode}"))) for mode in KILL_LOOP) <= 1


SWEPT = [
    ("delta_local", "append", "kill"),
    deep("iceberg_sql", "append", "kill"),
    deep("iceberg_sql", "append", "raise"),
    deep("iceberg_sql", "merge", "kill"),
    deep("iceberg", "append", "raise"),
    deep("iceberg", "merge", "kill"),
    deep("delta_local", "scd2_event", "kill"),
    deep("delta_local", "merge", "raise"),
    deep("iceberg", "scd2_event", "raise"),
]


@pytest.mark.parametrize(("kind", "mode", "action"), SWEPT)
def test_a_load_that_ends_at_any_failpoint_is_whole_or_absent(
    lake_nursery: Nursery, target_of: Callable[[str], CrashTarget], kind: str, mode: str, action: str
) -> None:
    sweep = Sweep(lake_nursery, target_of(kind), mode, f"swept_{mode}")
    placing = ADDING_NAMES if mode == "append" and kind != "iceberg" else ()
    assert sweep.in_a_row(action, (*BEFORE_THE_CHANGE, *placing)) == []
    assert sweep.points(action, AFTER_THE_CHANGE) == []
    if mode == "scd2_event":
        assert sweep.undisturbed() == []
        assert len(folded(sweep.target.opened(sweep.table))) == 1

"""Kills at random moments, sixty per database: no load lost, doubled, partial or only half remembered."""

from __future__ import annotations

import os
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.crash.harness import KillLoop
from tests.crash.journey import prepare
from tests.depth import quick_or_deep

if TYPE_CHECKING:
    from pathlib import Path

    from tests.crash.journey import CrashTarget
    from tests.crash.nursery import Nursery

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

KILLS = quick_or_deep(4, 60)
FOLDER_KILLS = quick_or_deep(4, 40)


def test_kills_lose_and_double_nothing(nursery: Nursery, target: CrashTarget, tmp_path: Path) -> None:
    seed = int(os.environ.get("CRASH_SEED", "20260101"))
    prepare(target, "loop_append")
    loop = KillLoop(nursery, target, tmp_path / "acknowledged", Random(seed))  # noqa: S311 - repeatable, not secret
    kills = FOLDER_KILLS if target.is_folder else KILLS
    complaints = loop.lives(kills)
    print(f"seed {seed}: {kills} kills, {loop.done()} loads, {loop.unacknowledged} commits that nobody was told of")  # noqa: T201
    assert complaints == []
    assert loop.done() >= kills // 3

"""Full disks, polite signals and rows of unusual size: an error that says so, nothing half done, and then the load."""

from __future__ import annotations

import os
import resource
import signal
from typing import TYPE_CHECKING

import pytest

from tests.crash.harness import Sweep
from tests.crash.journey import BIG, Load, prepare

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.crash.journey import Place
    from tests.crash.nursery import Nursery

pytestmark = pytest.mark.crash

SMALL = 65_536
"""The size beyond which a child may not write any file, as if its disk were full."""


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
@pytest.mark.parametrize("point", ["stage.task_start", "commit.connected"])
def test_a_full_disk_fails_the_run_and_changes_nothing(
    nursery: Nursery, place_of: Callable[[str], Place], kind: str, point: str
) -> None:
    place = place_of(kind)
    prepare(place, "filled")
    sweep = Sweep(nursery, place, "append", "filled")
    assert sweep.undisturbed() == []
    load = Load("append", BIG, "filled")
    stopped = sweep.run(load, f"{point}=stop@1")
    resource.prlimit(stopped.stopped, resource.RLIMIT_FSIZE, (SMALL, SMALL))
    assert sweep.refused(nursery.resume(stopped), "Error") == []
    assert sweep.run(load).answer is not None
    assert sweep.judged(load, []) == []


@pytest.mark.parametrize(
    "point", ["stage.mid_rows", "commit.fence_locked", "commit.before_commit", "commit.commit_sent", "post.before"]
)
def test_a_polite_signal_ends_a_load_that_the_next_run_takes_up(nursery: Nursery, place: Place, point: str) -> None:
    prepare(place, "stopped")
    sweep = Sweep(nursery, place, "append", "stopped")
    load = sweep.next_load()
    stopped = nursery.run("stoppable", place, load, failpoints=f"{point}=stop@1")
    os.kill(stopped.stopped, signal.SIGTERM)
    ending = nursery.resume(stopped)
    assert "StoppedError" in ending.error, ending
    assert sweep.undisturbed() == []


@pytest.mark.slow
def test_a_row_of_64_mebibytes_is_loaded_or_refused(nursery: Nursery, place: Place, tmp_path: Path) -> None:
    from tests.crash.journey import make_giant

    giant = make_giant(place, tmp_path / "giant.sqlite")
    prepare(giant)
    ending = nursery.run("load", giant, Load("merge", 0, "giant"))
    sweep = Sweep(nursery, giant, "merge", "giant")
    if ending.answer is None:
        assert sweep.refused(ending, "Error") == []
    else:
        assert ending.answer["rows_inserted"] == 1

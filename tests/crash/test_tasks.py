"""Tasks that fail: a load needs one good attempt per partition, and only the winning attempt counts."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from ematix_flow.commit.cleanup import collect
from tests.crash.conftest import on
from tests.crash.harness import Sweep
from tests.crash.journey import prepare

if TYPE_CHECKING:
    from tests.crash.journey import CrashTarget
    from tests.crash.nursery import Nursery

pytestmark = pytest.mark.crash


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "failpoint",
    ["stage.mid_rows=raise@1-3", "stage.before_task_commit=raise@1-3", "stage.after_task_commit=raise@1-3"],
)
@on("postgres", "files")
def test_three_failed_attempts_do_no_harm(nursery: Nursery, target: CrashTarget, failpoint: str) -> None:
    prepare(target, "tried")
    assert Sweep(nursery, target, "append", "tried").undisturbed(failpoint) == []


@on("postgres", "files")
def test_a_load_whose_attempts_all_fail_leaves_nothing(nursery: Nursery, target: CrashTarget) -> None:
    prepare(target, "failed")
    sweep = Sweep(nursery, target, "append", "failed")
    assert sweep.refused(sweep.run(sweep.next_load(), "stage.after_task_commit=raise"), "FailpointError") == []
    collect(target.database, 0.0)
    with closing(target.database.session()) as session:
        assert list(target.database.stages(session)) == []
    assert sweep.undisturbed() == []

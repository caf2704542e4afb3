"""Workflows that are done once more: from a job on with the results of the others, or where they failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ematix_flow.commit.runlog.records import Action
from ematix_flow.declare.schedule.workflow import workflow
from ematix_flow.engine.schedule import actions
from ematix_flow.engine.schedule.manual import restart_workflow
from ematix_flow.errors import RunError, UnknownNameError
from tests.engine.schedules import HOURLY

if TYPE_CHECKING:
    from tests.engine.schedules import Rig


def diamond(rig: Rig) -> None:
    """Declare a workflow: `first`, then `left` and `right`, then `last`."""
    for name in ("first", "alone"):
        rig.add(name, None)
    for name, before in (("left", ["first"]), ("right", ["first"]), ("last", ["left", "right"])):
        rig.add(name, None, depends_on=before)
    workflow(name="w", jobs=["first", "left", "right", "last", "alone"], schedule=HOURLY)
    rig.due()
    rig.due()


@pytest.mark.slow
def test_a_workflow_is_restarted_from_a_job_and_keeps_what_does_not_follow_it(rig: Rig) -> None:
    diamond(rig)
    assert sorted(rig.ran) == ["alone", "first", "last", "left", "right"]
    before, first_state = rig.workflow("w").last_slot, rig.state("first")
    rig.ran.clear()
    started, jobs = restart_workflow(rig.log, "w", "left", "anna")
    assert jobs == ["left", "last"]
    for _ in range(3):
        rig.due()
    assert rig.ran == ["left", "last"]
    assert rig.workflow("w").slot_status == "succeeded"
    assert started == f"workflow:w@{rig.workflow('w').last_slot}" != f"workflow:w@{before}"
    assert rig.state("first") == first_state
    (action,) = rig.log.all(Action)
    assert (action.kind, action.from_step, action.asked_by, action.state) == ("restart", "left", "anna", "done")
    rig.ran.clear()
    restart_workflow(rig.log, "w", "last", "anna")  # what was kept before is kept again
    for _ in range(3):
        rig.due()
    assert (rig.ran, rig.workflow("w").slot_status) == (["last"], "succeeded")


@pytest.mark.slow
def test_a_restart_keeps_no_result_that_is_not_there(rig: Rig) -> None:
    rig.broken.add("left")
    diamond(rig)
    rig.add("idle", None)
    workflow(name="new", jobs=["idle"], triggered_by="last")
    rig.due()
    assert rig.workflow("w").slot_status == "gave_up"
    with pytest.raises(RunError, match="cannot be restarted from right: left has not succeeded"):
        restart_workflow(rig.log, "w", "right", "anna")
    with pytest.raises(RunError, match="has not run yet"):
        restart_workflow(rig.log, "new", "idle", "anna")
    with pytest.raises(UnknownNameError, match="has no job 'nothing'"):
        restart_workflow(rig.log, "w", "nothing", "anna")
    rig.broken.clear()
    rig.ran.clear()
    assert restart_workflow(rig.log, "w", "left", "anna")[1] == ["left", "last"]
    with pytest.raises(RunError, match="runs already"):
        restart_workflow(rig.log, "w", "left", "anna")
    for _ in range(3):
        rig.due()
    assert rig.ran == ["left", "last", "idle"]  # and what waits for it
    assert rig.workflow("w").slot_status == "succeeded"


@pytest.mark.slow
def test_a_workflow_that_failed_goes_on_in_its_slot(rig: Rig) -> None:
    rig.broken.add("left")
    diamond(rig)
    rig.due()
    slot = rig.workflow("w").last_slot
    rig.broken.clear()
    rig.ran.clear()
    actions.resume(rig.log, "workflow:w", "anna")
    for _ in range(3):
        rig.due()
    assert rig.ran == ["left", "last"]
    assert (rig.workflow("w").slot_status, rig.workflow("w").last_slot) == ("succeeded", slot)
    assert (rig.state("left").last_slot, rig.state("last").last_slot) == (slot, slot)
    assert actions.resume(rig.log, "workflow:w", "anna").next_attempt_at == ""

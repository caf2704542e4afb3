"""Runs a slot that a scheduler has claimed: the worker's side of a dispatch, identified by the token of the lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.commit.runlog.records import Claim
from ematix_flow.engine.schedule.slot_run import ClaimedSlot, run_claimed
from ematix_flow.errors import FencedError
from ematix_flow.plan.schedule.retry import RUNNING
from ematix_flow.records import PipelineState

if TYPE_CHECKING:
    from ematix_flow.declare.pipeline.pipeline import Pipeline
    from ematix_flow.engine.schedule.slot_run import SlotOutcome, SlotRunner


def work(pipeline: Pipeline, token: str, runner: SlotRunner) -> SlotOutcome:
    """Run the slot that was begun for this worker; refused when another worker has the lease meanwhile."""
    claim = runner.log.find(Claim, pipeline.name)
    state = runner.log.find(PipelineState, pipeline.name)
    ours = claim is not None and claim.claim_token == token
    if (
        not ours
        or state is None
        or state.slot_status != RUNNING
        or not runner.log.heartbeat(token, runner.lease_seconds, runner.worker_id)
    ):
        message = f"the lease on {pipeline.name} is not this worker's any more"
        raise FencedError(message, hint="it came too late; the scheduler has given the slot to another one.")
    return run_claimed(ClaimedSlot(pipeline, state, token), runner)

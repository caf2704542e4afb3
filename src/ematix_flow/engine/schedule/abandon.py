"""Ends slots whose process died and that are not taken up: cancelled ones, and what only a person may repeat."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.commit.ledger import Ledger, transaction
from ematix_flow.engine.batch.planner import token_for
from ematix_flow.engine.batch.run_records import CANCELLED, INTERRUPTED, SUCCEEDED, end_left
from ematix_flow.engine.batch.target import target_for
from ematix_flow.engine.schedule.slot_run import INTERRUPTED_RUN, ended_event, own_slot_id
from ematix_flow.engine.spark.session import session_for
from ematix_flow.errors import FlowError, RunCancelledError
from ematix_flow.plan.metadata_tables import history_name, other_history_name
from ematix_flow.plan.schedule import retry as retrying
from ematix_flow.records import PipelineState, Request

if TYPE_CHECKING:
    from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
    from ematix_flow.engine.schedule.slot_run import SlotRunner
    from ematix_flow.plan.schedule.decide import Lose

UNRESOLVED = "cancelled, but its target does not answer whether it had committed"


def lose(pipeline: Pipeline, lost: Lose, runner: SlotRunner) -> PipelineState:
    """Record that a slot is not taken up by itself, and emit it once; return the state as it is then.

    Of a cancelled one the ledger of its target shows whether it committed; until it answers, the slot stays as it is.
    """
    before = runner.log.find(PipelineState, pipeline.name) or PipelineState(pipeline.name)
    if (before.slot_status, before.last_slot) != (retrying.RUNNING, lost.slot):
        return before
    try:
        after, status, error = _ended(pipeline, before, runner)
    except (FlowError, OSError):
        return before
    stored = runner.log.swap(before, after)
    if stored is None:
        return runner.log.find(PipelineState, pipeline.name) or before
    request = Request(own_slot_id(pipeline, lost.slot, runner), pipeline.name)
    end_left(runner.log, request, runner.options.clock.now(), status)
    runner.options.bus.emit(ended_event(pipeline, stored, runner.decision_time(), 0.0, error))
    return stored


def _ended(pipeline: Pipeline, state: PipelineState, runner: SlotRunner) -> tuple[PipelineState, str, str]:
    """Return the state of the slot, the status of its run and the class of what went wrong."""
    now = runner.decision_time()
    if not state.cancelled_by:
        return retrying.interrupted(state, now), INTERRUPTED, INTERRUPTED_RUN
    slot = own_slot_id(pipeline, state.last_slot, runner)
    if pipeline.targets and all(_committed(pipeline, one, slot, runner) for one in pipeline.targets):
        run_id = token_for(pipeline, pipeline.targets[0], slot).run_id
        return retrying.succeeded(state, run_id, now), SUCCEEDED, ""
    return retrying.cancelled(state, now), CANCELLED, RunCancelledError.__name__


def _committed(pipeline: Pipeline, target: TargetDeclaration, slot: str, runner: SlotRunner) -> bool:
    """Return whether a load is in the ledger of its target; a commit that is still on its way is waited for and shut out."""
    database = target_for(target.connection, target.table, session_for(runner.options))
    ledger, now = Ledger(database), runner.options.clock.now()
    try:
        session = database.session()
        try:
            if not ledger.exists(session):
                return False
            fence, other = history_name(pipeline, target.table), other_history_name(pipeline, target.table)
            ledger.ensure_fence(session, fence, now)
            with transaction(session):
                ledger.take_fence(session, fence, now, other)
                return ledger.find(session, token_for(pipeline, target, slot)) is not None
        finally:
            session.close()
    except database.errors as error:
        raise FlowError(str(error)) from None

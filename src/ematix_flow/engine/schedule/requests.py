"""Carries out runs that an operator requested: under the pipeline's lease, in the slot of the run that they repeat, if it had one."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ematix_flow.commit.runlog.legacy import ACTION_CLAIMED
from ematix_flow.commit.runlog.records import Action, format_instant
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.engine.batch.events import emitting_attempt
from ematix_flow.engine.batch.result import run_ids_of
from ematix_flow.engine.batch.run_records import end_left
from ematix_flow.engine.schedule.actions import DONE, FAILED, RESTART
from ematix_flow.engine.schedule.lease import PipelineLease
from ematix_flow.engine.schedule.slot_run import INTERRUPTED_RUN, leased, run_leased, slot_interval
from ematix_flow.events import PipelineBegan, PipelineEnded
from ematix_flow.plan.schedule import retry as retrying
from ematix_flow.plan.schedule.cron import slot_id, slot_of
from ematix_flow.plan.schedule.decide import Skip
from ematix_flow.records import Request

if TYPE_CHECKING:
    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.declare.pipeline.pipeline import Pipeline
    from ematix_flow.engine.schedule.slot_run import SlotRunner
    from ematix_flow.records import RunRecord


@dataclass(frozen=True, slots=True)
class RequestedRun:
    """The outcome of a requested run."""

    result: Any = None
    error_message: str = ""
    error_type: str = ""
    """The class of what went wrong; empty after a success."""


def run_requested(action: Action, pipeline: Pipeline, runner: SlotRunner) -> Skip | RequestedRun:
    """Do the requested run and record its outcome."""
    token = leased(pipeline, runner)
    if isinstance(token, Skip):
        return token
    with PipelineLease(runner.log, pipeline.name, token, runner.lease_seconds) as lease:
        # Who worked on it would still have the lease.
        died = action.state == ACTION_CLAIMED
        if died and (not pipeline.resumes or action.interruptions >= retrying.INTERRUPTIONS):
            return _lose(action, pipeline, runner)
        claimed = replace(action, state=ACTION_CLAIMED, taken_by=runner.worker_id)
        begun = runner.log.swap(action, replace(claimed, interruptions=action.interruptions + died))
        if begun is None:
            return Skip(pipeline.name, f"{action.id} was taken by another run")
        return _run(begun, pipeline, runner, lease)


def _lose(action: Action, pipeline: Pipeline, runner: SlotRunner) -> Skip | RequestedRun:
    """Record that a run whose process died is not repeated by itself, as of slots; return that as its outcome."""
    now = runner.options.clock.now()
    ended = replace(action, state=FAILED, ended_at=format_instant(now), outcome=retrying.INTERRUPTED_TEXT)
    if runner.log.swap(action, ended) is None:
        return Skip(pipeline.name, f"{action.id} was taken by another run")
    before = runner.log.get_run(action.run_id) if action.run_id else None
    run, error = _load_name(action, pipeline, before), INTERRUPTED_RUN
    end_left(runner.log, Request(run, pipeline.name), now)
    runner.log.record_run(pipeline.name, now, success=False)
    runner.options.bus.emit(
        PipelineEnded(
            pipeline.name, "", run, now, 0.0, gave_up=True, error_message=ended.outcome, error_type=error,
        )
    )  # fmt: skip
    return RequestedRun(error_message=ended.outcome, error_type=error)


def _run(action: Action, pipeline: Pipeline, runner: SlotRunner, lease: PipelineLease) -> RequestedRun:
    clock, began = runner.options.clock, time.monotonic()
    before = runner.log.get_run(action.run_id) if action.run_id else None
    run, slot = _load_name(action, pipeline, before), _slot_behind(runner.log, before)
    runner.options.bus.emit(PipelineBegan(pipeline.name, "", run))
    error_message, kind, result = "", "", None
    try:
        with emitting_attempt(pipeline.name, run, 1, runner.options.bus) as outcome:
            outcome.result = result = run_leased(
                pipeline, run, runner, lease, slot_interval(pipeline, slot) if slot else None
            )
    except Exception as error:  # noqa: BLE001 - the engine's boundary: a failed run is an outcome
        error_message, kind = safe_text(error), type(error).__name__
    now = clock.now()
    runner.log.record_run(pipeline.name, now, not kind)
    runner.log.swap(
        action,
        replace(action, state=FAILED if kind else DONE, ended_at=format_instant(now), outcome=error_message[:1000]),
    )
    runner.options.bus.emit(
        PipelineEnded(
            pipeline.name,
            "",
            run,
            now,
            time.monotonic() - began,
            gave_up=bool(kind),
            error_message=error_message,
            error_type=kind,
            run_ids=run_ids_of(result),
        )
    )
    return RequestedRun(result, error_message, kind)


def _load_name(action: Action, pipeline: Pipeline, before: RunRecord | None) -> str:
    """Return the name of the load: a restart has that of the run before it, so that only what is missing is done."""
    if action.kind == RESTART and before is not None and before.request_id:
        return before.request_id
    # The action's id is part of the name: after a crash the same work is taken up, and is done once.
    return slot_id(pipeline.name, action.id)


def _slot_behind(log: RunLog, run: RunRecord | None) -> str | None:
    """Return the slot that a run was for, also one that an operator had repeated; None for runs without a slot."""
    while run is not None:
        name = run.request_id or run.run_id
        slot = slot_of(name, run.pipeline)
        if slot is not None:
            return slot
        action = log.find(Action, name.rpartition("@")[2])
        run = log.get_run(action.run_id) if action is not None and action.run_id else None
    return None

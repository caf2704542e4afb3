"""Carries out runs that an operator requested: under the pipeline's lease, with their own token and without a slot."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ematix_flow.commit.runlog.legacy import ACTION_CLAIMED
from ematix_flow.commit.runlog.records import format_instant
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.engine.batch.events import emitting_attempt
from ematix_flow.engine.batch.result import run_ids_of
from ematix_flow.engine.schedule.actions import DONE, FAILED, RESTART
from ematix_flow.engine.schedule.lease import PipelineLease
from ematix_flow.engine.schedule.slot_run import leased, run_leased
from ematix_flow.events import PipelineBegan, PipelineEnded
from ematix_flow.plan.schedule.cron import slot_id
from ematix_flow.plan.schedule.decide import Skip

if TYPE_CHECKING:
    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.commit.runlog.records import Action
    from ematix_flow.declare.pipeline.pipeline import Pipeline
    from ematix_flow.engine.schedule.slot_run import SlotRunner


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
        begun = runner.log.swap(action, replace(action, state=ACTION_CLAIMED, taken_by=runner.worker_id))
        if begun is None:
            return Skip(pipeline.name, f"{action.id} was taken by another run")
        return _run(begun, pipeline, runner, lease)


def _run(action: Action, pipeline: Pipeline, runner: SlotRunner, lease: PipelineLease) -> RequestedRun:
    run, clock, began = _slot(action, pipeline, runner.log), runner.options.clock, time.monotonic()
    runner.options.bus.emit(PipelineBegan(pipeline.name, "", run))
    error_message, kind, result = "", "", None
    try:
        with emitting_attempt(pipeline.name, run, 1, runner.options.bus) as outcome:
            outcome.result = result = run_leased(pipeline, run, runner, lease)
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


def _slot(action: Action, pipeline: Pipeline, log: RunLog) -> str:
    """Return the name of the load: a restart has that of the run before it, so that only what is missing is done."""
    if action.kind == RESTART:
        before = log.get_run(action.run_id)
        if before is not None and before.request_id:
            return before.request_id
    # The action's id is part of the name: after a crash the same work is taken up, and is done once.
    return slot_id(pipeline.name, action.id)

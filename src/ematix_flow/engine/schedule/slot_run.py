"""Runs one slot of a pipeline under a lease and writes down what became of it; which slot it is was decided before."""

from __future__ import annotations

import time
import warnings
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.config.redact import safe_text
from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.schedule.slot import Slot, in_slot
from ematix_flow.engine.batch.events import emitting_attempt
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.batch.result import errors_in, run_ids_of
from ematix_flow.engine.batch.run import run_pipeline
from ematix_flow.engine.schedule.lease import LEASE_SECONDS, Lease, default_worker, held_now
from ematix_flow.engine.schedule.pools import full
from ematix_flow.engine.stream.restart_policy import TERMINAL
from ematix_flow.errors import FencedError, FlowError, RunCancelledError, RunError, RunLogError
from ematix_flow.events import PipelineBegan, PipelineEnded
from ematix_flow.failpoints import failpoint
from ematix_flow.plan.schedule import retry as retrying
from ematix_flow.plan.schedule.cron import instant_of, last_slot, slot_id
from ematix_flow.plan.schedule.decide import Fire, Skip, attempts_of
from ematix_flow.records import PipelineState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime, timedelta

    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.declare.pipeline.pipeline import Pipeline, Retry
    from ematix_flow.plan.schedule.decide import Decision


@dataclass(frozen=True, slots=True)
class Keeper:
    """Who runs slots: under which name, for how long at a time, and with which run log and options."""

    log: RunLog
    options: Options = field(default_factory=Options)
    worker_id: str = field(default_factory=lambda: default_worker("run"))
    lease_seconds: float = LEASE_SECONDS
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Sizes of pools."""
    now: datetime | None = None
    """The clock of decisions where it was given; stamps of audits stay those of the wall."""

    def moment(self) -> datetime:
        """Return the instant that decisions are made for."""
        return self.now or self.options.clock.now()


@dataclass(frozen=True, slots=True)
class Taken:
    """A slot that this process has the lease for."""

    pipeline: Pipeline
    state: PipelineState
    token: str

    @property
    def slot(self) -> str:
        """Return the slot."""
        return self.state.last_slot


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an attempt."""

    pipeline: str
    slot: str
    attempt: int
    state: PipelineState
    result: Any = None
    error_message: str = ""
    error_type: str = ""
    overtaken: bool = False
    """Another run has taken the slot over, so this one says nothing."""

    @property
    def cancelled(self) -> bool:
        """Return whether somebody cancelled it before it committed."""
        return self.error_type == RunCancelledError.__name__

    @property
    def success(self) -> bool:
        """Return whether everything was done."""
        return not self.error_type and not self.overtaken


def take(
    pipeline: Pipeline, fire: Fire, keeper: Keeper, decide: Callable[[PipelineState], Decision | None]
) -> Taken | Skip:
    """Take the lease and note that the slot runs, if `decide` still says so of the state under the lease."""
    token = leased(pipeline, keeper)
    if isinstance(token, Skip):
        return token
    failpoint("slot.claimed")
    try:
        taken = _begun(pipeline, fire, keeper, decide, token)
    except BaseException:
        with suppress(RunLogError):
            keeper.log.release(token)
        raise
    if isinstance(taken, Skip):
        keeper.log.release(token)
    return taken


def leased(pipeline: Pipeline, keeper: Keeper) -> str | Skip:
    """Take the lease on a pipeline and a place of its pool; gives the token, or why it cannot be had now."""
    claim = keeper.log.claim(pipeline.name, keeper.worker_id, keeper.lease_seconds)
    if not claim.acquired or claim.token is None:
        return Skip(pipeline.name, f"running on {claim.holder}")
    if pipeline.pool:
        # Counted with the lease in hand: of two that come at the same moment at least one sees the other.
        reason = full(pipeline, held_now(keeper.log), PROJECT, keeper.sizes)
        if reason:
            keeper.log.release(claim.token)
            return Skip(pipeline.name, reason)
    return claim.token


def _begun(
    pipeline: Pipeline, fire: Fire, keeper: Keeper, decide: Callable[[PipelineState], Decision | None], token: str
) -> Taken | Skip:
    found = keeper.log.find(PipelineState, pipeline.name)
    state = found or PipelineState(pipeline.name)
    decided = decide(state)
    if isinstance(decided, Fire) and (decided.slot, decided.attempt) == (fire.slot, fire.attempt):
        after = retrying.begun(state, fire.slot, keeper.moment(), interrupted=fire.interrupted)
        kept = keeper.log.swap(found, after)
        if kept is not None:
            failpoint("slot.begun")
            return Taken(pipeline, kept, token)
    return decided if isinstance(decided, Skip) else Skip(pipeline.name, f"slot {fire.slot} was taken by another run")


def give_back(taken: Taken, keeper: Keeper, wait: timedelta) -> None:
    """Undo the beginning of a slot that could not be handed over: it counts for nothing and is begun again after a while."""
    _write(keeper.log, taken.state, lambda state: retrying.not_begun(state, keeper.moment() + wait))
    keeper.log.release(taken.token)


def carry_out(taken: Taken, keeper: Keeper) -> Outcome:
    """Run the slot and write down what became of it; errors of the run are told in the outcome."""
    with Lease(keeper.log, taken.pipeline.name, taken.token, keeper.lease_seconds) as lease:
        return _carried_out(taken, keeper, lease)


def _carried_out(taken: Taken, keeper: Keeper, lease: Lease) -> Outcome:
    pipeline, state, bus = taken.pipeline, taken.state, keeper.options.bus
    shown, run = slot_id(pipeline.name, taken.slot), own_slot_id(pipeline, taken.slot, keeper)
    bus.emit(PipelineBegan(pipeline.name, "", shown, state.attempt))
    began = time.monotonic()
    base = Outcome(pipeline.name, taken.slot, state.attempt, state)
    try:
        slot = slot_interval(pipeline, taken.slot)
        with emitting_attempt(pipeline.name, shown, state.attempt, bus) as outcome:
            outcome.result = run_leased(pipeline, run, keeper, lease, slot)
    except RunCancelledError as error:
        return _settled(taken, keeper, _told(base, error), began)
    except FencedError as error:
        return _settled(taken, keeper, _told(base, error), began, fenced=True, repeatable=True)
    except Exception as error:  # noqa: BLE001 - the engine's boundary: a failed run is an outcome
        return _settled(taken, keeper, _told(base, error), began, repeatable=is_repeatable(error, pipeline.retry))
    failpoint("slot.before_success")
    return _settled(taken, keeper, replace(base, result=outcome.result), began)


def _settled(
    taken: Taken, keeper: Keeper, outcome: Outcome, began: float, *, fenced: bool = False, repeatable: bool = True
) -> Outcome:
    """Write the outcome into the state, unless another run owns the slot by now, and tell of it."""
    now, pipeline = keeper.moment(), taken.pipeline

    def changed(state: PipelineState) -> PipelineState:
        if outcome.cancelled:
            return retrying.cancelled(state, now)
        if outcome.error_type:
            return retrying.failed(state, pipeline.retry, outcome.error_message, now, repeatable=repeatable)
        return retrying.succeeded(state, next(iter(run_ids_of(outcome.result)), ""), now)

    try:
        kept = _write(keeper.log, taken.state, changed)
    except RunLogError as error:
        text = f"{error.what}; what became of {pipeline.name} is looked up in its target when the run log is back"
        warnings.warn(text, UserWarning, stacklevel=2)
        kept = changed(taken.state)
    if kept is None:
        return replace(outcome, overtaken=True)
    failpoint("slot.ended")
    if fenced and kept.slot_status != retrying.GAVE_UP:
        return replace(outcome, state=kept)
    keeper.options.bus.emit(
        replace(
            ended_event(pipeline, kept, now, time.monotonic() - began, outcome.error_type),
            error_message=outcome.error_message,
            run_ids=run_ids_of(outcome.result),
        )
    )
    return replace(outcome, state=kept)


def ended_event(pipeline: Pipeline, state: PipelineState, now: datetime, seconds: float, error: str) -> PipelineEnded:
    """Return what is told when a slot has ended; `error` is the class of what went wrong."""
    return PipelineEnded(
        pipeline.name,
        "",
        slot_id(pipeline.name, state.last_slot),
        now,
        seconds,
        attempt=state.attempt - state.interruptions,
        max_attempts=attempts_of(pipeline),
        gave_up=state.slot_status in (retrying.GAVE_UP, retrying.INTERRUPTED, retrying.CANCELLED),
        error_message=state.error,
        error_type=error,
    )


def _write(log: RunLog, ours: PipelineState, changed: Callable[[PipelineState], PipelineState]) -> PipelineState | None:
    """Change the state as long as it is of our attempt; somebody may have paused the pipeline meanwhile."""
    while True:
        found = log.find(PipelineState, ours.pipeline)
        if found is None or (found.last_slot, found.attempt, found.slot_status) != (
            ours.last_slot,
            ours.attempt,
            retrying.RUNNING,
        ):
            return None
        kept = log.swap(found, changed(found))
        if kept is not None:
            return kept


def _told(outcome: Outcome, error: BaseException) -> Outcome:
    return replace(outcome, error_message=safe_text(error), error_type=type(error).__name__)


def run_leased(pipeline: Pipeline, run: str, keeper: Keeper, lease: Lease, slot: Slot | None = None) -> Any:
    """Run a pipeline under a lease and the name of its load; a fan-out that went on after a failure is not done."""
    options = replace(keeper.options, slot=run, run_log=keeper.log, halt=lease.halt)
    with in_slot(slot):
        result = run_pipeline(pipeline, options)
    errors = errors_in(result)
    if errors:
        raise RunError("; ".join(f"{target}: {text}" for target, text in errors.items()))
    return result


def own_slot_id(pipeline: Pipeline, slot: str, keeper: Keeper) -> str:
    """Return the name of a slot's load in its target, with the name that somebody gave to the project."""
    return slot_id(pipeline.name, slot, keeper.log.project.in_slots)


def slot_interval(pipeline: Pipeline, slot: str) -> Slot:
    """Return the time that a slot stands for."""
    end = instant_of(slot)
    if pipeline.schedule is None:
        return Slot(None, end)
    return Slot(last_slot(pipeline.schedule, pipeline.timezone, end.replace(microsecond=0) - retrying.MOMENT), end)


def is_repeatable(error: BaseException, retry: Retry | None) -> bool:
    """Return whether a policy tries again after an error: everything but what is the same every time, unless it says more."""
    reasons = retry.retry_on if retry is not None else ()
    if not reasons:
        return not isinstance(error, TERMINAL)
    if "any" in reasons:
        return True
    if "transient" in reasons and isinstance(error, FlowError) and error.transient:
        return True
    return any(kind.__name__ in reasons for kind in type(error).__mro__)

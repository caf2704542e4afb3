"""Runs one slot of a pipeline under a lease and records its outcome; which slot it is was decided before."""

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
from ematix_flow.engine.batch.result import run_ids_of, whole
from ematix_flow.engine.batch.run import run_pipeline
from ematix_flow.engine.schedule.lease import LEASE_SECONDS, PipelineLease, default_worker, held_now
from ematix_flow.engine.schedule.pools import full
from ematix_flow.engine.stream.restart_policy import TERMINAL
from ematix_flow.errors import FencedError, FlowError, RunCancelledError, RunLogError
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

INTERRUPTED_RUN = "InterruptedRun"
"""The class of error in events about runs whose process died and that are not repeated by themselves."""


@dataclass(frozen=True, slots=True)
class SlotRunner:
    """How this process runs slots: its name, the length of leases, its run log and options."""

    log: RunLog
    options: Options = field(default_factory=Options)
    worker_id: str = field(default_factory=lambda: default_worker("run"))
    lease_seconds: float = LEASE_SECONDS
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Sizes of pools."""
    now: datetime | None = None
    """The time of decisions where it was given; timestamps of audits are those of the clock."""

    def decision_time(self) -> datetime:
        """Return the instant that decisions are made for."""
        return self.now or self.options.clock.now()


@dataclass(frozen=True, slots=True)
class ClaimedSlot:
    """A slot that this process has the lease for."""

    pipeline: Pipeline
    state: PipelineState
    token: str

    @property
    def slot(self) -> str:
        """Return the slot."""
        return self.state.last_slot


@dataclass(frozen=True, slots=True)
class SlotOutcome:
    """The outcome of an attempt."""

    pipeline: str
    slot: str
    attempt: int
    state: PipelineState
    result: Any = None
    error_message: str = ""
    error_type: str = ""
    overtaken: bool = False
    """Another run has taken the slot over, so this one records nothing; or it kept the slot from its commit."""

    @property
    def overtaken_reason(self) -> str:
        """Return what became of a slot that was overtaken."""
        if self.state.slot_status == retrying.FAILED:
            return f"another run kept slot {self.slot} from its commit; it is begun again"
        return f"slot {self.slot} was taken over by another run"

    @property
    def cancelled(self) -> bool:
        """Return whether it was cancelled before it committed."""
        return self.error_type == RunCancelledError.__name__

    @property
    def success(self) -> bool:
        """Return whether everything was done."""
        return not self.error_type and not self.overtaken


def claim_slot(
    pipeline: Pipeline, due_slot: Fire, runner: SlotRunner, decide: Callable[[PipelineState], Decision | None]
) -> ClaimedSlot | Skip:
    """Take the lease and record that the slot runs, if `decide` still allows it for the state under the lease."""
    token = leased(pipeline, runner)
    if isinstance(token, Skip):
        return token
    failpoint("slot.claimed")
    try:
        claimed = _begun(pipeline, due_slot, runner, decide, token)
    except BaseException:
        with suppress(RunLogError):
            runner.log.release(token)
        raise
    if isinstance(claimed, Skip):
        runner.log.release(token)
    return claimed


def leased(pipeline: Pipeline, runner: SlotRunner) -> str | Skip:
    """Take the lease on a pipeline and a slot of its pool; return the token, or why it is not available now."""
    claim = runner.log.claim(pipeline.name, runner.worker_id, runner.lease_seconds)
    if not claim.acquired or claim.token is None:
        return Skip(pipeline.name, f"running on {claim.holder}")
    if pipeline.pool:
        # Counted with the lease in hand: of two that come at the same moment at least one sees the other.
        reason = full(pipeline, held_now(runner.log), PROJECT, runner.sizes)
        if reason:
            runner.log.release(claim.token)
            return Skip(pipeline.name, reason)
    return claim.token


def _begun(
    pipeline: Pipeline,
    due_slot: Fire,
    runner: SlotRunner,
    decide: Callable[[PipelineState], Decision | None],
    token: str,
) -> ClaimedSlot | Skip:
    while True:  # others may pause the pipeline or write down what they saw of it meanwhile
        existing = runner.log.find(PipelineState, pipeline.name)
        state = existing or PipelineState(pipeline.name)
        decided = decide(state)
        if not isinstance(decided, Fire) or (decided.slot, decided.attempt) != (due_slot.slot, due_slot.attempt):
            break
        after = retrying.begun(state, due_slot.slot, runner.decision_time(), interrupted=due_slot.interrupted)
        stored = runner.log.swap(existing, after)
        if stored is not None:
            failpoint("slot.begun")
            return ClaimedSlot(pipeline, stored, token)
    return (
        decided if isinstance(decided, Skip) else Skip(pipeline.name, f"slot {due_slot.slot} was taken by another run")
    )


def release_slot(claimed: ClaimedSlot, runner: SlotRunner, wait: timedelta) -> None:
    """Undo the beginning of a slot that could not be handed over: it counts for nothing and is begun again after a while."""
    _write(runner.log, claimed.state, lambda state: retrying.not_begun(state, runner.decision_time() + wait))
    runner.log.release(claimed.token)


def run_claimed(claimed: ClaimedSlot, runner: SlotRunner) -> SlotOutcome:
    """Run the slot and record its outcome, which has the errors of the run."""
    with PipelineLease(runner.log, claimed.pipeline.name, claimed.token, runner.lease_seconds) as lease:
        return _run_attempt(claimed, runner, lease)


def _run_attempt(claimed: ClaimedSlot, runner: SlotRunner, lease: PipelineLease) -> SlotOutcome:
    pipeline, state, bus = claimed.pipeline, claimed.state, runner.options.bus
    slot_name, run = slot_id(pipeline.name, claimed.slot), own_slot_id(pipeline, claimed.slot, runner)
    bus.emit(PipelineBegan(pipeline.name, "", slot_name, state.attempt))
    began = time.monotonic()
    base = SlotOutcome(pipeline.name, claimed.slot, state.attempt, state)
    try:
        slot = slot_interval(pipeline, claimed.slot)
        with emitting_attempt(pipeline.name, slot_name, state.attempt, bus) as outcome:
            outcome.result = run_leased(pipeline, run, runner, lease, slot)
    except RunCancelledError as error:
        return _record_outcome(claimed, runner, _with_error(base, error), began)
    except FencedError as error:
        return _record_outcome(claimed, runner, _with_error(base, error), began, fenced=True, repeatable=True)
    except Exception as error:  # noqa: BLE001 - the engine's boundary: a failed run is an outcome
        return _record_outcome(
            claimed, runner, _with_error(base, error), began, repeatable=is_repeatable(error, pipeline.retry)
        )
    failpoint("slot.before_success")
    return _record_outcome(claimed, runner, replace(base, result=outcome.result), began)


def _record_outcome(
    claimed: ClaimedSlot,
    runner: SlotRunner,
    outcome: SlotOutcome,
    began: float,
    *,
    fenced: bool = False,
    repeatable: bool = True,
) -> SlotOutcome:
    """Write the outcome into the state, unless another run owns the slot by now, and emit it."""
    now, pipeline = runner.decision_time(), claimed.pipeline

    def changed(state: PipelineState) -> PipelineState:
        if outcome.cancelled:
            return retrying.cancelled(state, now)
        if fenced and pipeline.resumes and state.interruptions < retrying.INTERRUPTIONS:
            return retrying.set_aside(state, now)
        if outcome.error_type:
            return retrying.failed(state, pipeline.retry, outcome.error_message, now, repeatable=repeatable)
        return retrying.succeeded(state, next(iter(run_ids_of(outcome.result)), ""), now)

    try:
        stored = _write(runner.log, claimed.state, changed)
    except RunLogError as error:
        text = f"{error.what}; what became of {pipeline.name} is looked up in its target when the run log is back"
        warnings.warn(text, UserWarning, stacklevel=2)
        stored = changed(claimed.state)
    if stored is None:
        return replace(outcome, overtaken=True)
    failpoint("slot.ended")
    if fenced and stored.slot_status != retrying.GAVE_UP:
        return replace(outcome, state=stored, overtaken=True)
    runner.options.bus.emit(
        replace(
            ended_event(pipeline, stored, now, time.monotonic() - began, outcome.error_type),
            error_message=outcome.error_message,
            run_ids=run_ids_of(outcome.result),
        )
    )
    return replace(outcome, state=stored)


def ended_event(pipeline: Pipeline, state: PipelineState, now: datetime, seconds: float, error: str) -> PipelineEnded:
    """Return the event for a slot that has ended; `error` is the class of what went wrong."""
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
    """Change the state as long as it is of our attempt; the pipeline may have been paused meanwhile."""
    while True:
        latest = log.find(PipelineState, ours.pipeline)
        if latest is None or (latest.last_slot, latest.attempt, latest.slot_status) != (
            ours.last_slot,
            ours.attempt,
            retrying.RUNNING,
        ):
            return None
        stored = log.swap(latest, changed(latest))
        if stored is not None:
            return stored


def _with_error(outcome: SlotOutcome, error: BaseException) -> SlotOutcome:
    return replace(outcome, error_message=safe_text(error), error_type=type(error).__name__)


def run_leased(pipeline: Pipeline, run: str, runner: SlotRunner, lease: PipelineLease, slot: Slot | None = None) -> Any:
    """Run a pipeline under a lease and the name of its load; a fan-out that went on after a failure is not done."""
    options = replace(runner.options, slot=run, run_log=runner.log, halt=lease.halt)
    with in_slot(slot):
        return whole(run_pipeline(pipeline, options))


def own_slot_id(pipeline: Pipeline, slot: str, runner: SlotRunner) -> str:
    """Return the name of a slot's load in its target, with the declared name of the project."""
    return slot_id(pipeline.name, slot, runner.log.project.in_slots)


def slot_interval(pipeline: Pipeline, slot: str) -> Slot:
    """Return the time that a slot stands for."""
    end = instant_of(slot)
    if pipeline.schedule is None:
        return Slot(None, end)
    return Slot(
        last_slot(pipeline.schedule, pipeline.timezone, end.replace(microsecond=0) - retrying.MIN_SLOT_GAP), end
    )


def is_repeatable(error: BaseException, retry: Retry | None) -> bool:
    """Return whether a policy tries again after an error: all but permanent ones, unless it is more specific."""
    reasons = retry.retry_on if retry is not None else ()
    if not reasons:
        return not isinstance(error, TERMINAL)
    if "any" in reasons:
        return True
    if "transient" in reasons and isinstance(error, FlowError) and error.transient:
        return True
    return any(kind.__name__ in reasons for kind in type(error).__mro__)

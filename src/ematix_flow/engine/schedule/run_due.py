"""Runs what is due once, one pipeline after the other: `flow run-due`; several hosts may do so at the same time."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ematix_flow.commit.runlog.open import forgotten_run_log, open_run_log
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.schedule.abandon import UNRESOLVED, lose
from ematix_flow.engine.schedule.actions import requested_runs
from ematix_flow.engine.schedule.heartbeat import note_round
from ematix_flow.engine.schedule.lease import default_worker, held_now
from ematix_flow.engine.schedule.pools import pool_sizes
from ematix_flow.engine.schedule.requests import run_requested
from ematix_flow.engine.schedule.slot_run import SlotOutcome, SlotRunner, claim_slot, run_claimed
from ematix_flow.engine.schedule.workflows import advance_workflows
from ematix_flow.errors import RunLogError
from ematix_flow.events import PipelineSkipped
from ematix_flow.observe.bus import Bus
from ematix_flow.observe.observers import incident_store_in, observers
from ematix_flow.plan.schedule import retry as retrying
from ematix_flow.plan.schedule.cron import aware, instant_of, last_slot, slot_text
from ematix_flow.plan.schedule.decide import Fire, Lose, Situation, Skip, decide, with_waiting_slot
from ematix_flow.records import PipelineState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.declare.pipeline.pipeline import Pipeline
    from ematix_flow.observe.alerts.alert import Alerter
    from ematix_flow.observe.metrics.run import MetricsSink

WINDOW = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class FiredEvent:
    """A pipeline that ran."""

    name: str
    result: Any


@dataclass(frozen=True, slots=True)
class FailedEvent:
    """A pipeline that failed, and which attempt it was."""

    name: str
    error_message: str
    error_type: str
    attempt_count: int
    gave_up: bool


@dataclass(frozen=True, slots=True)
class SkippedEvent:
    """A pipeline that was due and did not run."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class RunDueResult:
    """What one round did."""

    fired: list[FiredEvent] = field(default_factory=list)
    failed: list[FailedEvent] = field(default_factory=list)
    skipped: list[SkippedEvent] = field(default_factory=list)

    def names(self) -> set[str]:
        """Return the pipelines that were dealt with."""
        events: tuple[FiredEvent | FailedEvent | SkippedEvent, ...] = (*self.fired, *self.failed, *self.skipped)
        return {event.name for event in events}

    def with_all(self, more: RunDueResult) -> RunDueResult:
        """Return what two rounds did."""
        return RunDueResult(self.fired + more.fired, self.failed + more.failed, self.skipped + more.skipped)


Reporter = Callable[[str, str, str], None]
"""Gets `firing`, `failed` or `skipping`, the name of the pipeline and a text about it."""


def run_due(
    runner: SlotRunner, *, window: timedelta = WINDOW, catchup: str | None = None, report: Reporter | None = None
) -> RunDueResult:
    """Run every slot that is due now; one that any host has begun is not begun again."""
    runner, at = situation_or_empty(runner, window, catchup)
    note_round(runner.log)
    requested, result = _run_requested(runner, at, report), RunDueResult()
    while True:
        done = result.names()
        names = [name for name, one in at.project.pipelines.items() if name not in done and _concerns(one, at)]
        one_round = _round(at.project.order(names), runner, at, report)
        result = result.with_all(one_round)
        if not at.project.workflows or not one_round.fired:
            return requested.with_all(result)
        runner, at = situation_or_empty(runner, window, catchup)  # a success may have started a workflow


def _concerns(pipeline: Pipeline, at: Situation) -> bool:
    """Return whether a round reports a pipeline: it is due, or another host runs its slot of the window."""
    state = at.state(pipeline.name)
    runs_on_another_host = pipeline.name in at.held and state.slot_status == retrying.RUNNING
    return decide(pipeline, at) is not None or (
        runs_on_another_host and instant_of(state.last_slot) > at.now - at.window
    )


def _run_requested(runner: SlotRunner, at: Situation, report: Reporter | None) -> RunDueResult:
    """Do the runs that operators requested."""
    result = RunDueResult()
    for action in requested_runs(runner.log, lambda name: name in at.held):
        pipeline = at.project.pipelines.get(action.pipeline)
        if pipeline is None:
            continue
        if report is not None:
            report("firing", pipeline.name, f"{action.kind} requested by {action.asked_by or 'an operator'}")
        outcome = run_requested(action, pipeline, runner)
        if isinstance(outcome, Skip):
            _note(result, outcome, report, runner)
        elif outcome.error_type:
            result.failed.append(FailedEvent(pipeline.name, outcome.error_message, outcome.error_type, 1, gave_up=True))
        else:
            result.fired.append(FiredEvent(pipeline.name, outcome.result))
    return result


def run_named(names: Sequence[str], runner: SlotRunner, report: Reporter | None = None) -> RunDueResult:
    """Run pipelines that the caller found to be due, with the same gates; one that has begun does not begin again."""
    runner, at = situation_or_empty(runner, WINDOW, None, remember=False)  # what is due is the caller's to know
    requested_slots = {name: _newest_slot(at.project.pipeline(name), at) for name in names}
    return _round(at.project.order(list(names)), runner, replace(at, requested=requested_slots), report)


def run_due_with_dag_detailed(
    due: Sequence[str],
    *,
    now: datetime | None = None,
    run_log: RunLog | None = None,
    alerters: Sequence[Alerter | str] | None = None,
    metrics: MetricsSink | str | None = None,
) -> RunDueResult:
    """Run pipelines that the caller found to be due, upstreams first, and return the outcome of each."""
    log = run_log if run_log is not None else open_run_log()
    with observers(alerters or (), metrics, incidents=incident_store_in(log)) as heard_by:
        bus = Bus()
        heard_by.subscribe_to(bus)
        options = Options(run_log=log, bus=bus)
        sizes = pool_sizes(PROJECT)
        return run_named(due, SlotRunner(log, options, default_worker("run-due"), sizes=sizes, now=now and aware(now)))


def run_due_with_dag(due: Sequence[str], **options: Any) -> list[str]:
    """Run pipelines that the caller found to be due and return the names of those that ran."""
    return [event.name for event in run_due_with_dag_detailed(due, **options).fired]


def situation_or_empty(
    runner: SlotRunner, window: timedelta, catchup: str | None, *, remember: bool = True
) -> tuple[SlotRunner, Situation]:
    """Return the situation of decisions; when the run log is away, an empty one that ends with the process."""
    try:
        return runner, read_situation(runner, window, catchup, remember=remember)
    except RunLogError as error:
        text = f"{error.what}; slots that ran before are known by their targets only"
        warnings.warn(text, UserWarning, stacklevel=3)
        runner = replace(runner, log=forgotten_run_log())
        return runner, read_situation(runner, window, catchup, remember=remember)


def read_situation(runner: SlotRunner, window: timedelta, catchup: str | None, *, remember: bool = True) -> Situation:
    """Return the state in the run log, with workflows started and ended; `remember` writes due slots down that may wait."""
    log = runner.log
    states = {state.pipeline: state for state in log.all(PipelineState)}
    at = Situation(PROJECT, runner.decision_time(), states, held_now(log), window, catchup)
    at = advance_workflows(at, log)
    return _remember_due(at, log) if remember else at


def _remember_due(at: Situation, log: RunLog) -> Situation:
    """Return the situation after due slots were written down that would be forgotten if they cannot begin at once."""
    states = dict(at.states)
    for name, pipeline in at.project.pipelines.items():
        after = with_waiting_slot(pipeline, at)
        if after is not None:
            states[name] = log.swap(states.get(name), after) or log.find(PipelineState, name) or after
    return replace(at, states=states)


def _newest_slot(pipeline: Pipeline, at: Situation) -> str:
    if pipeline.schedule is None:
        return slot_text(at.now)
    return slot_text(last_slot(pipeline.schedule, pipeline.timezone, at.now) or at.now)


def _round(names: Iterable[str], runner: SlotRunner, at: Situation, report: Reporter | None) -> RunDueResult:
    """Go through pipelines in order; the outcome of one counts for the next ones."""
    result, states = RunDueResult(), dict(at.states)
    for name in names:
        now = replace(at, states=states)
        for step in _steps(at.project.pipelines[name], runner, now, report):
            _note(result, step, report, runner)
            if isinstance(step, SlotOutcome):
                states[name] = step.state
                now = replace(at, states=states)
    return result


def _steps(
    pipeline: Pipeline, runner: SlotRunner, at: Situation, report: Reporter | None
) -> Iterator[SlotOutcome | Skip]:
    """Return what is done with a pipeline: with `catchup="all"` one slot after the other."""
    while True:
        decided = decide(pipeline, at)
        if isinstance(decided, Lose):
            lost_state = lose(pipeline, decided, runner)
            at = _with_state(at, lost_state)
            if lost_state.slot_status == retrying.RUNNING:
                yield Skip(pipeline.name, UNRESOLVED)
                return
            continue
        if not isinstance(decided, Fire):
            yield decided or Skip(pipeline.name, _idle_reason(pipeline, at))
            return
        outcome = _run_slot(pipeline, decided, runner, at, report)
        yield outcome
        if isinstance(outcome, Skip) or not outcome.success:
            return
        at = _with_state(at, outcome.state)
        if not isinstance(decide(pipeline, at), Fire):
            return


def _run_slot(
    pipeline: Pipeline, due_slot: Fire, runner: SlotRunner, at: Situation, report: Reporter | None
) -> SlotOutcome | Skip:
    claimed = claim_slot(pipeline, due_slot, runner, lambda state: decide(pipeline, under_lease(at, state)))
    if isinstance(claimed, Skip):
        return claimed
    if report is not None:
        report("firing", pipeline.name, due_slot.slot)
    return run_claimed(claimed, runner)


def under_lease(at: Situation, state: PipelineState) -> Situation:
    """Return the situation for the holder of the lease, with the state read again."""
    held = {name: holder for name, holder in at.held.items() if name != state.pipeline}
    return replace(_with_state(at, state), held=held)


def _with_state(at: Situation, state: PipelineState) -> Situation:
    return replace(at, states={**at.states, state.pipeline: state})


def _idle_reason(pipeline: Pipeline, at: Situation) -> str:
    slot = at.requested.get(pipeline.name) or at.state(pipeline.name).last_slot
    holder = at.held.get(pipeline.name)
    return f"slot {slot} has run" if holder is None else f"running on {holder}"


def _note(result: RunDueResult, step: SlotOutcome | Skip, report: Reporter | None, runner: SlotRunner) -> None:
    if isinstance(step, Skip) or step.overtaken:
        reason = step.reason if isinstance(step, Skip) else step.overtaken_reason
        result.skipped.append(SkippedEvent(step.pipeline, reason))
        runner.options.bus.emit(PipelineSkipped(step.pipeline, "", reason))
        message = ("skipping", reason)
    elif step.success:
        result.fired.append(FiredEvent(step.pipeline, step.result))
        return
    else:
        state = step.state
        tried, gave_up = state.attempt - state.interruptions, state.slot_status == retrying.GAVE_UP
        result.failed.append(FailedEvent(step.pipeline, step.error_message, step.error_type, tried, gave_up))
        message = ("failed", step.error_message)
    if report is not None:
        report(message[0], step.pipeline, message[1])

"""The scheduler: one of several that share a run log leads, decides what is due and has it run; it loads nothing itself."""

from __future__ import annotations

import threading
import time
import warnings
from concurrent.futures import wait
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from ematix_flow.background import in_background
from ematix_flow.connect.config.project_name import VARIABLE
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine.executors.base import DispatchSpec
from ematix_flow.engine.schedule.abandon import lose
from ematix_flow.engine.schedule.actions import requested_runs
from ematix_flow.engine.schedule.heartbeat import LEADER
from ematix_flow.engine.schedule.requests import run_requested
from ematix_flow.engine.schedule.run_due import read_situation, under_lease
from ematix_flow.engine.schedule.slot_run import claim_slot, release_slot, run_claimed
from ematix_flow.errors import FlowError, RunLogError
from ematix_flow.events import PipelineSkipped, SchedulerEvent
from ematix_flow.failpoints import failpoint
from ematix_flow.plan.schedule.decide import Lose, Skip, decide
from ematix_flow.plan.schedule.retry import RUNNING
from ematix_flow.records import PipelineState
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from datetime import datetime

    from ematix_flow.commit.runlog.leases import ExpiredClaim
    from ematix_flow.commit.runlog.records import Action
    from ematix_flow.declare.pipeline.pipeline import Pipeline
    from ematix_flow.engine.executors.base import Executor
    from ematix_flow.engine.schedule.slot_run import ClaimedSlot, SlotRunner
    from ematix_flow.plan.schedule.decide import Fire, Situation


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """How a scheduler works."""

    module: str = ""
    executor: Executor | None = None
    """What runs slots; threads of this process when there is none."""
    workers: int = 4
    poll_seconds: float = 10.0
    leader_seconds: float = 60.0
    window: timedelta = timedelta(seconds=60)
    catchup: str | None = None
    run_log_url: str = ""
    alerter_urls: tuple[str, ...] = ()
    metrics_url: str | None = None
    max_iterations: int | None = None
    drain_seconds: float = 25.0
    """How long runs of this process may take to end after a signal."""
    sleep: Callable[[float], None] | None = None
    """Waits between ticks, in place of a wait that ends when a run does."""


@dataclass
class Scheduler:
    """Ticks until it is stopped."""

    runner: SlotRunner
    settings: SchedulerSettings = field(default_factory=SchedulerSettings)
    stop: threading.Event = field(default_factory=threading.Event)
    checks: tuple[Callable[[datetime], None], ...] = ()
    """What is checked in every tick even when nothing runs, such as the freshness of targets."""
    _running: dict[str, Future[object]] = field(default_factory=dict)
    _checks_future: Future[object] | None = None
    _waiting: dict[str, str] = field(default_factory=dict)
    """Why pipelines do not run, as last reported."""
    _leads: str = ""
    """The token of the leader's lease."""

    def run(self) -> None:
        """Tick until stopped, then wait for the runs of this process."""
        number, settings = 0, self.settings
        try:
            while not self.stop.is_set():
                self.tick()
                number += 1
                if settings.max_iterations is not None and number >= settings.max_iterations:
                    break
                self._pause(settings.poll_seconds)
        finally:
            self._drain(number)

    def _pause(self, seconds: float) -> None:
        """Wait for the next tick, but not longer than until a run has ended: something may wait for it."""
        if self.settings.sleep is not None:
            self.settings.sleep(seconds)
            return
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self._has_ended() and not self.stop.wait(min(0.2, seconds)):
            continue

    def begun(self) -> list[Future[object]]:
        """Return the runs of this process that a tick has begun or found under way."""
        return list(self._running.values())

    def _has_ended(self) -> bool:
        """Return whether a run has ended since the last tick began, which may have decided before that."""
        return any(one.done() for one in self._running.values())

    def tick(self) -> None:
        """Do everything that is due now; an error of one tick never ends the scheduler."""
        try:
            self._collect()
            if self._lead():
                failpoint("scheduler.leading")
                self._sweep()
                self._dispatch_due()
        except RunLogError as error:
            self._report("tick_error", "", f"{error.what}; nothing is begun until the run log answers")
        except FlowError as error:
            self._report("tick_error", "", safe_text(error))
        except Exception as error:  # noqa: BLE001 - the engine's boundary: the next tick comes whatever this one met
            self._report("tick_error", "", f"{type(error).__name__}: {safe_text(error)}")

    def _lead(self) -> bool:
        """Keep the leader's lease, or take it when it is free."""
        log, seconds = self.runner.log, self.settings.leader_seconds
        if self._leads and log.heartbeat(self._leads, seconds):
            return True
        claim = log.claim(LEADER, self.runner.worker_id, seconds)
        if claim.acquired != bool(self._leads):
            self._report("leader", "", f"{self.runner.worker_id} leads" if claim.acquired else f"{claim.holder} leads")
        self._leads = claim.token or "" if claim.acquired else ""
        return claim.acquired

    def _sweep(self) -> None:
        for expired in self.runner.log.sweep_expired_leases():
            self._report("lease_expired", expired.pipeline, self._lost(expired))

    def _lost(self, expired: ExpiredClaim) -> str:
        """Report which worker lost which slot, and what happens with it now."""
        state, pipeline = self.runner.log.find(PipelineState, expired.pipeline), PROJECT.pipelines.get(expired.pipeline)
        unbegun = self.settings.executor is not None and expired.worker_id == self.runner.worker_id
        who = "the requested worker never started" if unbegun else f"{expired.worker_id} was silent for too long"
        if state is None or pipeline is None or state.slot_status != RUNNING:
            return f"{who}; no slot was lost"
        after = "it is begun again"
        if state.cancelled_by:
            after = f"it was cancelled by {state.cancelled_by} and is not begun again"
        elif not pipeline.resumes:
            after = f"it is not repeated by itself: flow runs resume {pipeline.name}"
        return f"{who} and lost slot {state.last_slot}, attempt {state.attempt}; {after}"

    def _dispatch_due(self) -> None:
        at = read_situation(self.runner, self.settings.window, self.settings.catchup)
        self._run_checks(at.now)
        for action in requested_runs(self.runner.log, lambda name: name in at.held):
            self._begin_requested(action)
        decided = {name: decision for name in PROJECT.pipelines if (decision := self._decision(name, at)) is not None}
        for name in PROJECT.order(list(decided)):
            if self.stop.is_set():
                return
            decision = decided[name]
            if isinstance(decision, Lose):
                lose(PROJECT.pipelines[name], decision, self.runner)
            elif isinstance(decision, Skip):
                self._skip(decision)
            else:
                self._dispatch_slot(PROJECT.pipelines[name], decision, at)

    def _collect(self) -> None:
        """Drop the runs that have ended; they report their own errors, unless those of the run log."""
        for name, one in list(self._running.items()):
            if one.done():
                del self._running[name]
                error = one.exception()
                if error is not None:
                    self._report("tick_error", name, f"{type(error).__name__}: {safe_text(error)}")

    def _run_checks(self, now: datetime) -> None:
        """Run the checks in the background: they may query databases, which may be slow."""
        if self.checks and (self._checks_future is None or self._checks_future.done()):
            if self._checks_future is not None and (error := self._checks_future.exception()) is not None:
                self._report("tick_error", "", f"{type(error).__name__}: {safe_text(error)}")
            self._checks_future = in_background(lambda: [check(now) for check in self.checks], "looks")

    def _decision(self, name: str, at: Situation) -> Fire | Skip | Lose | None:
        return None if name in self._running else decide(PROJECT.pipelines[name], at)

    def _dispatch_slot(self, pipeline: Pipeline, due_slot: Fire, at: Situation) -> None:
        if self.settings.executor is None and len(self._running) >= self.settings.workers:
            self._skip(Skip(pipeline.name, f"no place is free, of {self.settings.workers}"))
            return
        claimed = claim_slot(pipeline, due_slot, self.runner, lambda state: decide(pipeline, under_lease(at, state)))
        if isinstance(claimed, Skip):
            self._skip(claimed)
            return
        self._waiting.pop(pipeline.name, None)
        failpoint("scheduler.taken")
        if self.settings.executor is None:
            self._start(pipeline.name, lambda: run_claimed(claimed, self.runner))
            self._report("dispatched", pipeline.name, f"slot {due_slot.slot}, attempt {due_slot.attempt}")
        else:
            self._hand_over(claimed, self.settings.executor)
        failpoint("scheduler.dispatched")

    def _start(self, name: str, work: Callable[[], object]) -> None:
        # Not in threads of a pool, which the end of the process would wait for without a limit.
        self._running[name] = in_background(work, f"slot-{name}")

    def _hand_over(self, claimed: ClaimedSlot, executor: Executor) -> None:
        settings = self.settings
        spec = DispatchSpec(
            claimed.pipeline.name,
            settings.module,
            claimed.token,
            int(self.runner.lease_seconds),
            settings.run_log_url,
            settings.alerter_urls,
            settings.metrics_url,
            {VARIABLE: self.runner.log.project.as_variable},
        )
        try:
            executor.dispatch(spec)
        except FlowError as error:  # DispatchError, or a client that is not installed
            release_slot(claimed, self.runner, timedelta(seconds=settings.poll_seconds))
            self._report("dispatch_failed", claimed.pipeline.name, safe_text(error))
        else:
            self._report("dispatched", claimed.pipeline.name, f"slot {claimed.slot}, attempt {claimed.state.attempt}")

    def _begin_requested(self, action: Action) -> None:
        pipeline = PROJECT.pipelines.get(action.pipeline)
        if pipeline is None or pipeline.name in self._running or len(self._running) >= self.settings.workers:
            return
        self._start(pipeline.name, lambda: run_requested(action, pipeline, self.runner))
        self._report("dispatched", pipeline.name, f"{action.kind} requested by {action.asked_by or 'an operator'}")

    def _skip(self, skip: Skip) -> None:
        """Report why something waits, once as long as the reason is the same."""
        if self._waiting.get(skip.pipeline) == skip.reason:
            return
        self._waiting[skip.pipeline] = skip.reason
        self.runner.options.bus.emit(PipelineSkipped(skip.pipeline, "", skip.reason))

    def _report(self, what: str, pipeline: str, text: str) -> None:
        self.runner.options.bus.emit(SchedulerEvent(pipeline, "", what, text))

    def _drain(self, ticks: int) -> None:
        """Wait for the runs of this process and release the lead; what is not done then is taken up by others."""
        seconds = None if ticks == self.settings.max_iterations else self.settings.drain_seconds
        left = wait(self._running.values(), seconds).not_done
        if left:
            text = f"{quantity(len(left), 'run')} had no time to end; the next scheduler takes up what is left"
            warnings.warn(text, UserWarning, stacklevel=2)
        if self._leads:
            try:
                self.runner.log.release(self._leads)
            except RunLogError as error:
                warnings.warn(error.what, UserWarning, stacklevel=2)
            self._leads = ""

"""A run log, a clock that tests move, and pipelines that only note that they ran: what tests of slots share."""

from __future__ import annotations

from concurrent.futures import wait
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ematix_flow.clock import Clock
from ematix_flow.declare.pipeline.function_pipeline import register
from ematix_flow.declare.schedule.workflow import workflow_key
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.schedule.run_due import run_due
from ematix_flow.engine.schedule.scheduler import Scheduler, SchedulerSettings
from ematix_flow.engine.schedule.slot_run import SlotRunner
from ematix_flow.events import PipelineEnded, PipelineSkipped, SchedulerEvent
from ematix_flow.observe.bus import Bus
from ematix_flow.records import PipelineState

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.engine.schedule.run_due import RunDueResult
    from ematix_flow.events import Event

HOURLY = "0 * * * *"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass
class Rig:
    """Everything that a scheduler needs, and what it did."""

    log: RunLog
    now: datetime = NOON + timedelta(seconds=5)
    ran: list[str] = field(default_factory=list)
    heard: list[Event] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)
    """Pipelines that fail for now."""

    def add(self, name: str, schedule: str | None = HOURLY, work: Callable[[], Any] | None = None, **more: Any) -> None:
        """Declare a pipeline that notes its name when it runs."""

        def run() -> Any:
            self.ran.append(name)
            if name in self.broken:
                raise OSError(f"{name} is broken")
            return work() if work is not None else {"rows": 1}

        register(name=name, schedule=schedule, **more)(run)

    def runner(self, worker: str = "one", **more: Any) -> SlotRunner:
        """Return who runs slots by the clock of the test."""
        bus = Bus()
        bus.subscribe(self.heard.append)
        clock = Clock(lambda: self.now, self.pass_time)
        return replace(SlotRunner(self.log, Options(run_log=self.log, bus=bus, clock=clock), worker), **more)

    def pass_time(self, seconds: float) -> None:
        """Let the clock go on."""
        self.now += timedelta(seconds=seconds)

    def scheduler(self, worker: str = "one", **settings: Any) -> Scheduler:
        """Return a scheduler that does not look by itself."""
        return Scheduler(self.runner(worker), SchedulerSettings(poll_seconds=0.01, **settings))

    def due(self, worker: str = "one", **more: Any) -> RunDueResult:
        """Run what is due."""
        return run_due(self.runner(worker), **more)

    def state(self, name: str) -> PipelineState:
        """Return what the run log knows of a pipeline."""
        return self.log.find(PipelineState, name) or PipelineState(name)

    def workflow(self, name: str) -> PipelineState:
        """Return what the run log knows of a workflow."""
        return self.state(workflow_key(name))

    def skipped(self) -> dict[str, str]:
        """Return the last reason for which each pipeline was skipped."""
        return {event.pipeline: event.reason for event in self.heard if isinstance(event, PipelineSkipped)}

    def events_of(self, what: str) -> list[SchedulerEvent]:
        """Return what schedulers said of one kind."""
        return [event for event in self.heard if isinstance(event, SchedulerEvent) and event.what == what]

    def ended(self) -> list[PipelineEnded]:
        """Return the slots that ended."""
        return [event for event in self.heard if isinstance(event, PipelineEnded)]


def ticked(scheduler: Scheduler, times: int = 1) -> None:
    """Have a scheduler look, and wait for what it began."""
    for _ in range(times):
        scheduler.tick()
        done, left = wait(scheduler.begun(), 30)
        assert not left, f"{len(left)} of {len(done) + len(left)} runs do not end"

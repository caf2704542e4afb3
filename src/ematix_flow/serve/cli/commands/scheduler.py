"""`flow scheduler` and `flow up`: long-running commands that have slots and streams run until they are stopped."""

from __future__ import annotations

import sys
import threading
from contextlib import redirect_stdout
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.schedule.schedule import CATCHUPS
from ematix_flow.serve.cli.common.errors import DONE, FAILED, as_usage_error, print_error
from ematix_flow.serve.cli.common.find_streams import find_streams
from ematix_flow.serve.cli.common.options import (
    common_options,
    engine_option,
    load,
    module_option,
    observer_options,
    project_module,
    run_log_options,
)
from ematix_flow.serve.cli.common.output import talk
from ematix_flow.serve.cli.common.slot_runner import YEAR_SECONDS, Amount, log_address, slot_runner_for
from ematix_flow.serve.cli.common.spark import stop_spark_at_end
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.engine.schedule.scheduler import Scheduler
    from ematix_flow.events import Event

_COLOURS = {
    "dispatched": "cyan",
    "leader": "",
    "lease_expired": "yellow",
    "dispatch_failed": "red",
    "tick_error": "red",
}


STARTED_SECONDS = 300.0
"""A worker on another machine may take minutes to start, and only then renews its lease."""


def _options(command: Any) -> Any:
    for option in reversed((
        click.option("--executor", default="inprocess://", show_default=True, metavar="URL", help="Who runs slots."),
        click.option("--workers", type=click.IntRange(1), default=4, show_default=True, help="Slots at a time, in-process."),
        click.option("--poll-interval", type=Amount(0.05, YEAR_SECONDS), default=10.0, show_default=True, help="Seconds between looks."),
        click.option("--interval", type=Amount(1, YEAR_SECONDS), default=60.0, show_default=True, help="Seconds of the window."),
        click.option("--lease-seconds", type=click.IntRange(1, YEAR_SECONDS), help="Silence after which a run is taken over [default: 60; 300 where workers have to be started]."),
        click.option("--leader-lease-seconds", type=click.IntRange(1, YEAR_SECONDS), default=60, show_default=True, help="The same for the leading scheduler."),
        click.option("--catchup", type=click.Choice(CATCHUPS), help="Which missed slots run, whatever pipelines say."),
        click.option("--worker-id", metavar="NAME", help="Name of this process [default: scheduler-HOST-PID]."),
        click.option("--max-iterations", type=click.IntRange(1), help="End after so many looks."),
    )):  # fmt: skip
        command = option(command)
    return command


@click.command()
@module_option
@_options
@run_log_options
@observer_options
@engine_option
@common_options
def scheduler(module: str | None, **options: Any) -> int:
    """Have pipelines run when they are due, until stopped; several may share a run log, and one of them leads."""
    load(module)
    instance = _scheduler(module, options, threading.Event())
    _run(instance)
    return DONE


@click.command()
@module_option
@_options
@run_log_options
@observer_options
@engine_option
@common_options
def up(module: str | None, **options: Any) -> int:
    """Run every stream of a module and have its pipelines run when they are due, until stopped."""
    load(module)
    from ematix_flow.background import in_background
    from ematix_flow.engine.stream.options import StreamOptions
    from ematix_flow.engine.stream.run_many import run_streams

    stop = threading.Event()
    instance = _scheduler(module, options, stop)
    names = sorted((*PROJECT.streams, *PROJECT.replications))
    streams = find_streams(names, module) if names else []
    if not streams:
        _run(instance)
        return DONE
    runner = instance.runner
    stream_options = StreamOptions(run_log=runner.log, bus=runner.options.bus, stop=stop, restart=True)
    running = in_background(lambda: run_streams(streams, stream_options), "streams")
    _run(instance)
    outcomes = running.result()
    failed = [error for error in outcomes.values() if isinstance(error, Exception)]
    for error in failed:
        print_error(error, with_traceback=False)
    return FAILED if failed else DONE


def _scheduler(module: str | None, options: dict[str, Any], stop: threading.Event) -> Scheduler:
    from ematix_flow.engine.executors.open import from_url
    from ematix_flow.engine.schedule.freshness import FreshnessWatch
    from ematix_flow.engine.schedule.lease import LEASE_SECONDS
    from ematix_flow.engine.schedule.scheduler import Scheduler, SchedulerSettings
    from ematix_flow.engine.stream.change_lag import LagWatch
    from ematix_flow.observe.bus import Bus

    if options["no_run_log"]:
        raise click.UsageError("a scheduler needs a run log: it is where slots are claimed.")
    with as_usage_error():
        executor = from_url(options["executor"])
    log, bus = _wait_for_log(options), Bus()
    if executor is None:
        stop_spark_at_end()
    bus.subscribe(_show)
    seconds = options["lease_seconds"] or (LEASE_SECONDS if executor is None else STARTED_SECONDS)
    runner = slot_runner_for(log, {**options, "lease_seconds": seconds}, bus, "scheduler")
    settings = SchedulerSettings(
        module=module or project_module() or "",
        executor=executor,
        workers=options["workers"],
        poll_seconds=options["poll_interval"],
        leader_seconds=float(options["leader_lease_seconds"]),
        window=timedelta(seconds=options["interval"]),
        catchup=options["catchup"],
        run_log_url=log_address(options),
        alerter_urls=tuple(options["alerter"]),
        metrics_url=options["metrics"],
        max_iterations=options["max_iterations"],
    )
    return Scheduler(runner, settings, stop, (FreshnessWatch(bus, log), LagWatch(bus)))


def _wait_for_log(options: dict[str, Any]) -> RunLog:
    """Return the run log as soon as it answers: without it, it is unknown which slots have run."""
    from ematix_flow.commit.runlog.open import open_run_log
    from ematix_flow.connect.base.retry import RUN_LOG_AWAY, attempts

    def report(error: Exception, seconds: float) -> None:
        _talk_timed(f"run log: {getattr(error, 'what', error)}; trying again in {seconds:g} s", "yellow")

    interval = options["poll_interval"]
    policy = replace(RUN_LOG_AWAY, first_wait=interval, longest_wait=interval)
    for attempt in attempts(policy, waiting=report):
        with attempt, as_usage_error():
            log = open_run_log(options["run_log_url"], options["run_log_path"], required=True)
    return log


def _run(instance: Scheduler) -> None:
    from ematix_flow.engine.stream.run import finishing

    names = ", ".join(sorted(PROJECT.pipelines)) or "none"
    known = quantity(len(PROJECT.pipelines), "pipeline")
    _talk_timed(f"{instance.runner.worker_id}: {known} ({names[:200]}); Ctrl-C ends it after their runs")
    with finishing(instance.stop), redirect_stdout(sys.stderr):
        instance.run()


def _show(event: Event) -> None:
    from ematix_flow.events import PipelineEnded, SchedulerEvent

    if isinstance(event, SchedulerEvent):
        text = f"{event.what}: {event.pipeline}{' ' if event.pipeline else ''}({event.text})"
        _talk_timed(text, _COLOURS[event.what])
    elif isinstance(event, PipelineEnded):
        detail = f"{event.error_type}: {event.error_message}" if event.error_type else f"{event.seconds:.1f} s"
        status, colour = ("failed", "red") if event.error_type else ("done", "green")
        _talk_timed(f"{status}: {event.slot} ({detail})", colour)


def _talk_timed(text: str, colour: str = "") -> None:
    """Write a message in one line with its time: a scheduler runs for months."""
    from ematix_flow.clock import SYSTEM_CLOCK

    line = " ".join(part.strip() for part in text.splitlines())
    talk(f"{SYSTEM_CLOCK.now():%Y-%m-%dT%H:%M:%SZ} {line}", colour)

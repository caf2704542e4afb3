"""`flow run`: one pipeline, now; the engine does the work, this command parses, reports and prints."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

import click

from ematix_flow.connect.config.project_name import VARIABLE
from ematix_flow.failpoints import failpoint
from ematix_flow.serve.cli.common.capture import capture_enabled, captured
from ematix_flow.serve.cli.common.errors import DONE, FAILED, print_error_text
from ematix_flow.serve.cli.common.options import (
    common_options,
    engine_option,
    find_pipeline,
    module_option,
    observer_options,
    open_log,
    open_observers,
    run_log_options,
)
from ematix_flow.serve.cli.common.output import emit, emit_json
from ematix_flow.serve.cli.common.run_progress import progress_subscriber
from ematix_flow.serve.cli.common.spark import start_spark_early
from ematix_flow.serve.cli.common.state import current

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.declare.pipeline.pipeline import Pipeline
    from ematix_flow.observe.bus import Bus
    from ematix_flow.observe.observers import Observers

_WORKER_OPTIONS = (
    ("--claim-token", {"metavar": "TOKEN"}),
    ("--lease-seconds", {"type": int, "default": 300}),
    ("--heartbeat-interval", {"type": int, "default": 100}),
    ("--project", {"metavar": "NAME"}),
)


def _worker_options(command: Any) -> Any:
    """Add the options that a scheduler gives to its workers."""
    for name, settings in reversed(_WORKER_OPTIONS):
        command = click.option(name, hidden=True, **settings)(command)
    return command


@click.command()
@click.argument("name")
@module_option
@click.option("--new", is_flag=True, help="Load afresh, even if an earlier run was interrupted.")
@run_log_options
@click.option("--format", "form", type=click.Choice(["json", "text"]), help="JSON also for a failure, or text.")
@observer_options
@_worker_options
@engine_option
@common_options
def run(name: str, module: str | None, new: bool, form: str | None, **options: Any) -> int:
    """Run a pipeline now and print its result as JSON; an interrupted run is resumed."""
    state = current()
    state.when_stopped = "running it again takes up this run where it stopped."
    if options["project"]:  # where a scheduler cannot set the variable for its worker
        os.environ[VARIABLE] = options["project"]
    pipeline = find_pipeline(module, name)
    log = open_log(options["run_log_url"], options["run_log_path"], no_run_log=options["no_run_log"])
    if options["claim_token"]:
        return _work(pipeline, log, options)
    with _run_context(pipeline, log, open_observers(options, log)) as bus:
        from ematix_flow.engine import Options, run_unclosed

        result, close = run_unclosed(pipeline, Options(new=new, run_log=log, bus=bus))
    failpoint("result.before_print")
    if not _delivered(as_text(pipeline, result) if form == "text" else None, result):
        return FAILED
    failpoint("result.after_print")
    if not options["no_run_log"]:  # which is forgotten with its requests
        state.close_request = close
    return verdict(result)


def _delivered(text: str | None, result: Any) -> bool:
    """Write the result to stdout; report when that is not possible, and what follows from it."""
    try:
        if emit_json(result) if text is None else emit(text):
            return True
        problem = "the reader of its result is gone"
    except OSError as error:
        problem = f"its result could not be written: {error.strerror or error}"
    print_error_text(f"the run is committed, but {problem}", "running it again prints the result and loads nothing.")
    return False


def _work(pipeline: Pipeline, log: RunLog, options: dict[str, Any]) -> int:
    """Run the slot that a scheduler has claimed for this process."""
    from ematix_flow.engine.schedule.worker import work
    from ematix_flow.serve.cli.common.slot_runner import slot_runner_for

    bus = run_bus(pipeline, log)
    start_spark_early(pipeline)
    runner = slot_runner_for(log, options, bus, "worker")
    with progress_subscriber() as subscriber, redirect_stdout(sys.stderr):
        bus.subscribe(subscriber)
        outcome = work(pipeline, options["claim_token"], runner)
    if outcome.overtaken:
        print_error_text(f"{pipeline.name}: {outcome.overtaken_reason}. Nothing was changed.")
    elif outcome.error_type:
        print_error_text(f"{outcome.error_type}: {outcome.error_message}")
    else:
        emit_json(outcome.result)
    return DONE if outcome.success else FAILED


@contextmanager
def _run_context(pipeline: Pipeline, log: RunLog, observers: Observers) -> Iterator[Bus]:
    """Return the bus of a run with everything around it: signals, progress, captured logs and an early start of Spark."""
    bus = run_bus(pipeline, log)
    observers.subscribe_to(bus)
    start_spark_early(pipeline)
    with progress_subscriber() as subscriber, redirect_stdout(sys.stderr):
        bus.subscribe(subscriber)
        yield bus


def run_bus(pipeline: Pipeline, log: RunLog) -> Bus:
    """Return a bus that signals and captured logs are subscribed to."""
    from ematix_flow.clock import SYSTEM_CLOCK
    from ematix_flow.observe.bus import Bus

    state, bus = current(), Bus()
    state.stop.steps_left = 0 if pipeline.fan_out else len(pipeline.transforms_post)
    if capture_enabled():
        since = SYSTEM_CLOCK.now().isoformat()
        state.ending.enter_context(captured(bus, lambda: _run_ids(pipeline, log, since), pipeline.name))
    bus.subscribe(state.stop.on_event)
    return bus


def _run_ids(pipeline: Pipeline, log: RunLog, since: str) -> list[str]:
    runs, _ = log.list_runs(pipeline=pipeline.name, limit=len(pipeline.targets) or 1)
    return [run.run_id for run in runs if run.started_at >= since]


def verdict(result: Any) -> int:
    """Return the exit code of a result; a fan-out with a failed target has failed."""
    from ematix_flow.engine.batch.result import errors_in

    errors = errors_in(result)
    for target, text in errors.items():
        print_error_text(f"{target}: {text}")
    return FAILED if errors else DONE


def as_text(pipeline: Pipeline, result: Any) -> str:
    """Return a result in one line per target."""
    if not isinstance(result, dict):
        return f"{pipeline.name}: {result}"
    by_target = result.get("results", result) if pipeline.fan_out else {pipeline.name: result}
    lines = []
    for name, one in by_target.items():
        counts = ", ".join(
            f"{value:,} {key.removeprefix('rows_')}" for key, value in one.items() if key.startswith("rows_")
        )
        lines.append(f"{name}: {one.get('status', 'done')}, {counts}" if counts else f"{name}: {one}")
    return "\n".join(lines)

"""`flow apply`: commit what a plan staged; the engine does the work, this command parses, reports and prints."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ematix_flow.events import RunCommitted, RunStarted
from ematix_flow.serve.cli.commands.run import as_text, run_bus, verdict
from ematix_flow.serve.cli.common.errors import as_usage_error
from ematix_flow.serve.cli.common.options import common_options, load, module_option, open_log, run_log_location_options
from ematix_flow.serve.cli.common.output import emit, emit_json, talk
from ematix_flow.serve.cli.common.run_progress import sentence
from ematix_flow.serve.cli.common.spark import stop_spark_at_end
from ematix_flow.serve.cli.common.state import current

if TYPE_CHECKING:
    from ematix_flow.events import Event


@click.command()
@click.argument("plan_id")
@module_option
@run_log_location_options
@click.option("--format", "form", type=click.Choice(["json", "text"]), help="JSON also for a failure, or text.")
@common_options
def apply(plan_id: str, module: str | None, form: str | None, **options: Any) -> int:
    """Load exactly what a plan of flow plan --diff has shown, and print the result as JSON.

    A plan whose target changed since then is refused, and nothing is changed.
    """
    state = current()
    state.when_stopped = "applying the plan again takes it up where it stopped."
    stop_spark_at_end()
    log = open_log(options["run_log_url"], options["run_log_path"], no_run_log=False)
    from ematix_flow.engine import Options
    from ematix_flow.engine.review.apply import apply_open, open_plan
    from ematix_flow.engine.review.diff import plan_store

    with as_usage_error():
        stored = plan_store(log).read(plan_id)
    if stored.module_needed:
        load(module, required=False)
    chosen = Options(run_log=log)
    with redirect_stdout(sys.stderr):
        plan = open_plan(plan_id, chosen)
        bus = run_bus(plan.pipeline, log)
        bus.subscribe(lambda event: _print_event(event, plan_id))
        result = apply_open(plan, replace(chosen, bus=bus))
    if form == "text":
        emit(as_text(plan.pipeline, result))
    else:
        emit_json(result)
    return verdict(result)


def _print_event(event: Event, plan_id: str) -> None:
    if isinstance(event, RunCommitted) and event.replayed:
        talk(f"{event.target}: plan {plan_id} is applied already; nothing was loaded again.")
        return
    line = None if isinstance(event, RunStarted) else sentence(event)
    if line is not None:
        talk(line)

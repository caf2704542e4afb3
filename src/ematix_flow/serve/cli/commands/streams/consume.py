"""`flow consume` and `flow consume-list`: streams, until stopped; the engine runs them, this command prints."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext, redirect_stdout
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from ematix_flow.declare.project import PROJECT
from ematix_flow.serve.cli.common.errors import DONE, FAILED, failure_of, print_error
from ematix_flow.serve.cli.common.find_streams import find_streams
from ematix_flow.serve.cli.common.options import (
    common_options,
    engine_option,
    format_option,
    load,
    module_option,
    open_log,
    run_log_options,
)
from ematix_flow.serve.cli.common.output import emit, emit_json, talk
from ematix_flow.serve.cli.common.spark import stop_spark_at_end
from ematix_flow.serve.cli.common.state import current
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from ematix_flow.engine.stream.run_many import StreamOutcome
    from ematix_flow.observe.bus import Bus

_WHERE = "an instant, or a position as JSON"


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME | FILE.toml]...")
@module_option
@click.option("--all", "everything", is_flag=True, help="Every stream of the module.")
@click.option(
    "--available-now", "--once", "once", is_flag=True, help="Load what is there now, then end, instead of waiting."
)
@click.option("--from", "begin", metavar="WHERE", help=f"Run over a range that begins here: earliest, {_WHERE}.")
@click.option("--to", "end", metavar="WHERE", help=f"End of the range; what lies there is not read: latest, {_WHERE}.")
@click.option("--metrics-port", type=click.IntRange(0, 65535), help="Serve metrics for Prometheus here; 0: any port.")
@click.option("--restart-on-error", is_flag=True, help="Try again after an error, with growing pauses.")
@click.option(
    "--max-backoff-ms", type=click.IntRange(1), default=60_000, show_default=True, help="The longest of these pauses."
)
@run_log_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "text", "lines"]),
    default="json",
    show_default=True,
    help="What is printed at the end; with lines, every batch is a line of JSON too.",
)
@engine_option
@common_options
def consume(names: tuple[str, ...], module: str | None, everything: bool, form: str, **options: Any) -> int:
    """Run streams until SIGTERM or Ctrl-C: the batch under way is finished, then the totals are printed as JSON."""
    state = current()
    state.json_errors = form == "json"
    state.when_stopped = "nothing is lost: the stream goes on where it stopped."
    streams = find_streams(names, module, everything=everything)
    log = open_log(options["run_log_url"], options["run_log_path"], no_run_log=options["no_run_log"])
    stop_spark_at_end()
    from ematix_flow.engine.stream.options import StreamOptions
    from ematix_flow.engine.stream.run_many import run_streams
    from ematix_flow.serve.cli.common.stream_progress import watched

    if options["metrics_port"] is not None:
        streams = [replace(stream, metrics_port=options["metrics_port"]) for stream in streams]
    stream_options = StreamOptions(
        available_now=options["once"],
        begin=options["begin"],
        end=options["end"],
        restart=options["restart_on_error"],
        max_backoff=options["max_backoff_ms"] / 1000,
        run_log=log,
    )
    out = sys.stdout if form == "lines" else None
    with (
        watched(stream_options.bus, [stream.name for stream in streams], out),
        _stored(stream_options.bus),
        redirect_stdout(sys.stderr),
    ):
        outcomes = run_streams(streams, stream_options)
    return _print_outcomes(outcomes, form)


def _stored(bus: Bus) -> AbstractContextManager[Any]:
    """Keep what streams say, each in a log of its own, unless that is forbidden."""
    from ematix_flow.serve.cli.common.capture import capture_enabled, captured

    return captured(bus) if capture_enabled() else nullcontext()


def _print_outcomes(outcomes: Mapping[str, StreamOutcome], form: str) -> int:
    """Print what the streams did and return the exit code; one alone is printed without its name."""
    failed = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, Exception)}
    for error in failed.values():
        print_error(error, with_traceback=current().traceback)
    results = {
        name: asdict(failure_of(outcome)) if isinstance(outcome, Exception) else outcome
        for name, outcome in outcomes.items()
    }
    result: Any = results if len(results) > 1 else next(iter(results.values()))
    if form == "text":
        emit("\n".join(_line(name, outcome) for name, outcome in outcomes.items()))
    elif form == "lines":
        emit(json.dumps({"event": "end", **result}, ensure_ascii=False))
    else:
        emit_json(result)
    return FAILED if failed else DONE


def _line(name: str, outcome: StreamOutcome) -> str:
    if isinstance(outcome, Exception):
        return f"{name}: failed"
    how = "stopped" if outcome["shutdown_triggered"] else "done"
    rows = quantity(outcome["total_rows"], "row")
    return f"{name}: {how}, {rows} in {quantity(outcome['iterations'], 'batch', 'batches')}"


@click.command("consume-list")
@module_option
@format_option
@common_options
def consume_list(module: str | None, form: str) -> int:
    """Show the streams and replications of a module."""
    load(module)
    names = sorted((*PROJECT.streams, *PROJECT.replications))
    if form == "json":
        emit_json({"pipelines": names})
    elif names:
        emit("\n".join(names))
    else:
        talk("the module declares no streams.")
    return DONE

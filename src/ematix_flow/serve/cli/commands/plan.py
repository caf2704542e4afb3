"""`flow preview`, `plan`, `dry-run` and `validate`: print the plan that a run, or the next batch of a stream, would execute."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import Any

import click

from ematix_flow.declare.pipeline.handle import PipelineHandle
from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.stream.handle import StreamHandle
from ematix_flow.errors import DeclareTypeError
from ematix_flow.serve.cli.common.errors import DONE, FAILED, UsageRefusedError, print_error_text
from ematix_flow.serve.cli.common.find_streams import find_stream, is_file
from ematix_flow.serve.cli.common.options import (
    COUNT_OR_NONE,
    common_options,
    engine_option,
    find_pipeline,
    format_option,
    load,
    module_option,
    open_log,
    run_log_location_options,
)
from ematix_flow.serve.cli.common.output import emit, emit_json
from ematix_flow.serve.cli.common.run_progress import progress_subscriber
from ematix_flow.serve.cli.common.spark import start_spark_early, stop_spark_at_end
from ematix_flow.serve.cli.common.state import current

_verbose = click.option("-v", "--verbose", is_flag=True, help="Show every statement and every column.")


@click.command()
@click.argument("name")
@module_option
@_verbose
@format_option
@engine_option
@common_options
def preview(name: str, module: str | None, verbose: bool, form: str) -> int:
    """Show the plan of a pipeline, or of the next batch of a stream, without touching data."""
    return _preview(_planned(module, name), form, verbose=verbose)


def _preview(planned: PipelineHandle | StreamHandle, form: str, *, verbose: bool) -> int:
    if verbose and isinstance(planned, PipelineHandle):
        # Spark explains what it evaluates, and only then it is loaded.
        stop_spark_at_end()
    with redirect_stdout(sys.stderr):
        result = (
            planned.preview(physical=True) if verbose and isinstance(planned, PipelineHandle) else planned.preview()
        )
    _show(result, form, verbose=verbose)
    return DONE


@click.command()
@click.argument("name")
@module_option
@click.option("--diff", is_flag=True, help="Stage the load, show what it would change, and keep it for flow apply.")
@click.option("--sample", type=COUNT_OR_NONE, metavar="N", help="Keys of each kind to show with --diff [default: 5].")
@_verbose
@run_log_location_options
@format_option
@engine_option
@common_options
def plan(name: str, module: str | None, diff: bool, sample: int | None, form: str, **options: Any) -> int:
    """Show the plan of a pipeline; with --diff what it would change, row by row, ready to be applied."""
    planned = _planned(module, name)
    if not diff:
        if sample is not None:
            raise click.UsageError("--sample goes with --diff.")
        return _preview(planned, form, verbose=options["verbose"])
    if isinstance(planned, StreamHandle):
        raise click.UsageError(f"{name} is a stream, whose batches are not kept for flow apply: see flow dry-run.")
    current().when_stopped = "no table was changed."
    log = open_log(options["run_log_url"], options["run_log_path"], no_run_log=False)
    start_spark_early(planned.pipeline)
    from ematix_flow.connect.config.redact import redact
    from ematix_flow.engine import Options, diff_pipeline
    from ematix_flow.engine.review.diff import SAMPLE

    chosen = Options(run_log=log)
    with progress_subscriber() as subscriber, redirect_stdout(sys.stderr):
        chosen.bus.subscribe(subscriber)
        result = diff_pipeline(planned.pipeline, chosen, SAMPLE if sample is None else sample)
    if form == "json":
        emit_json(result.to_dict())
    else:
        emit(redact(result.text()))
    return DONE


@click.command("dry-run")
@click.argument("name")
@module_option
@_verbose
@format_option
@engine_option
@common_options
def dry_run(name: str, module: str | None, verbose: bool, form: str) -> int:
    """Show what a run, or the next batch of a stream, would change, and change nothing."""
    planned = _planned(module, name)
    if isinstance(planned, PipelineHandle):
        start_spark_early(planned.pipeline)
    with redirect_stdout(sys.stderr):
        result = planned.dry_run()
    _show(result, form, verbose=verbose)
    return _verdict(result, form)


@click.command()
@click.argument("name")
@module_option
@_verbose
@format_option
@common_options
def validate(name: str, module: str | None, verbose: bool, form: str) -> int:
    """Have the databases check a pipeline's SQL; of a stream, check source, targets and promises."""
    planned = _planned(module, name)
    with redirect_stdout(sys.stderr):
        result = planned.validate()
    _show(result, form, verbose=verbose)
    return _verdict(result, form)


def _planned(module: str | None, name: str) -> PipelineHandle | StreamHandle:
    """Return a pipeline that has a plan, which a plain function does not, or a stream, by its name or its file."""
    if not is_file(name):
        load(module)
    stop_spark_at_end()
    if is_file(name) or name in PROJECT.streams:
        return StreamHandle(find_stream(name, module))
    pipeline = find_pipeline(module, name)
    if not pipeline.targets:
        message = f"pipeline {name!r} is {pipeline.unplanned}, which has no plan"
        hint = "declare it with @ematix.pipeline to see one."
        raise UsageRefusedError(DeclareTypeError(message, hint=hint, origin=pipeline.origin))
    return PipelineHandle(pipeline)


def _show(result: Any, form: str, *, verbose: bool) -> None:
    if form == "json":
        emit_json(result.to_dict())
        return
    from ematix_flow.connect.config.redact import redact

    emit(redact(result.text(verbose=verbose)))


def _verdict(result: Any, form: str) -> int:
    """Return the exit code of a dry run; its text has the errors already, with JSON they also go to stderr."""
    from ematix_flow.connect.config.redact import redact

    for error in result.errors if form == "json" else ():
        print_error_text(redact(str(error)))
    return DONE if result.ok else FAILED

"""`flow preview`, `plan`, `dry-run` and `validate`: print the plan that a run would execute; the engine makes it."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

import click

from ematix_flow.errors import DeclareTypeError
from ematix_flow.serve.cli.failures import DONE, FAILED, RefusedError, tell_words
from ematix_flow.serve.cli.options import (
    common_options,
    find_pipeline,
    format_option,
    module_option,
    open_log,
    run_log_places,
)
from ematix_flow.serve.cli.output import emit, emit_json
from ematix_flow.serve.cli.progress import told
from ematix_flow.serve.cli.spark import start_spark_early
from ematix_flow.serve.cli.state import current

if TYPE_CHECKING:
    from ematix_flow.declare.pipeline import Pipeline

_verbose = click.option("-v", "--verbose", is_flag=True, help="Show every statement and every column.")


@click.command()
@click.argument("name")
@module_option
@_verbose
@format_option
@common_options
def preview(name: str, module: str | None, verbose: bool, form: str) -> int:
    """Show the plan of a pipeline without touching data."""
    return _preview(_planned(module, name), form, verbose=verbose)


def _preview(pipeline: Pipeline, form: str, *, verbose: bool) -> int:
    from ematix_flow.engine import preview_pipeline

    with redirect_stdout(sys.stderr):
        result = preview_pipeline(pipeline)
    _show(result, form, verbose=verbose)
    return DONE


@click.command()
@click.argument("name")
@module_option
@click.option("--diff", is_flag=True, help="Stage the load, show what it would change, and keep it for flow apply.")
@click.option(
    "--sample", type=click.IntRange(min=0), metavar="N", help="Keys of each kind to show with --diff [default: 5]."
)
@_verbose
@run_log_places
@format_option
@common_options
def plan(name: str, module: str | None, diff: bool, sample: int | None, form: str, **options: Any) -> int:
    """Show the plan of a pipeline; with --diff what it would change, row by row, ready to be applied."""
    pipeline = _planned(module, name)
    if not diff:
        if sample is not None:
            raise click.UsageError("--sample goes with --diff.")
        return _preview(pipeline, form, verbose=options["verbose"])
    current().when_stopped = "no table was changed."
    log = open_log(options["run_log_url"], options["run_log_path"], no_run_log=False)
    start_spark_early(pipeline)
    from ematix_flow.connect.redact import redact
    from ematix_flow.engine import Options, diff_pipeline
    from ematix_flow.engine.diffing import SAMPLE

    chosen = Options(run_log=log)
    with told() as subscriber, redirect_stdout(sys.stderr):
        chosen.bus.subscribe(subscriber)
        result = diff_pipeline(pipeline, chosen, SAMPLE if sample is None else sample)
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
@common_options
def dry_run(name: str, module: str | None, verbose: bool, form: str) -> int:
    """Show what a run would change, and change nothing."""
    pipeline = _planned(module, name)
    start_spark_early(pipeline)
    from ematix_flow.engine import dry_run_pipeline

    with redirect_stdout(sys.stderr):
        result = dry_run_pipeline(pipeline)
    _show(result, form, verbose=verbose)
    return _verdict(result, form)


@click.command()
@click.argument("name")
@module_option
@_verbose
@format_option
@common_options
def validate(name: str, module: str | None, verbose: bool, form: str) -> int:
    """Have the databases check a pipeline's SQL."""
    pipeline = _planned(module, name)
    from ematix_flow.engine import validate_pipeline

    with redirect_stdout(sys.stderr):
        result = validate_pipeline(pipeline)
    _show(result, form, verbose=verbose)
    return _verdict(result, form)


def _planned(module: str | None, name: str) -> Pipeline:
    """Give a pipeline that has a plan; a plain function has none."""
    pipeline = find_pipeline(module, name)
    if not pipeline.targets:
        message = f"pipeline {name!r} is a plain function, which has no plan"
        hint = "declare it with @ematix.pipeline to see one."
        raise RefusedError(DeclareTypeError(message, hint=hint, origin=pipeline.origin))
    return pipeline


def _show(result: Any, form: str, *, verbose: bool) -> None:
    if form == "json":
        emit_json(result.to_dict())
        return
    from ematix_flow.connect.redact import redact

    emit(redact(result.text(verbose=verbose)))


def _verdict(result: Any, form: str) -> int:
    """Give the exit code of a rehearsal; its text tells the errors already, programs leave them on stderr for people."""
    from ematix_flow.connect.redact import redact

    for error in result.errors if form == "json" else ():
        tell_words(redact(str(error)))
    return DONE if result.ok else FAILED

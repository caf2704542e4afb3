"""`flow preview`, `dry-run` and `validate`: print the plan that a run would execute; the engine makes it."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import Any

import click

from ematix_flow.serve.cli.failures import DONE, FAILED, tell_words
from ematix_flow.serve.cli.options import common_options, find_pipeline, format_option, module_option
from ematix_flow.serve.cli.output import emit, emit_json
from ematix_flow.serve.cli.spark import stop_spark_at_end

_verbose = click.option("-v", "--verbose", is_flag=True, help="Show every statement and every column.")


@click.command()
@click.argument("name")
@module_option
@_verbose
@format_option
@common_options
def preview(name: str, module: str | None, verbose: bool, form: str) -> int:
    """Show the plan of a pipeline without touching data."""
    pipeline = find_pipeline(module, name)
    from ematix_flow.engine import preview_pipeline

    with redirect_stdout(sys.stderr):
        result = preview_pipeline(pipeline)
    _show(result, form, verbose=verbose)
    return DONE


@click.command("dry-run")
@click.argument("name")
@module_option
@_verbose
@format_option
@common_options
def dry_run(name: str, module: str | None, verbose: bool, form: str) -> int:
    """Show what a run would change, and change nothing."""
    pipeline = find_pipeline(module, name)
    from ematix_flow.engine import dry_run_pipeline

    stop_spark_at_end()
    with redirect_stdout(sys.stderr):
        result = dry_run_pipeline(pipeline)
    _show(result, form, verbose=verbose)
    return _verdict(result)


@click.command()
@click.argument("name")
@module_option
@_verbose
@format_option
@common_options
def validate(name: str, module: str | None, verbose: bool, form: str) -> int:
    """Have the databases check a pipeline's SQL."""
    pipeline = find_pipeline(module, name)
    from ematix_flow.engine import validate_pipeline

    with redirect_stdout(sys.stderr):
        result = validate_pipeline(pipeline)
    _show(result, form, verbose=verbose)
    return _verdict(result)


def _show(result: Any, form: str, *, verbose: bool) -> None:
    if form == "json":
        emit_json(result.to_dict())
        return
    from ematix_flow.connect.redact import redact

    emit(redact(result.text(verbose=verbose)))


def _verdict(result: Any) -> int:
    """Give the exit code of a rehearsal; its errors are told like those of a run."""
    from ematix_flow.connect.redact import redact

    for error in result.errors:
        tell_words(redact(str(error)))
    return DONE if result.ok else FAILED

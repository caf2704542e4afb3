"""`flow transform`: lists declared transforms and runs one on its own; running it is the engine's work."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout

import click

from ematix_flow.declare.project import PROJECT
from ematix_flow.serve.cli.common.errors import DONE, as_usage_error
from ematix_flow.serve.cli.common.lazy import NearGroup
from ematix_flow.serve.cli.common.options import common_options, engine_option, format_option, load, module_option
from ematix_flow.serve.cli.common.output import emit, emit_json, table, talk
from ematix_flow.serve.cli.common.spark import stop_spark_at_end


@click.group(cls=NearGroup)
def transform() -> None:
    """List transforms, or run one on its own."""


@transform.command("list")
@module_option
@format_option
@common_options
def list_(module: str | None, form: str) -> int:
    """Show the transforms of a module."""
    load(module)
    transforms = sorted(PROJECT.transforms.values(), key=lambda entry: entry.name)
    if form == "json":
        emit_json([{"name": t.name, "kind": "transform", "schedule": t.schedule} for t in transforms])
    elif transforms:
        emit(table(("NAME", "SCHEDULE"), [(t.name, t.schedule or "(unscheduled)") for t in transforms]))
    else:
        talk("the module declares no transforms.")
    return DONE


@transform.command("run")
@click.argument("name")
@module_option
@engine_option
@common_options
def run(name: str, module: str | None) -> int:
    """Run a transform now and print its result as JSON."""
    load(module)
    with as_usage_error():
        PROJECT.transform(name)
    stop_spark_at_end()
    from ematix_flow.engine import run_transform

    with redirect_stdout(sys.stderr):
        result = run_transform(name)
    emit_json(result)
    return DONE

"""Options that several commands share, and what they mean: the user's module, the run log, the output format."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ematix_flow.declare.project import PROJECT, load_module
from ematix_flow.declare.spark_settings import ENGINE_VARIABLE
from ematix_flow.errors import DeclareError
from ematix_flow.serve.cli.common.errors import UsageRefusedError, as_usage_error
from ematix_flow.serve.cli.common.output import without_colours
from ematix_flow.serve.cli.common.state import State, current

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.declare.pipeline.pipeline import Pipeline
    from ematix_flow.observe.observers import Observers

_Command = TypeVar("_Command", bound="Callable[..., Any]")

MODULE_VARIABLE = "EMATIX_FLOW_MODULE"

COUNT = click.IntRange(1, 1_000_000_000)
"""How many lines to show: more than anyone reads, and a number that every database knows."""
COUNT_OR_NONE = click.IntRange(0, COUNT.max)


def module_option(command: _Command) -> _Command:
    """Add --module."""
    help_text = "Module with your declarations, written as in an import statement."
    return click.option("-m", "--module", envvar=MODULE_VARIABLE, show_envvar=True, metavar="MODULE", help=help_text)(
        command
    )


def format_option(command: _Command) -> _Command:
    """Add --format."""
    choice = click.Choice(["text", "json"])
    return click.option(
        "--format", "form", type=choice, default="text", show_default=True, help="For people or for programs."
    )(command)


def engine_option(command: _Command) -> _Command:
    """Add --engine."""

    def choose(_: click.Context, __: click.Parameter, value: str | None) -> None:
        if value:
            os.environ[ENGINE_VARIABLE] = value  # workers of this command get it too

    help_text = f"Who moves rows between systems; local needs no Java [default: spark] [env var: {ENGINE_VARIABLE}]."
    choice = click.Choice(["spark", "local"])
    return click.option("--engine", type=choice, expose_value=False, callback=choose, help=help_text)(command)


def common_options(command: _Command) -> _Command:
    """Add the options that every command has."""

    def traceback(context: click.Context, _: click.Parameter, value: bool) -> None:
        context.ensure_object(State).traceback = value

    def plain(_: click.Context, __: click.Parameter, value: bool) -> None:
        if value:
            without_colours()

    flag = partial(click.option, is_flag=True, expose_value=False)
    command = flag("--no-color", callback=plain, help="Show no colours (NO_COLOR=1 does the same).")(command)
    return flag("--traceback", callback=traceback, help="Show where in Python an error came from.")(command)


def run_log_options(command: _Command) -> _Command:
    """Add the options that choose the run log, or none."""
    return run_log_location_options(
        click.option("--no-run-log", is_flag=True, help="Remember nothing about this run.")(command)
    )


def run_log_location_options(command: _Command) -> _Command:
    """Add the options that choose the run log, next to which plans are stored."""
    command = click.option("--run-log-path", metavar="PATH", help="File of the run log.")(command)
    help_text = "Address of the run log [default: ~/.ematix-flow/run_log.db]."
    return click.option("--run-log-url", "--run-log", metavar="URL", help=help_text)(command)


_OBSERVER_OPTIONS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("--alerter", {"multiple": True}, "Where failures and recoveries are reported; may be given several times"),
    ("--metrics", {}, "Where numbers of runs go"),
    ("--traces", {}, "Where traces of runs go"),
    ("--lineage", {}, "Where OpenLineage events go"),
)
_VARIABLES = {"alerter": "ALERTERS", "metrics": "METRICS", "traces": "TRACES", "lineage": "LINEAGE"}


def observer_options(command: _Command) -> _Command:
    """Add the options that choose the observers of runs."""
    for name, settings, help_text in reversed(_OBSERVER_OPTIONS):
        variable = f"EMATIX_FLOW_{_VARIABLES[name.strip('-')]}"
        command = click.option(name, metavar="URL", help=f"{help_text} [env var: {variable}].", **settings)(command)
    return command


def open_observers(options: dict[str, Any], log: object) -> Observers:
    """Return the observers of the runs of this command; at its end they have a few seconds to send what is left."""
    from ematix_flow.observe.observers import incident_store_in, observers

    urls = (options["metrics"], options["traces"], options["lineage"])
    return current().ending.enter_context(observers(options["alerter"], *urls, incidents=incident_store_in(log)))


def load(module: str | None, *, required: bool = True) -> None:
    """Import the user's module; what it prints goes to stderr."""
    name = module or project_module()
    if name is None:
        if required:
            raise click.UsageError("which module? Give --module NAME, or set EMATIX_FLOW_MODULE.")
        return
    try:
        with redirect_stdout(sys.stderr):
            load_module(name)
    except DeclareError as error:
        if _raised_by_loading(error):
            raise UsageRefusedError(error) from error
        raise


def find_pipeline(module: str | None, name: str) -> Pipeline:
    """Return a pipeline of the user's module; an unknown name is an error of usage."""
    load(module)
    with as_usage_error():
        return PROJECT.pipeline(name)


def open_log(run_log_url: str | None, run_log_path: str | None, *, no_run_log: bool) -> RunLog:
    """Return the run log that the options choose."""
    from ematix_flow.commit.runlog.open import forgotten_run_log, open_run_log

    if no_run_log:
        import shutil

        log = forgotten_run_log()
        current().at_end(lambda: shutil.rmtree(log.folder, ignore_errors=True))
        return log
    with as_usage_error():
        return open_run_log(run_log_url, run_log_path)


def read_log(run_log_url: str | None, run_log_path: str | None, *, no_run_log: bool) -> RunLog:
    """Return the run log that the options choose for a command that only reads: one that is named has to be there."""
    if no_run_log:
        return open_log(None, None, no_run_log=True)
    from ematix_flow.commit.runlog.open import is_run_log, local_path, open_run_log

    with as_usage_error():
        named = run_log_url or run_log_path
        path, hint = local_path(named) if named else None, "flow run --run-log-path PATH writes one."
        if path is not None and not path.exists():
            raise DeclareError(f"there is no run log {path}", hint=hint)
        if path is not None and not is_run_log(path):
            raise DeclareError(f"{path} is no run log", hint=hint)
        return open_run_log(run_log_url, run_log_path, required=True)


def project_module() -> str | None:
    """Return the module that the file of the working folder names under [project]."""
    from ematix_flow.connect.config.sources import project_table

    name = project_table("project").get("module")
    return name if isinstance(name, str) else None


def _raised_by_loading(error: DeclareError) -> bool:
    """Return whether the module was not found, rather than found and wrong."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    return step is not None and step.tb_frame.f_code is load_module.__code__

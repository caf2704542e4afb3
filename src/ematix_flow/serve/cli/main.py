"""The `flow` command: registers the commands, runs one and returns its exit code; what commands do is in `commands`."""

from __future__ import annotations

import atexit
import os
import sys
import warnings
from contextlib import ExitStack, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ematix_flow.commit.interrupts import uninterrupted
from ematix_flow.failpoints import failpoint
from ematix_flow.serve.cli.common.errors import (
    FAILED,
    USAGE,
    Failure,
    UsageRefusedError,
    failure_of,
    print_error,
    print_error_text,
    requires_json,
)
from ematix_flow.serve.cli.common.lazy import CommandEntry, LazyGroup
from ematix_flow.serve.cli.common.output import emit_json, paint, talk, with_colours
from ematix_flow.serve.cli.common.signals import StoppedError, ignore_signals, stopping
from ematix_flow.serve.cli.common.state import State

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_PIPELINES, _SCHEDULES, _STREAMS = "Pipelines", "Schedules", "Streams"
_HISTORY, _SETUP = "What happened", "Connections and setup"

COMMANDS = {
    "list": CommandEntry(
        "list", "list_", "Show the pipelines, streams, replications and transforms of a module.", _PIPELINES
    ),
    "run": CommandEntry("run", "run", "Run a pipeline now; an interrupted run is resumed.", _PIPELINES),
    "run-due": CommandEntry("run_due", "run_due", "Run every pipeline that is due, each slot once.", _SCHEDULES),
    "scheduler": CommandEntry(
        "scheduler", "scheduler", "Have pipelines run when they are due, until stopped.", _SCHEDULES
    ),
    "up": CommandEntry("scheduler", "up", "Run streams and scheduled pipelines together, until stopped.", _SCHEDULES),
    "backfill": CommandEntry("run_due", "backfill", "Run the slots of a past interval.", _SCHEDULES),
    "preview": CommandEntry("plan", "preview", "Show the plan of a pipeline without touching data.", _PIPELINES),
    "plan": CommandEntry("plan", "plan", "Show the plan; --diff shows and keeps what it would change.", _PIPELINES),
    "apply": CommandEntry("apply", "apply", "Load exactly what a kept plan has shown.", _PIPELINES),
    "dry-run": CommandEntry("plan", "dry_run", "Show what a run would change, and change nothing.", _PIPELINES),
    "validate": CommandEntry("plan", "validate", "Have the databases check a pipeline's SQL.", _PIPELINES),
    "maintain": CommandEntry(
        "maintain", "maintain", "Compact, expire and clean up the targets of a pipeline.", _PIPELINES
    ),
    "features": CommandEntry(
        "features", "features", "Show feature views, check them, replay training sets.", _PIPELINES
    ),
    "transform": CommandEntry("transform", "transform", "List transforms, or run one on its own.", _PIPELINES),
    "consume": CommandEntry("streams.consume", "consume", "Run streams until they are stopped.", _STREAMS),
    "consume-list": CommandEntry(
        "streams.consume", "consume_list", "Show the streams and replications of a module.", _STREAMS
    ),
    "stream": CommandEntry("streams.stream", "stream", "Show where a stream stands, or move it.", _STREAMS),
    "cdc": CommandEntry("streams.cdc", "cdc", "Show how far streams of changes are behind their databases.", _STREAMS),
    "dlq": CommandEntry("streams.dlq", "dlq", "Count, show, replay, park or purge dead letters of a stream.", _STREAMS),
    "status": CommandEntry(
        "status", "status", "Show the last and the next run of everything, and what waits.", _SCHEDULES
    ),
    "next": CommandEntry("next", "next_", "Show what fires when.", _SCHEDULES),
    "dag": CommandEntry("dag", "dag", "Show what waits for what.", _SCHEDULES),
    "pause": CommandEntry("control", "pause", "Pause a pipeline or workflow.", _SCHEDULES),
    "unpause": CommandEntry("control", "unpause", "Unpause it.", _SCHEDULES),
    "web": CommandEntry("web", "web", "Serve a page with runs, pipelines, streams and plans.", _HISTORY),
    "runs": CommandEntry("runs", "runs", "List runs, show one, resume, repeat or cancel it.", _HISTORY),
    "logs": CommandEntry("logs", "logs", "Show the log of a run, also while it runs.", _HISTORY),
    "freshness-check": CommandEntry(
        "freshness_check", "freshness_check", "Show how fresh the tables with a limit are.", _HISTORY
    ),
    "rejects": CommandEntry("rejects", "rejects", "List, show or replay rejected rows.", _HISTORY),
    "init": CommandEntry("init", "init", "Write a project that runs as it is.", _SETUP),
    "connections": CommandEntry("connections", "connections", "List, check or set connections.", _SETUP),
    "secrets": CommandEntry("connections", "secrets", "Try a reference to a secret.", _SETUP),
    "engine": CommandEntry(
        "engine", "engine", "Start, see or stop the Spark that stays warm between commands.", _SETUP
    ),
    "doctor": CommandEntry("doctor", "doctor", "Check Java, Spark, the run log and every connection.", _SETUP),
}

_EXAMPLES = """\b
Examples:
  flow list -m my_pipelines
  flow run orders_daily -m my_pipelines
  flow runs list --status failed --format json

Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 the work failed, 2 wrong usage or unknown name.
"""


@click.group(
    cls=LazyGroup,
    entries=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=_EXAMPLES,
    no_args_is_help=False,
    invoke_without_command=True,
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=lambda c, _, v: _version(c, v))
@click.pass_context
def flow(context: click.Context) -> int:
    """Declare a data flow in Python; Spark computes it, the target commits it exactly once."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        return USAGE
    _banner()
    return 0


def program() -> NoReturn:
    """Run the command line of this process and end it."""
    last = ExitStack()
    atexit.register(last.close)  # before any other module registers something, and so called after all of it
    sys.exit(main(last=last))


def main(argv: Sequence[str] | None = None, *, last: ExitStack | None = None) -> int:
    """Run one command line and return its exit code; what has to be the last thing of the process goes into `last`."""
    if "_FLOW_COMPLETE" in os.environ:
        flow.main(prog_name="flow")  # the shell requests completions; click answers and exits
    with_colours()
    with stopping() as stop, warnings.catch_warnings():
        warnings.showwarning = _show_warning
        state, code = State(stop=stop), FAILED
        with suppress(StoppedError):
            code = _call(list(sys.argv[1:] if argv is None else argv), state)
            _end(state)
            if last is None:
                _unfailing(lambda: _close(state))
            elif state.close_request is not None and not stop.number:
                last.callback(_leave, state, code)
        # A signal that comes after everything is done and closed has nothing left to stop.
        return stop.code if stop.number and not state.request_closed else code


def _call(arguments: list[str], state: State) -> int:
    """Run a command and report its error, if there is one."""
    state.json_errors = requires_json(arguments)
    try:
        with flow.make_context("flow", arguments, obj=state) as context:
            return int(flow.invoke(context) or 0)
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.UsageError as error:
        called = error.ctx.command_path if error.ctx else "flow"
        _report(Failure(error.format_message(), type(error).__name__, f"{called} --help shows what there is."), state)
        return USAGE
    except UsageRefusedError as error:
        _fail(error.error, state)
        return USAGE
    except StoppedError as error:
        print_error_text(str(error), state.when_stopped)
        return state.stop.code
    except SystemExit as error:
        from ematix_flow.connect.config.redact import redact

        what = f"the code that was called ended itself with sys.exit({error.code!r})"
        _report(Failure(redact(what), type(error).__name__), state)
        return FAILED
    except Exception as error:  # noqa: BLE001 - the door: whatever happened is told in one way
        _fail(error, state)
        return FAILED


def _end(state: State) -> None:
    """Undo what the command left to be undone."""
    _unfailing(state.ending.close)


def _unfailing(action: Callable[[], object]) -> None:
    """Call what comes after the result is printed, so that nothing in it changes the exit code."""
    try:
        action()
    except Exception as error:  # noqa: BLE001 - the door: whatever happened is told in one way
        talk(f"warning: the command did not end cleanly ({type(error).__name__}: {error})", "yellow")


def _close(state: State) -> None:
    """Close the request of a run whose result was delivered, as the last thing the command does.

    Orchestrators go by exit codes: a command that is stopped or killed before this did not end well, and may be
    started again.
    """
    if state.close_request is None or state.stop.number:
        return
    with uninterrupted():
        state.close_request()
        state.request_closed = True
    failpoint("result.after_close")


def _leave(state: State, code: int) -> None:
    """Close the request and end the process at once: taking Python down takes up to a second, in which it could be killed."""
    ignore_signals()
    warnings.showwarning = _show_warning
    _unfailing(lambda: _close(state))
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed, or none
            stream.flush()
    # A signal may have come after this was agreed upon.
    os._exit(state.stop.code if state.stop.number and not state.request_closed else code)


def _fail(error: BaseException, state: State) -> None:
    print_error(error, with_traceback=state.traceback)
    _emit_failure(failure_of(error), state)


def _report(failure: Failure, state: State) -> None:
    print_error_text(failure.error, failure.hint, failure.at)
    _emit_failure(failure, state)


def _emit_failure(failure: Failure, state: State) -> None:
    """Print what went wrong on stdout too, for a program that reads JSON there."""
    if state.json_errors:
        with suppress(OSError):  # stdout may be what has failed
            emit_json({"status": "failed", **asdict(failure)})


def _version(context: click.Context, requested: bool) -> None:
    if requested:
        from ematix_flow import __version__

        click.echo(f"flow {__version__}")
        context.exit()


def _banner() -> None:
    """Print a banner for people, never for programs."""
    forced, suppressed = (os.environ.get(f"EMATIX_FLOW_{name}") == "1" for name in ("BANNER", "NO_BANNER"))
    if forced or (sys.stderr.isatty() and not suppressed):
        from ematix_flow import __version__

        sys.stderr.write(paint(f"ematix-flow {__version__} on Spark", "dim", sys.stderr) + "\n")


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    talk(f"warning: {message}", "yellow")

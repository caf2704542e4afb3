"""`flow pause`, `flow unpause` and what `flow runs` changes; each is an entry of the engine in the run log."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import click

from ematix_flow.errors import UnknownNameError
from ematix_flow.serve.cli.common.errors import DONE, FAILED, as_usage_error, print_error_text
from ematix_flow.serve.cli.common.options import common_options, load, module_option, read_log, run_log_location_options
from ematix_flow.serve.cli.common.output import talk
from ematix_flow.serve.cli.common.state import user_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.engine.schedule.run_names import Meant


def named(metavar: str) -> Callable[..., Any]:
    """Add the argument of a pipeline's name, and the options of its module and run log."""

    def added(command: Callable[..., Any]) -> Callable[..., Any]:
        return click.argument("name", metavar=metavar)(module_option(run_log_location_options(common_options(command))))

    return added


def find_in_log(name: str, module: str | None, **location: Any) -> tuple[RunLog, Meant]:
    """Return the run log, and what a name on the command line means in it; an unknown one is an error of usage."""
    load(module, required=False)
    log = read_log(**location, no_run_log=False)
    from ematix_flow.engine.schedule.run_names import meant

    with as_usage_error():
        return log, meant(log, name)


@click.command()
@named("NAME")
def pause(name: str, module: str | None, **location: Any) -> int:
    """Pause a pipeline or workflow: nothing of it starts until flow unpause; a running one continues to its end."""
    from ematix_flow.engine.schedule import actions

    log, meant = find_in_log(name, module, **location)
    actions.pause(log, meant.pipeline, _who(), run_id=meant.run_id)
    talk(f"{meant.pipeline} is paused; flow unpause {name} lets it go on.")
    return DONE


@click.command()
@named("NAME")
def unpause(name: str, module: str | None, **location: Any) -> int:
    """Let a paused pipeline or workflow go on; what was missed is caught up as its catchup= says."""
    from ematix_flow.engine.schedule import actions

    log, meant = find_in_log(name, module, **location)
    actions.unpause(log, meant.pipeline, _who(), run_id=meant.run_id)
    talk(f"{meant.pipeline} goes on.")
    return DONE


@click.command()
@named("RUN|PIPELINE")
def resume(name: str, module: str | None, **location: Any) -> int:
    """Have a slot that failed, was given up or was interrupted tried again at once, with all its attempts."""
    from ematix_flow.engine.schedule import actions

    log, meant = find_in_log(name, module, **location)
    state = actions.resume(log, meant, _who())
    if not state.next_attempt_at:
        print_error_text(f"{meant.pipeline} has no slot that failed or was interrupted, so there is nothing to resume")
        return FAILED
    talk(f"{meant.pipeline}: slot {state.last_slot} is tried again by the next scheduler or flow run-due.")
    return DONE


@click.command()
@named("RUN|PIPELINE")
def cancel(name: str, module: str | None, **location: Any) -> int:
    """Stop a run, wherever it runs: what it has not committed is not committed; its slot waits until it is resumed."""
    from ematix_flow.engine.schedule import actions

    log, meant = find_in_log(name, module, **location)
    notified = actions.cancel(log, meant, _who())
    if not notified:
        print_error_text(f"nothing of {meant.pipeline} runs", "flow status shows what runs.")
        return FAILED
    talk(
        f"{meant.pipeline}: {notified} is requested to stop; flow runs list --pipeline {meant.pipeline} shows how it ended."
    )
    return DONE


@click.command()
@named("RUN|PIPELINE")
@click.option(
    "--from", "from_step", metavar="JOB", default="", help="Of a workflow, from this job on; others are kept."
)
def rerun(name: str, from_step: str, module: str | None, **location: Any) -> int:
    """Request that a run or a workflow is repeated from the beginning; a scheduler runs it."""
    from ematix_flow.engine.schedule import manual

    log, meant = find_in_log(name, module, **location)
    with as_usage_error():
        _refuse_unknown(meant)
        new, jobs = manual.rerun(log, meant.pipeline, _who(), run_id=meant.run_id, from_step=from_step)
    some = "" if jobs == [meant.pipeline] else f" ({', '.join(jobs)})"
    talk(f"{meant.pipeline}: requested as {new}{some}; the next scheduler or flow run-due runs it.")
    return DONE


def _refuse_unknown(meant: Meant) -> None:
    """Refuse to repeat a slot of which the run log has no run."""
    if meant.slot and meant.run is None:
        hint = "flow runs list shows the runs; flow backfill runs slots of the past."
        raise UnknownNameError(f"the run log has no run of {meant}", hint=hint)


def _who() -> str:
    return f"{user_name('somebody')}@{socket.gethostname()}"

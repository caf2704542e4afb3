"""`flow status`: the status of everything declared, once or repeatedly; it reads and changes nothing."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from ematix_flow.clock import SYSTEM_CLOCK
from ematix_flow.declare.project import PROJECT
from ematix_flow.serve.cli.common.errors import DONE
from ematix_flow.serve.cli.common.filters import Since, check_names, is_named, names_argument, state_option
from ematix_flow.serve.cli.common.options import (
    common_options,
    format_option,
    load,
    module_option,
    read_log,
    run_log_options,
)
from ematix_flow.serve.cli.common.output import emit, emit_json, has_colours, table, talk
from ematix_flow.serve.cli.common.slot_runner import YEAR_SECONDS, Amount

if TYPE_CHECKING:
    from rich.table import Table

    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.engine.schedule.status import PipelineStatus

HEADERS = ("NAME", "SCHEDULE", "LAST RUN", "OUTCOME", "RETRY", "NEXT RUN", "DEPENDS ON")
EVERY = 2.0
_INSTANT = re.compile(r"\d{4}-(\d\d-\d\d)T(\d\d:\d\d):\d\dZ")
"""On a screen that moves, day and minute of UTC are enough."""
_COLOURS = {"failure": "red", "success": "green", "running": "cyan", "paused": "yellow"}


@click.command()
@names_argument
@module_option
@state_option
@click.option("--since", type=Since(), help="Only what has run then or later, or so long ago: 6h, 7d.")
@click.option(
    "--watch", is_flag=False, flag_value=EVERY, type=Amount(0.1, YEAR_SECONDS), metavar="[SECONDS]",
    help=f"Refresh every so many seconds, {EVERY:.0f} by default, until Ctrl-C.",
)  # fmt: skip
@click.option("--port", type=click.IntRange(0, 65535), help="Serve a page on this machine instead, read-only.")
@run_log_options
@format_option
@common_options
def status(names: tuple[str, ...], module: str | None, watch: float | None, form: str, **options: Any) -> int:
    """Show the last and the next run of everything declared, and why something that is due does not run."""
    load(module)
    state, since, port, location = _parted(options)
    if port is not None:
        from ematix_flow.serve.cli.commands.web import serve

        serve(read_log(**location), "127.0.0.1", port, "warning", read_only=True)
        return DONE
    check_names(names, (*PROJECT.pipelines, *PROJECT.workflows, *PROJECT.streams))
    log, criteria = read_log(**location), Narrowed(names, state, since)
    if watch is None:
        _show(log, criteria, form)
    elif form == "text" and has_colours(sys.stdout):
        _live(log, criteria, watch)
    else:
        while True:
            _show(log, criteria, form)
            time.sleep(watch)
    return DONE


def _parted(options: dict[str, Any]) -> tuple[str | None, datetime | None, int | None, dict[str, Any]]:
    """Return what narrows the list down and the port of a page, apart from the options of the run log."""
    state, since, port = (options.pop(name) for name in ("state", "since", "port"))
    return state, since, port, options


@dataclass(frozen=True, slots=True)
class Narrowed:
    """What is shown: names, a state, and since when it has to have run."""

    names: tuple[str, ...] = ()
    state: str | None = None
    since: datetime | None = None

    def has(self, one: PipelineStatus) -> bool:
        """Return whether something is shown."""
        if self.since is not None and (
            one.last_run_at is None or datetime.fromisoformat(one.last_run_at) < self.since.replace(microsecond=0)
        ):
            return False
        return is_named(one.name, self.names) and self.state in (None, one.state)


def _matching(log: RunLog, criteria: Narrowed) -> list[PipelineStatus]:
    from ematix_flow.engine.schedule.status import pipeline_statuses

    return [one for one in pipeline_statuses(log, SYSTEM_CLOCK.now()) if criteria.has(one)]


def _show(log: RunLog, criteria: Narrowed, form: str) -> None:
    statuses = _matching(log, criteria)
    if form == "json":
        emit_json([one.as_dict() for one in statuses])
    elif statuses:
        emit(table(HEADERS, [row(one) for one in statuses]))
    elif criteria == Narrowed():
        talk("the module declares no pipelines, workflows or streams.")
    else:
        talk("nothing that is declared is like that.")
    for line in (*(notes(statuses) if form == "text" else ()), *scheduler_notes(log)):
        talk(line)


def scheduler_notes(log: RunLog) -> list[str]:
    """Return a line when something is scheduled and no scheduler runs what is due."""
    from ematix_flow.engine.schedule.heartbeat import scheduler_liveness

    if not PROJECT.has_schedules:
        return []
    liveness = scheduler_liveness(log)
    return [] if liveness.alive else [f"{liveness.text}. Start flow scheduler, or call flow run-due every minute."]


def row(one: PipelineStatus) -> tuple[str, ...]:
    """Return the cells of one line."""
    zone = f" {one.timezone}" if one.timezone else ""
    plan = f"{one.schedule}{zone}" if one.schedule else f"({one.kind})" if one.kind != "pipeline" else "(unscheduled)"
    last = one.last_run_at or ("" if one.state == "running" else "never")
    return one.name, plan, last, outcome(one), retry_cell(one), next_cell(one), ", ".join(one.depends_on)


def outcome(one: PipelineStatus) -> str:
    """Return how the last run ended, or that one is under way."""
    if one.state == "running":
        return "running"
    text = one.outcome or ""
    return f"{text} (paused)".strip() if one.state == "paused" else text


def retry_cell(one: PipelineStatus) -> str:
    """Return how many attempts a slot has had and what comes next."""
    if one.backoff is None:
        return "no retry"
    tried = f"{one.attempt}/{one.max_attempts}"
    if one.gave_up:
        return f"{tried} gave up"
    if one.next_eligible_at is not None:
        return f"{tried} next>{one.next_eligible_at}"
    return f"{tried} ({one.backoff})"


def next_cell(one: PipelineStatus) -> str:
    """Return when it runs next."""
    return "now" if one.state == "due" else one.next_run_at or ""


def notes(statuses: list[PipelineStatus]) -> list[str]:
    """Return a line about everything that waits, with the reason that a scheduler would give."""
    return [f"{one.name}: {one.reason}" for one in statuses if one.reason and one.state not in ("due", "paused")]


def _live(log: RunLog, criteria: Narrowed, watch: float) -> None:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    def rendered() -> Group:
        statuses = _matching(log, criteria)
        return Group(_table(statuses), *(Text(line, "dim") for line in (*notes(statuses), *scheduler_notes(log))))

    with Live(rendered(), console=Console(), auto_refresh=False, screen=False) as live:
        while True:
            time.sleep(watch)
            live.update(rendered(), refresh=True)


def _table(statuses: list[PipelineStatus]) -> Table:
    from rich.table import Table
    from rich.text import Text

    rendered = Table(box=None, header_style="bold", pad_edge=False)
    for header in HEADERS:
        rendered.add_column(header, no_wrap=header != HEADERS[-1])
    for one in statuses:
        cells = [Text(_INSTANT.sub(r"\1 \2", cell)) for cell in row(one)]
        cells[3].stylize(_COLOURS.get(one.state, _COLOURS.get(one.outcome or "", "")))
        rendered.add_row(*cells)
    return rendered

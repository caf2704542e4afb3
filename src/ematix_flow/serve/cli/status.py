"""`flow status`: how everything that is declared stands, once or again and again; it reads and changes nothing."""

from __future__ import annotations

import re
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from ematix_flow.clock import SYSTEM_CLOCK
from ematix_flow.serve.cli.failures import DONE
from ematix_flow.serve.cli.options import common_options, format_option, load, module_option, read_log, run_log_options
from ematix_flow.serve.cli.output import emit, emit_json, has_colours, table, talk

if TYPE_CHECKING:
    from rich.table import Table

    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.engine.statusing import Standing

HEADERS = ("NAME", "SCHEDULE", "LAST RUN", "OUTCOME", "RETRY", "NEXT RUN", "DEPENDS ON")
EVERY = 2.0
_INSTANT = re.compile(r"\d{4}-(\d\d-\d\d)T(\d\d:\d\d):\d\dZ")
"""On a screen that moves, day and minute of UTC are enough."""
_COLOURS = {"failure": "red", "success": "green", "running": "cyan", "paused": "yellow"}


@click.command()
@module_option
@click.option(
    "--watch", is_flag=False, flag_value=EVERY, type=click.FloatRange(0.1), metavar="[SECONDS]",
    help=f"Show it anew every so many seconds, {EVERY:.0f} unless told, until Ctrl-C.",
)  # fmt: skip
@run_log_options
@format_option
@common_options
def status(module: str | None, watch: float | None, form: str, **place: Any) -> int:
    """Show the last and the next run of everything declared, and why something that is due does not run."""
    load(module)
    log = read_log(**place)
    if watch is None:
        _show(log, form)
    elif form == "text" and has_colours(sys.stdout):
        _live(log, watch)
    else:
        while True:
            _show(log, form)
            time.sleep(watch)
    return DONE


def _found(log: RunLog) -> list[Standing]:
    from ematix_flow.engine.statusing import standings

    return standings(log, SYSTEM_CLOCK.now())


def _show(log: RunLog, form: str) -> None:
    found = _found(log)
    if form == "json":
        emit_json([one.as_dict() for one in found])
        return
    if not found:
        talk("the module declares no pipelines, workflows or streams.")
        return
    emit(table(HEADERS, [row(one) for one in found]))
    for line in notes(found):
        talk(line)


def row(one: Standing) -> tuple[str, ...]:
    """Give the cells of one line."""
    zone = f" {one.timezone}" if one.timezone else ""
    plan = f"{one.schedule}{zone}" if one.schedule else f"({one.kind})" if one.kind != "pipeline" else "(unscheduled)"
    last = one.last_run_at or ("" if one.state == "running" else "never")
    return one.name, plan, last, outcome(one), retry_cell(one), next_cell(one), ", ".join(one.depends_on)


def outcome(one: Standing) -> str:
    """Give how the last run ended, or that one is under way."""
    if one.state == "running":
        return "running"
    said = one.outcome or ""
    return f"{said} (paused)".strip() if one.state == "paused" else said


def retry_cell(one: Standing) -> str:
    """Give how many attempts a slot has had and what comes next."""
    if one.backoff is None:
        return "no retry"
    tried = f"{one.attempt}/{one.max_attempts}"
    if one.gave_up:
        return f"{tried} gave up"
    if one.next_eligible_at is not None:
        return f"{tried} next>{one.next_eligible_at}"
    return f"{tried} ({one.backoff})"


def next_cell(one: Standing) -> str:
    """Give when it runs next."""
    return "now" if one.state == "due" else one.next_run_at or ""


def notes(found: list[Standing]) -> list[str]:
    """Give a line about everything that waits, with the reason that a scheduler would give."""
    return [f"{one.name}: {one.reason}" for one in found if one.reason and one.state not in ("due", "paused")]


def _live(log: RunLog, watch: float) -> None:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    def shown() -> Group:
        found = _found(log)
        return Group(_table(found), *(Text(line, "dim") for line in notes(found)))

    with Live(shown(), console=Console(), auto_refresh=False, screen=False) as live:
        while True:
            time.sleep(watch)
            live.update(shown(), refresh=True)


def _table(found: list[Standing]) -> Table:
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, header_style="bold", pad_edge=False)
    for header in HEADERS:
        shown.add_column(header, no_wrap=header != HEADERS[-1])
    for one in found:
        cells = [Text(_INSTANT.sub(r"\1 \2", cell)) for cell in row(one)]
        cells[3].stylize(_COLOURS.get(one.state, _COLOURS.get(one.outcome or "", "")))
        shown.add_row(*cells)
    return shown

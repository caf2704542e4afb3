"""`flow next`: what fires when, by the clocks alone; what has run already is not looked at."""

from __future__ import annotations

import heapq
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import click

from ematix_flow.clock import SYSTEM_CLOCK
from ematix_flow.declare.project import PROJECT
from ematix_flow.serve.cli.failures import DONE
from ematix_flow.serve.cli.options import common_options, format_option, load, module_option
from ematix_flow.serve.cli.output import emit, emit_json, table, talk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from ematix_flow.declare.pipeline import Pipeline
    from ematix_flow.declare.workflow import Workflow

    Fired = tuple[datetime, str, Pipeline | Workflow]

_MOST = 100


@click.command("next")
@module_option
@click.option(
    "--hours", type=click.FloatRange(0, min_open=True), default=24.0, show_default=True, help="How far to look."
)
@click.option("--limit", type=click.IntRange(1), default=_MOST, show_default=True, help="At most so many lines.")
@format_option
@common_options
def next_(module: str | None, hours: float, limit: int, form: str) -> int:
    """Show what fires when, in UTC and in the time zone of each schedule."""
    load(module)
    now = SYSTEM_CLOCK.now()
    found = list(islice(fires(now, now + timedelta(hours=hours)), limit + 1))
    shown = found[:limit]
    if form == "json":
        emit_json([as_dict(*one) for one in shown])
        return DONE
    if not found:
        talk(f"nothing fires in the next {'hour' if hours == 1 else f'{hours:g} hours'}.")
        return DONE
    rows = [
        (entry["at"], entry["name"], entry["local"], entry["timezone"]) for entry in (as_dict(*one) for one in shown)
    ]
    emit(table(("TIME", "NAME", "LOCAL TIME", "TIMEZONE"), rows))
    if len(found) > limit:
        talk(f"these are the first {limit}; --limit shows more.")
    return DONE


def fires(after: datetime, upto: datetime) -> Iterator[Fired]:
    """Give every slot of pipelines and workflows, the earliest first."""
    declared = [("pipeline", one) for one in PROJECT.pipelines.values()]
    both: list[tuple[str, Pipeline | Workflow]] = [
        *declared,
        *(("workflow", one) for one in PROJECT.workflows.values()),
    ]
    slots = [_slots(kind, one, after, upto) for kind, one in both if one.schedule is not None]
    return heapq.merge(*slots, key=lambda fired: (fired[0], fired[2].name))


def _slots(kind: str, one: Pipeline | Workflow, after: datetime, upto: datetime) -> Iterator[Fired]:
    from ematix_flow.plan.slots import slots_between

    return ((slot, kind, one) for slot in slots_between(str(one.schedule), one.timezone, after, upto))


def as_dict(slot: datetime, kind: str, one: Pipeline | Workflow) -> dict[str, str]:
    """Give a slot as plain data, with the time that the clocks of its zone show."""
    from ematix_flow.plan.slots import slot_text

    zone = one.timezone or "UTC"
    local = slot.astimezone(ZoneInfo(zone)).isoformat(timespec="seconds")
    return {"at": slot_text(slot), "name": one.name, "kind": kind, "local": local, "timezone": zone}

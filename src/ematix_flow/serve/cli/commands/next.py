"""`flow next`: what fires when, by the clocks alone; what has run already does not matter."""

from __future__ import annotations

import heapq
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import click

from ematix_flow.clock import SYSTEM_CLOCK
from ematix_flow.declare.project import PROJECT
from ematix_flow.serve.cli.common.errors import DONE
from ematix_flow.serve.cli.common.filters import Since, check_names, is_named, names_argument, state_option
from ematix_flow.serve.cli.common.options import (
    COUNT,
    common_options,
    format_option,
    load,
    module_option,
    read_log,
    run_log_options,
)
from ematix_flow.serve.cli.common.output import emit, emit_json, table, talk
from ematix_flow.serve.cli.common.slot_runner import Amount

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from ematix_flow.declare.pipeline.pipeline import Pipeline
    from ematix_flow.declare.schedule.workflow import Workflow

    ScheduledSlot = tuple[datetime, str, Pipeline | Workflow]

_MOST = 100
_MOST_HOURS = 24 * 36_500
"""A hundred years."""


@click.command("next")
@names_argument
@module_option
@state_option
@click.option("--since", type=Since(), help="Begin at this instant in place of now, or so long ago: 6h, 7d.")
@click.option(
    "--hours", type=Amount(0, _MOST_HOURS, min_open=True), default=24.0, show_default=True, help="How far to look."
)
@click.option("--limit", type=COUNT, default=_MOST, show_default=True, help="At most so many lines.")
@run_log_options
@format_option
@common_options
def next_(names: tuple[str, ...], module: str | None, hours: float, limit: int, form: str, **options: Any) -> int:
    """Show what fires when, in UTC and in the time zone of each schedule."""
    load(module)
    check_names(names, (*PROJECT.pipelines, *PROJECT.workflows))
    now = options.pop("since") or SYSTEM_CLOCK.now()
    selected = _in_state(options.pop("state"), options)
    every = upcoming_slots(now, now + timedelta(hours=hours))
    fit = (one for one in every if is_named(one[2].name, names) and (selected is None or one[2].name in selected))
    slots = list(islice(fit, limit + 1))
    displayed = slots[:limit]
    if form == "json":
        emit_json([as_dict(*one) for one in displayed])
        return DONE
    if not slots:
        talk(f"nothing fires in the next {'hour' if hours == 1 else f'{hours:g} hours'}.")
        return DONE
    rows = [
        (entry["at"], entry["name"], entry["local"], entry["timezone"])
        for entry in (as_dict(*one) for one in displayed)
    ]
    emit(table(("TIME", "NAME", "LOCAL TIME", "TIMEZONE"), rows))
    if len(slots) > limit:
        talk(f"these are the first {limit}; --limit shows more.")
    return DONE


def _in_state(state: str | None, location: dict[str, Any]) -> set[str] | None:
    """Return the names of what is in a state now; None when no state is requested, so that no run log is needed."""
    if state is None:
        return None
    from ematix_flow.engine.schedule.status import pipeline_statuses

    return {one.name for one in pipeline_statuses(read_log(**location), SYSTEM_CLOCK.now()) if one.state == state}


def upcoming_slots(after: datetime, upto: datetime) -> Iterator[ScheduledSlot]:
    """Return every slot of pipelines and workflows, the earliest first."""
    declared = [("pipeline", one) for one in PROJECT.pipelines.values()]
    both: list[tuple[str, Pipeline | Workflow]] = [
        *declared,
        *(("workflow", one) for one in PROJECT.workflows.values()),
    ]
    slots = [_slots(kind, one, after, upto) for kind, one in both if one.schedule is not None]
    return heapq.merge(*slots, key=lambda slot: (slot[0], slot[2].name))


def _slots(kind: str, one: Pipeline | Workflow, after: datetime, upto: datetime) -> Iterator[ScheduledSlot]:
    from ematix_flow.plan.schedule.cron import slots_between

    return ((slot, kind, one) for slot in slots_between(str(one.schedule), one.timezone, after, upto))


def as_dict(slot: datetime, kind: str, one: Pipeline | Workflow) -> dict[str, str]:
    """Return a slot as plain data, with the time that the clocks of its zone show."""
    from ematix_flow.plan.schedule.cron import slot_text

    zone = one.timezone or "UTC"
    local = slot.astimezone(ZoneInfo(zone)).isoformat(timespec="seconds")
    return {"at": slot_text(slot), "name": one.name, "kind": kind, "local": local, "timezone": zone}

"""`flow freshness-check`: how fresh every table with a limit is; it reads, and runs nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from ematix_flow.serve.cli.common.errors import DONE, FAILED
from ematix_flow.serve.cli.common.options import (
    common_options,
    format_option,
    load,
    module_option,
    read_log,
    run_log_options,
)
from ematix_flow.serve.cli.common.output import emit, emit_json, table, talk

if TYPE_CHECKING:
    from datetime import timedelta

    from ematix_flow.plan.schedule.freshness import Freshness


@click.command("freshness-check")
@click.option("--now", metavar="INSTANT", help="Decide as of this ISO instant instead of now.")
@module_option
@run_log_options
@format_option
@common_options
def freshness_check(module: str | None, now: str | None, form: str, **place: Any) -> int:
    """Show how fresh the tables with a freshness_sla= are; exits 1 if any is too old."""
    if place["no_run_log"]:
        raise click.UsageError("freshness is told by the run log, so there has to be one.")
    load(module)
    from ematix_flow.engine.schedule.freshness import evaluate_freshness
    from ematix_flow.plan.schedule.freshness import BREACHED

    found = evaluate_freshness(now=_instant(now), run_log=read_log(**place))
    if form == "json":
        emit_json([one.to_dict() for one in found])
    elif found:
        emit(table(("PIPELINE", "TARGET", "STATE", "LAG", "LIMIT", "BY"), [_row(one) for one in found]))
        for one in found:
            if one.note:
                talk(f"{one.pipeline}: {one.note}")
    else:
        talk("no pipeline of the module has a freshness_sla=.")
    return FAILED if any(one.state == BREACHED for one in found) else DONE


def _instant(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        message = f"--now {text!r} is no ISO instant."
        raise click.UsageError(message) from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _row(one: Freshness) -> tuple[object, ...]:
    lag = "never" if one.lag is None else _span(one.lag)
    return one.pipeline, one.target, one.state, lag, _span(one.sla), one.basis


def _span(value: timedelta) -> str:
    """Give a duration as people say it, in its two largest units."""
    seconds = int(value.total_seconds())
    units = (("d", seconds // 86_400), ("h", seconds // 3600 % 24), ("m", seconds // 60 % 60), ("s", seconds % 60))
    said = [f"{count}{letter}" for letter, count in units if count]
    return " ".join(said[:2]) or "0s"

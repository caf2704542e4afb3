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
def freshness_check(module: str | None, now: str | None, form: str, **location: Any) -> int:
    """Show how fresh the tables with a freshness_sla= are; exits 1 if any is too old."""
    if location["no_run_log"]:
        raise click.UsageError("freshness is read from the run log, so --no-run-log cannot be used.")
    load(module)
    from ematix_flow.engine.schedule.freshness import evaluate_freshness
    from ematix_flow.plan.schedule.freshness import BREACHED

    results = evaluate_freshness(now=_instant(now), run_log=read_log(**location))
    if form == "json":
        emit_json([one.to_dict() for one in results])
    elif results:
        emit(table(("PIPELINE", "TARGET", "STATE", "LAG", "LIMIT", "BY"), [_table_row(one) for one in results]))
        for one in results:
            if one.note:
                talk(f"{one.pipeline}: {one.note}")
    else:
        talk("no pipeline of the module has a freshness_sla=.")
    return FAILED if any(one.state == BREACHED for one in results) else DONE


def _instant(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        message = f"--now {text!r} is no ISO instant."
        raise click.UsageError(message) from None
    return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)


def _table_row(one: Freshness) -> tuple[object, ...]:
    lag = "never" if one.lag is None else _format_duration(one.lag)
    return one.pipeline, one.target, one.state, lag, _format_duration(one.sla), one.basis


def _format_duration(value: timedelta) -> str:
    """Return a duration for people, in its two largest units."""
    seconds = int(value.total_seconds())
    units = (("d", seconds // 86_400), ("h", seconds // 3600 % 24), ("m", seconds // 60 % 60), ("s", seconds % 60))
    formatted = [f"{count}{unit}" for unit, count in units if count]
    return " ".join(formatted[:2]) or "0s"

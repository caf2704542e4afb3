"""What commands that run slots share: observers, the id of this process, and the time of their decisions."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from ematix_flow.declare.project import PROJECT
from ematix_flow.serve.cli.common.capture import capture_enabled, captured
from ematix_flow.serve.cli.common.options import open_log, open_observers
from ematix_flow.serve.cli.common.state import current

if TYPE_CHECKING:
    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.engine.schedule.slot_run import SlotRunner
    from ematix_flow.observe.bus import Bus


YEAR_SECONDS = 366 * 86_400
"""The longest pause or window of a command."""


class InstantType(click.ParamType[datetime]):
    """An instant in ISO form; one without a zone counts as UTC."""

    name = "instant"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Return the instant, or refuse the text."""
        try:
            instant = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is no instant; write it like 2026-01-31T06:00:00Z.", param, ctx)
        from ematix_flow.plan.schedule.cron import FIRST_YEAR, LAST_YEAR, is_in_calendar

        if not is_in_calendar(instant):
            self.fail(f"{str(value)!r} is not in the years {FIRST_YEAR} to {LAST_YEAR}.", param, ctx)
        return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)


class Amount(click.FloatRange):
    """A number of seconds or hours; neither infinite nor NaN, which every comparison lets pass."""

    def __init__(self, least: float, most: float, *, min_open: bool = False) -> None:
        super().__init__(least, most, min_open=min_open)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number, or refuse it."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is no number.", param, ctx)
        return float(number)


def chosen_log(options: dict[str, Any]) -> RunLog:
    """Return the run log that the options choose."""
    return open_log(options["run_log_url"], options["run_log_path"], no_run_log=options["no_run_log"])


def log_address(options: dict[str, Any]) -> str:
    """Return the address of the run log that the options choose, for a worker."""
    from ematix_flow.commit.runlog.open import location_of

    return location_of(options["run_log_url"], options["run_log_path"])


def slot_runner_for(
    log: RunLog, options: dict[str, Any], bus: Bus, role: str, now: datetime | None = None
) -> SlotRunner:
    """Return the runner of slots, with all observers subscribed to the bus."""
    from ematix_flow.engine.batch.options import Options
    from ematix_flow.engine.schedule.lease import LEASE_SECONDS, default_worker
    from ematix_flow.engine.schedule.pools import pool_sizes
    from ematix_flow.engine.schedule.slot_run import SlotRunner

    open_observers(options, log).subscribe_to(bus)
    if capture_enabled():
        current().ending.enter_context(captured(bus))
    return SlotRunner(
        log,
        Options(run_log=log, bus=bus),
        worker_id=options.get("worker_id") or default_worker(role),
        lease_seconds=float(options.get("lease_seconds") or LEASE_SECONDS),
        sizes=pool_sizes(PROJECT),
        now=now,
    )

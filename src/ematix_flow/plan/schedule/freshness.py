"""How fresh a table is, from what was inspected of it and the time; pure, it queries no system and reads no clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime, timedelta

HEALTHY, WARNING, BREACHED = "healthy", "warning", "breached"
NEARLY = 0.8
"""From this part of its limit on a lag is worth a warning."""

LAST_SUCCESS = "last success"


@dataclass(frozen=True, slots=True)
class Freshness:
    """How fresh what a pipeline loads was at one time."""

    pipeline: str
    target: str
    """Empty where the whole pipeline is meant."""
    state: str
    """healthy, warning or breached."""
    sla: timedelta
    lag: timedelta | None
    """None when there is nothing yet."""
    last: datetime | None
    basis: str
    """What `last` is: the last success, or the newest value of a column."""
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, with times in seconds."""
        return {
            "pipeline": self.pipeline,
            "target": self.target,
            "state": self.state,
            "sla_seconds": self.sla.total_seconds(),
            "lag_seconds": None if self.lag is None else self.lag.total_seconds(),
            "last": None if self.last is None else self.last.isoformat(),
            "basis": self.basis,
            "note": self.note,
        }


def lag_of(last: datetime | None, now: datetime) -> timedelta | None:
    """Return how long ago it was; what lies ahead is no lag."""
    return None if last is None else max(now - last, now - now)


def state_of(last: datetime | None, now: datetime, sla: timedelta) -> str:
    """Return the state: breached when it never happened or too long ago, warning when it is nearly so."""
    lag = lag_of(last, now)
    if lag is None or lag > sla:
        return BREACHED
    return WARNING if lag >= sla * NEARLY else HEALTHY

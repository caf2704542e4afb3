"""The clock, as a value that tests can replace; nothing else in the package reads the time."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Clock:
    """Returns aware UTC instants and sleeps."""

    now: Callable[[], datetime] = _utc_now
    sleep: Callable[[float], None] = time.sleep
    ticks: Callable[[], float] = time.monotonic
    """Returns seconds that only grow, for pauses and durations: instants jump when the clock is set."""
    wait: Callable[[threading.Event, float], bool] = threading.Event.wait
    """Sleeps until an event is set, and returns whether it is."""


SYSTEM_CLOCK = Clock()

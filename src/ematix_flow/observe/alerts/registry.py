"""The alerters that Python code of this process registered, and what sends to all alerters in the background."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ematix_flow.observe.background_queue import BackgroundQueue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.observe.alerts.alert import Alerter, AlertEvent

_registered: list[Alerter] = []


def register_alerter(alerter: Alerter) -> None:
    """Register an alerter for every run of this process that is observed."""
    _registered.append(alerter)


def active_alerters() -> list[Alerter]:
    """Return the registered alerters."""
    return list(_registered)


def clear_alerters() -> None:
    """Remove the registered alerters."""
    _registered.clear()


class AlertDesk:
    """Hands every alert to every alerter; each has a queue of its own, so that a slow one delays no other."""

    def __init__(self, alerters: Sequence[Alerter]) -> None:
        self._boxes = [BackgroundQueue(one.notify, f"alerts by {type(one).__name__}") for one in alerters]

    def send(self, event: AlertEvent) -> None:
        """Queue an alert."""
        for box in self._boxes:
            box.put(event)

    def close(self, seconds: float) -> None:
        """Send what waits, for as long as that takes at most."""
        until = time.monotonic() + seconds
        for box in self._boxes:
            box.close(max(0.0, until - time.monotonic()))

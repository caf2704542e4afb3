"""Fans events out to subscribers and keeps their failures away from the run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ematix_flow.connect.config.redact import safe_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.events import Event


class Bus:
    """Subscribers in the order they came."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[[Event], None]] = []

    @property
    def has_subscribers(self) -> bool:
        """Return whether there is a subscriber, so that it is worth watching a long step."""
        return bool(self._subscribers)

    def subscribe(self, subscriber: Callable[[Event], None]) -> None:
        """Send every later event to this subscriber as well."""
        self._subscribers.append(subscriber)

    def emit(self, event: Event) -> None:
        """Send an event to every subscriber; one that fails is reported and the others still get it."""
        for subscriber in self._subscribers:
            try:
                subscriber(event)
            except Exception as error:  # noqa: BLE001 - telling never stops a run
                sys.stderr.write(f"an observer failed: {safe_text(error)}\n")

"""Taking turns: work that changes nothing when somebody else commits first is begun again; other errors are not waited out."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, TypeVar

from ematix_flow.errors import OvertakenError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

ATTEMPTS = 40
PAUSE = 0.02
"""Seconds by which the longest pause grows with every attempt."""


def in_turn(work: Callable[[], T]) -> T:
    """Do the work until nobody else commits meanwhile, and give what it gives."""
    for attempt in range(1, ATTEMPTS):
        try:
            return work()
        except OvertakenError:
            time.sleep(random.uniform(0.0, PAUSE * attempt))  # noqa: S311 - only to part ways
    return work()

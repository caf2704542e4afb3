"""The stretch of time that a scheduled run stands for, as the user's function can ask for it; nothing is scheduled here."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class Slot:
    """From the slot before, which is not included, up to the instant for which the run was scheduled."""

    start: datetime | None
    end: datetime


_CURRENT: ContextVar[Slot | None] = ContextVar("slot", default=None)


def current_slot() -> Slot | None:
    """Return the slot of the run that asks; None for one that somebody started by hand."""
    return _CURRENT.get()


@contextmanager
def in_slot(slot: Slot | None) -> Iterator[None]:
    """Let code inside ask for a slot."""
    token = _CURRENT.set(slot)
    try:
        yield
    finally:
        _CURRENT.reset(token)

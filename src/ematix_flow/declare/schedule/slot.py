"""The interval of time that a scheduled run stands for, as the user's function can read it; it schedules nothing."""

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
    """Return the slot of the current run; None for one that was started by hand."""
    return _CURRENT.get()


@contextmanager
def in_slot(slot: Slot | None) -> Iterator[None]:
    """Let code in this block read a slot."""
    token = _CURRENT.set(slot)
    try:
        yield
    finally:
        _CURRENT.reset(token)

"""Columns that changes have and their table lacks: noted where changes are read, and handed over by tasks to their driver."""

from __future__ import annotations

import json
import threading
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_COLUMNS = 200
"""Columns of one batch that are told apart: messages with names by chance must not fill the memory."""

_lock = threading.Lock()
_noted: dict[str, Counter[str]] = {}
"""How many changes had each column, by the id of the source that was read."""


def note_left_out(source: str, columns: Mapping[str, int]) -> None:
    """Note how many changes of a source had columns whose values were left out."""
    if not columns:
        return
    with _lock:
        noted = _noted.setdefault(source, Counter())
        for name, changes in columns.items():
            if name in noted or len(noted) < MOST_COLUMNS:
                noted[name] += changes


def take_left_out(source: str) -> dict[str, int]:
    """Return what was noted of a source, and forget it."""
    with _lock:
        return dict(_noted.pop(source, {}))


def drain_left_out() -> str:
    """Return what a task has noted, to be noted by its driver, and forget it here; empty where that is nothing."""
    with _lock:
        drained = dict(_noted)
        _noted.clear()
    return json.dumps(drained) if drained else ""


def note_drained_columns(drained: str) -> None:
    """Note what a task has noted."""
    for source, columns in json.loads(drained or "{}").items():
        note_left_out(source, columns)

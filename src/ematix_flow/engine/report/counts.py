"""Counts of a run log that are remembered for a while: exact where they are quick to get, some seconds old where not."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ematix_flow.commit.runlog.log import RunLog

Value = TypeVar("Value")

WORTH = 20.0
"""For how many times as long as it took to count, a count is returned again."""
_MOST = 100
"""Counts of one run log that are remembered."""

_known: WeakKeyDictionary[RunLog, dict[Hashable, tuple[float, object]]] = WeakKeyDictionary()
"""The counts of each run log, and until when they are good enough."""


def remembered(log: RunLog, key: Hashable, count: Callable[[], Value]) -> Value:
    """Return a count of a run log: the one of a moment ago, or a new one."""
    counts, began = _known.setdefault(log, {}), time.monotonic()
    until, value = counts.get(key, (0.0, None))
    if began < until:
        return value  # type: ignore[return-value]
    new = count()
    while len(counts) >= _MOST:
        counts.pop(next(iter(counts)), None)
    counts[key] = (began + (time.monotonic() - began) * WORTH, new)
    return new

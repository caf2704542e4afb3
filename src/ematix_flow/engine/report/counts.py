"""Counts of a run log that are remembered for a while: exact where they are quick to get, some seconds old where not."""

from __future__ import annotations

import math
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from ematix_flow.errors import RunLogError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ematix_flow.commit.runlog.log import RunLog

Value = TypeVar("Value")

WORTH = 20.0
"""For how many times as long as it took to count, a count is returned again."""
SLOW_SECONDS = 0.5
"""What takes longer is counted again in the background, and the count before is returned meanwhile."""
SOON_SECONDS = 0.25
"""How long a page waits for a count that it can do without."""
OLDEST_SECONDS = 600.0
"""How old a count that is returned may be."""
_MOST = 100
"""Counts of one run log that are remembered."""


@dataclass(frozen=True, slots=True)
class _Count:
    value: Any = None
    at: float = -math.inf
    """When it was counted; never, while it is counted for the first time."""
    seconds: float = 0.0
    """How long it took."""
    counting: threading.Thread | None = None
    """The thread that counts again."""

    def is_older(self, seconds: float) -> bool:
        """Return whether it was counted longer ago."""
        return time.monotonic() - self.at > seconds


_known: WeakKeyDictionary[RunLog, dict[Hashable, _Count]] = WeakKeyDictionary()


def remembered(log: RunLog, key: Hashable, count: Callable[[], Value]) -> Value:
    """Return a count of a run log: the one of a moment ago, or a new one; nobody waits twice for one that is slow."""
    counts = _known.setdefault(log, {})
    known = counts.get(key, _Count())
    if known.is_older(OLDEST_SECONDS) and known.counting is not None:
        known.counting.join()
        known = counts.get(key, _Count())
    if known.is_older(OLDEST_SECONDS) or (known.is_older(known.seconds * WORTH) and known.seconds < SLOW_SECONDS):
        return _counted(counts, key, count)
    if known.is_older(known.seconds * WORTH):
        _begin(counts, key, count)
    value: Value = known.value
    return value


def remembered_soon(log: RunLog, key: Hashable, count: Callable[[], Value]) -> Value | None:
    """Return a count of a run log like `remembered`; None where nobody has counted yet and it is not quick."""
    counts = _known.setdefault(log, {})
    if counts.get(key, _Count()).is_older(OLDEST_SECONDS):
        _begin(counts, key, count).join(SOON_SECONDS)
    known = counts.get(key, _Count())
    return None if known.is_older(OLDEST_SECONDS) else remembered(log, key, count)


def _counted(counts: dict[Hashable, _Count], key: Hashable, count: Callable[[], Value]) -> Value:
    began = time.monotonic()
    value = count()
    while len(counts) >= _MOST:
        counts.pop(next(iter(counts)), None)
    now = time.monotonic()
    counts[key] = _Count(value, now, now - began)
    return value


def _begin(counts: dict[Hashable, _Count], key: Hashable, count: Callable[[], object]) -> threading.Thread:
    """Return the thread that counts, one for all who want to know."""
    known = counts.get(key, _Count())
    if known.counting is not None:
        return known.counting
    thread = threading.Thread(target=_renew, args=(counts, key, count), name="counts", daemon=True)
    counts[key] = replace(known, counting=thread)
    thread.start()
    return thread


def _renew(counts: dict[Hashable, _Count], key: Hashable, count: Callable[[], object]) -> None:
    try:
        with suppress(RunLogError):
            _counted(counts, key, count)
    finally:
        known = counts.get(key)
        if known is not None and known.counting is not None:  # it failed, and the next viewer tries again
            counts[key] = replace(known, counting=None)

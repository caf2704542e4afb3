"""Counts of a run log that are remembered for a while: exact where they are quick to get, some seconds old where not."""

from __future__ import annotations

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
OLDEST_SECONDS = 600.0
"""How old a count that is returned may be."""
_MOST = 100
"""Counts of one run log that are remembered."""


@dataclass(frozen=True, slots=True)
class _Count:
    value: Any
    at: float
    seconds: float
    """How long it took."""
    renewed: bool = False
    """Whether a thread counts again."""


_known: WeakKeyDictionary[RunLog, dict[Hashable, _Count]] = WeakKeyDictionary()


def remembered(log: RunLog, key: Hashable, count: Callable[[], Value]) -> Value:
    """Return a count of a run log: the one of a moment ago, or a new one; nobody waits twice for one that is slow."""
    counts, now = _known.setdefault(log, {}), time.monotonic()
    known = counts.get(key)
    if known is None or now - known.at > OLDEST_SECONDS:
        return _counted(counts, key, count)
    value: Value = known.value
    if now - known.at < known.seconds * WORTH:
        return value
    if known.seconds < SLOW_SECONDS:
        return _counted(counts, key, count)
    if not known.renewed:
        counts[key] = replace(known, renewed=True)
        threading.Thread(target=_renew, args=(counts, key, count), name="counts", daemon=True).start()
    return value


def _counted(counts: dict[Hashable, _Count], key: Hashable, count: Callable[[], Value]) -> Value:
    began = time.monotonic()
    value = count()
    while len(counts) >= _MOST:
        counts.pop(next(iter(counts)), None)
    now = time.monotonic()
    counts[key] = _Count(value, now, now - began)
    return value


def _renew(counts: dict[Hashable, _Count], key: Hashable, count: Callable[[], object]) -> None:
    try:
        with suppress(RunLogError):
            _counted(counts, key, count)
    finally:
        known = counts.get(key)
        if known is not None and known.renewed:  # it failed, and the next viewer tries again
            counts[key] = replace(known, renewed=False)

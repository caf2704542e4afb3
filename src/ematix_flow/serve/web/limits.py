"""Limits on how often something may be tried: so many times in so many seconds, for each who tries."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field

_MOST_KEYS = 10_000


@dataclass(slots=True)
class RateLimit:
    """A limit that all requests of a process share."""

    times: int
    seconds: float
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _tried: dict[str, deque[float]] = field(default_factory=dict)

    def wait_for(self, key: str) -> float:
        """Count a try; return 0, or after how many seconds the next one is allowed."""
        now = time.monotonic()
        with self._lock:
            tried = self._tried.setdefault(key, deque())
            while tried and tried[0] <= now - self.seconds:
                tried.popleft()
            if len(tried) >= self.times:
                return tried[0] + self.seconds - now
            tried.append(now)
            while len(self._tried) > _MOST_KEYS:
                del self._tried[next(iter(self._tried))]
            return 0.0

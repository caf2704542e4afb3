"""Queries of the page over its datasources: limits from the environment, a cache of results, and jobs for long ones."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from ematix_flow.engine.query import MOST_ROWS, Datasources, QueryResult
from ematix_flow.errors import DeclareError
from ematix_flow.serve.web.jobs import Jobs

_MOST_CACHED = 256


def number_of(variable: str, default: float) -> float:
    """Return a number from the environment."""
    text = os.environ.get(variable)
    try:
        value = default if not text else float(text)
    except ValueError:
        value = -1.0
    if value < 0:
        raise DeclareError(f"{variable} is {text!r}, and has to be a number that is not negative")
    return value


def names_of(variable: str) -> frozenset[str]:
    """Return names from the environment, with commas between them, in lower case."""
    names = (name.strip().lower() for name in os.environ.get(variable, "").split(","))
    return frozenset(name for name in names if name)


@dataclass(slots=True)
class Queries:
    """What people query."""

    sources: Datasources
    seconds: float = field(default_factory=lambda: number_of("EMATIX_FLOW_QUERY_TIMEOUT_S", 30.0))
    cached_seconds: float = field(default_factory=lambda: number_of("EMATIX_FLOW_CACHE_TTL_S", 0.0))
    jobs: Jobs = field(
        default_factory=lambda: Jobs(
            max(1, int(number_of("EMATIX_FLOW_MAX_ASYNC_QUERIES", 8))),
            int(number_of("EMATIX_FLOW_MAX_ASYNC_JOBS", 256)),
        )
    )
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _results: dict[tuple[str, str, int], tuple[float, QueryResult]] = field(default_factory=dict)

    def run(self, datasource: str, sql: str, rows: int) -> dict[str, Any]:
        """Return the result of a query, or one that is not too old."""
        key, now = (datasource, sql, min(rows, MOST_ROWS)), time.monotonic()
        with self._lock:
            known = self._results.get(key)
        if known is not None and now - known[0] < self.cached_seconds:
            return known[1].to_dict(cached=True)
        result = self.sources.query(datasource, sql, key[2], self.seconds)
        if self.cached_seconds:
            with self._lock:
                while len(self._results) >= _MOST_CACHED:
                    del self._results[next(iter(self._results))]
                self._results[key] = (now, result)
        return result.to_dict()

    def forget(self) -> int:
        """Drop all results; return how many there were."""
        with self._lock:
            count = len(self._results)
            self._results.clear()
            return count

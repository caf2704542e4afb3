"""Numbers of runs for Prometheus: a registry of its own, served as long as the process observes runs."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from ematix_flow.observe.metrics.run import ATTEMPT, DURATION, RUNS, SECONDS, TEXTS
from ematix_flow.observe.metrics.stream import HOST, listening

DEFAULT_PORT = 9464
"""Where exporters of Prometheus that belong to no known program listen."""


class PrometheusSink:
    """Counts, and serves the numbers by HTTP."""

    def __init__(self, port: int = DEFAULT_PORT, host: str = HOST) -> None:
        self.registry = CollectorRegistry()
        self._runs = Counter(RUNS, TEXTS[RUNS], ("pipeline", "outcome"), registry=self.registry)
        self._seconds = Histogram(DURATION, TEXTS[DURATION], ("pipeline",), registry=self.registry, buckets=SECONDS)
        self._attempt = Gauge(ATTEMPT, TEXTS[ATTEMPT], ("pipeline",), registry=self.registry)
        self.port, self._stop = listening(self.registry, host, port)

    def inc_runs(self, name: str, outcome: str) -> None:
        """Count a run."""
        self._runs.labels(name, outcome).inc()

    def observe_duration(self, name: str, secs: float) -> None:
        """Record how long a run took."""
        self._seconds.labels(name).observe(secs)

    def set_attempt(self, name: str, count: int) -> None:
        """Record how many attempts have failed in a row."""
        self._attempt.labels(name).set(count)

    def close(self) -> None:
        """Serve no more."""
        self._stop()

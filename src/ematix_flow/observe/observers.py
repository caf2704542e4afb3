"""Builds the observers of runs, from options or the environment; what was not requested is not even loaded."""

from __future__ import annotations

import os
import re
import sys
import time
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, cast

from ematix_flow.background import in_background
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.errors import FlowError
from ematix_flow.events import BatchLoaded, LogLagMeasured, StageProgress, StreamIdle, StreamLag, StreamWatermark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ematix_flow.events import Event
    from ematix_flow.observe.alerts.alert import Alerter
    from ematix_flow.observe.alerts.incidents import AlertRules, Incidents, IncidentStore
    from ematix_flow.observe.bus import Bus
    from ematix_flow.observe.lineage.openlineage import Lineage
    from ematix_flow.observe.metrics.run import MetricsSink
    from ematix_flow.observe.otlp.traces import Tracing

FLUSH_SECONDS = 10.0
"""How long the end of a command waits for slow observers."""

GRACE_SECONDS = 1.0
"""Each observer keeps to that time itself and reports what was left, which takes a little longer."""

_FREQUENT = (StageProgress, StreamIdle, StreamLag, LogLagMeasured, StreamWatermark, BatchLoaded)
"""Events that never alert and that could fill a queue."""

_BETWEEN = re.compile(r",(?=\s*(?:[A-Za-z][A-Za-z0-9+.-]*://|\$\{))")


@dataclass
class Observers:
    """The observers of runs."""

    subscribers: list[Callable[[Event], None]] = field(default_factory=list)
    incidents: Incidents | None = None
    """Where updates of quality and freshness go; None without alerters."""
    closing: list[Callable[[float], None]] = field(default_factory=list)

    def subscribe_to(self, bus: Bus) -> None:
        """Subscribe all of them to a bus."""
        for subscriber in self.subscribers:
            bus.subscribe(subscriber)

    def close(self, seconds: float) -> None:
        """Let all of them send what they still have, within the same few seconds."""
        until = time.monotonic() + seconds
        ends = [in_background(partial(end, seconds), "flow-observers") for end in self.closing]
        for end in ends:
            try:
                end.result(max(0.0, until + GRACE_SECONDS - time.monotonic()))
            except Exception as error:  # noqa: BLE001 - telling never stops a run
                sys.stderr.write(f"an observer did not end: {safe_text(error)}\n")


@contextmanager
def observers(
    alerters: Sequence[Alerter | str] = (),
    metrics: MetricsSink | str | None = None,
    traces: str | None = None,
    lineage: str | None = None,
    incidents: IncidentStore | None = None,
    rules: Callable[[str], AlertRules] | None = None,
) -> Iterator[Observers]:
    """Return the observers that the options name, or else the environment; at the end they send what they still have.

    An alerter or a sink of the caller is an observer too; the caller closes its sink.
    """
    result = Observers()
    _add_alerts(result, alerters or _listed("EMATIX_FLOW_ALERTERS"), incidents, rules)
    _add_metrics(result, metrics or _first("EMATIX_FLOW_METRICS", "EMATIX_FLOW_METRICS_URL"))
    _add_traces(result, traces or _first("EMATIX_FLOW_TRACES"))
    _add_lineage(result, lineage or _first("EMATIX_FLOW_LINEAGE"))
    try:
        yield result
    finally:
        result.close(FLUSH_SECONDS)


def incident_store_in(log: object) -> IncidentStore | None:
    """Return a run log as the store of incidents; None where it stores none."""
    if not (hasattr(log, "find") and hasattr(log, "swap")):
        return None
    return cast("IncidentStore", log)


def _listed(name: str) -> list[str]:
    """Return the addresses of a list; a comma inside one, as between receivers of a mail, divides nothing."""
    urls = (one.strip(" ,") for one in _BETWEEN.split(os.environ.get(name, "")))
    return [one for one in urls if one]


def _first(*names: str) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def _add_alerts(
    result: Observers,
    configured: Sequence[Alerter | str],
    store: IncidentStore | None,
    rules: Callable[[str], AlertRules] | None,
) -> None:
    alerters = _alerters(configured)
    if not alerters:
        return
    from ematix_flow.observe.alerts.incidents import Incidents, MemoryIncidentStore, declared_rules
    from ematix_flow.observe.alerts.registry import AlertDesk
    from ematix_flow.observe.background_queue import BackgroundQueue

    desk = AlertDesk(alerters)
    result.incidents = Incidents(store or MemoryIncidentStore(), desk.send, rules or declared_rules)
    # In the background, because the run log may be slow to answer.
    box: BackgroundQueue[Event] = BackgroundQueue(result.incidents, "alerts")

    def close(seconds: float) -> None:
        until = time.monotonic() + seconds
        box.close(seconds)
        desk.close(max(0.0, until - time.monotonic()))

    result.subscribers.append(lambda event: None if isinstance(event, _FREQUENT) else box.put(event))
    result.closing.append(close)


def _alerters(configured: Sequence[Alerter | str]) -> list[Alerter]:
    """Return alerters, those of URLs and those that were registered; a bad URL is a warning."""
    # None can be registered without this module.
    active = sys.modules.get("ematix_flow.observe.alerts.registry")
    alerters: list[Alerter] = [] if active is None else active.active_alerters()
    for url in configured:
        if not isinstance(url, str):
            alerters.append(url)
            continue
        from ematix_flow.observe.alerts.urls import from_url

        try:
            alerters.append(from_url(url))
        except FlowError as error:
            warnings.warn(f"there are no alerts by one of the addresses: {error}", UserWarning, stacklevel=2)
    return alerters


def _add_metrics(result: Observers, configured: MetricsSink | str | None) -> None:
    if not configured:
        return
    from ematix_flow.observe.metrics.run import RunMetrics
    from ematix_flow.observe.metrics.urls import from_url

    if not isinstance(configured, str):
        result.subscribers.append(RunMetrics(configured))
        return
    sink = from_url(configured)
    result.subscribers.append(RunMetrics(sink))
    result.closing.append(lambda _: sink.close())


def _add_traces(result: Observers, url: str | None) -> None:
    if not url:
        return
    from ematix_flow.observe.otlp.trace_urls import from_url

    _add(result, from_url(url))


def _add_lineage(result: Observers, url: str | None) -> None:
    if not url:
        return
    from ematix_flow.observe.lineage.urls import from_url

    _add(result, from_url(url))


def _add(result: Observers, observer: Tracing | Lineage | None) -> None:
    if observer is not None:
        result.subscribers.append(observer)
        result.closing.append(observer.close)

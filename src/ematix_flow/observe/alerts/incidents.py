"""Alerts are per incident: the first failure alerts, then none until it lasts or ends; the run log ensures "first"."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from ematix_flow.clock import SYSTEM_CLOCK
from ematix_flow.declare.project import PROJECT
from ematix_flow.errors import TransientError
from ematix_flow.events import FreshnessChanged, LogLagChecked, PipelineEnded, QualityMeasured
from ematix_flow.observe.alerts.alert import (
    FAILED,
    GAVE_UP,
    LAGGING,
    QUALITY_FAILED,
    RECOVERED,
    SLA_BREACHED,
    AlertEvent,
)
from ematix_flow.records import Incident
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.clock import Clock
    from ematix_flow.events import Event

TRIES = 20
"""How often a record is read again because another process changed it in between."""

_BAD = {"failed": FAILED, "quality": QUALITY_FAILED, "freshness": SLA_BREACHED, "lag": LAGGING}
"""Kind of incident -> kind of the alert that opens it."""

_INTERRUPTIONS = ("KeyboardInterrupt", "SystemExit", "StoppedError", "RunCancelledError")
"""Errors of a run that was stopped on request, which is no incident."""


@dataclass(frozen=True, slots=True)
class AlertRules:
    """When a pipeline that keeps failing alerts again."""

    realert_after: timedelta = timedelta(hours=1)
    every_attempt: bool = False
    """True: every failure alerts."""


def declared_rules(name: str) -> AlertRules:
    """Return the rules of a pipeline of this process; the defaults where it declares none or is not known."""
    pipeline = PROJECT.pipelines.get(name)
    if pipeline is None:
        return AlertRules()
    return AlertRules(pipeline.realert_after, pipeline.alert_every_attempt)


@dataclass(frozen=True, slots=True)
class IncidentUpdate:
    """The result of one check of a pipeline: whether it is bad, in one respect."""

    pipeline: str
    incident: str
    """failed, quality, freshness or lag."""
    bad: bool
    error_message: str = ""
    error_type: str = ""
    attempt: int = 0
    max_attempts: int = 0
    gave_up: bool = False


def run_update(event: PipelineEnded) -> IncidentUpdate | None:
    """Return the update for the end of a run; None when it was stopped on request."""
    if event.error_type in _INTERRUPTIONS:
        return None
    known = (event.error_message, event.error_type, event.attempt, event.max_attempts)
    return IncidentUpdate(
        event.pipeline, "failed", not event.success, *known, gave_up=event.gave_up and not event.success
    )


def quality_update(pipeline: str, message: str, target: str = "") -> IncidentUpdate:
    """Return the update for a check of quality; an empty message means that everything was as expected."""
    return IncidentUpdate(pipeline, _of_target("quality", target), bool(message), message)


def freshness_update(pipeline: str, message: str, target: str = "") -> IncidentUpdate:
    """Return the update for a check of freshness; an empty message means that it is fresh enough."""
    return IncidentUpdate(pipeline, _of_target("freshness", target), bool(message), message)


def lag_update(stream: str, message: str, target: str = "") -> IncidentUpdate:
    """Return the update for a check of a stream's lag; an empty message means that it is not too far behind."""
    return IncidentUpdate(stream, _of_target("lag", target), bool(message), message)


def _of_target(kind: str, target: str) -> str:
    """Return the kind of incident of one of several targets: one may be well while another is not."""
    return f"{kind} {target}" if target else kind


def _shared(event: QualityMeasured | FreshnessChanged) -> str:
    """Return the target of an event where its pipeline has several."""
    pipeline = PROJECT.pipelines.get(event.pipeline)
    return event.target if pipeline is not None and len(pipeline.targets) > 1 else ""


def _failing(event: QualityMeasured) -> str:
    """Return the checks that failed, for people; empty when they do not alert."""
    audited = event.audited
    if audited.outcome != "fail" and not (audited.outcome == "warn" and event.alert_on_warn):
        return ""
    bad = [
        f"{check.name} ({check.failed_rows} of {quantity(check.total, 'row')})"
        for check in audited.checks
        if check.verdict != "pass"
    ]
    return f"{event.target}: {', '.join(bad)}"


def _age(event: FreshnessChanged) -> str:
    if event.state != "breached":
        return ""
    age = "nothing was ever loaded" if event.lag_seconds is None else f"{event.lag_seconds:.0f} s old"
    return f"{event.target or event.pipeline}: {age}, at most {event.sla_seconds:.0f} s are wanted"


def decide(
    incident: Incident | None, update: IncidentUpdate, now: datetime, rules: AlertRules
) -> tuple[Incident | None, tuple[AlertEvent, ...]]:
    """Return the incident after the update, None where there is none, and the alert to send; pure."""
    is_open = incident is not None and not incident.closed_at
    if incident is None or not is_open:
        return _open_incident(incident, update, now) if update.bad else (incident, ())
    if not update.bad:
        return replace(incident, closed_at=_utc_text(now)), (_alert(RECOVERED, update, now),)
    return _lasting(incident, update, now, rules)


def _open_incident(
    old: Incident | None, update: IncidentUpdate, now: datetime
) -> tuple[Incident, tuple[AlertEvent, ...]]:
    spent = _spent(update)
    version = old.version if old is not None else 0
    kinds = (_bad(update), GAVE_UP) if spent else (_bad(update),)
    opened = Incident(
        update.pipeline, update.incident, _utc_text(now), _utc_text(now), count=1, gave_up=spent, version=version
    )
    return opened, tuple(_alert(kind, update, now) for kind in kinds)


def _lasting(
    incident: Incident, update: IncidentUpdate, now: datetime, rules: AlertRules
) -> tuple[Incident, tuple[AlertEvent, ...]]:
    """Count the update; it alerts when it is the end of all attempts, or the last alert was long ago."""
    spent = _spent(update)
    kinds = [_bad(update)] if rules.every_attempt else []
    if spent and not incident.gave_up:
        kinds.append(GAVE_UP)
    if not kinds and now - datetime.fromisoformat(incident.alerted_at) >= rules.realert_after:
        kinds = [GAVE_UP if spent else _bad(update)]
    alerted_at = _utc_text(now) if kinds else incident.alerted_at
    after = replace(incident, count=incident.count + 1, gave_up=incident.gave_up or spent, alerted_at=alerted_at)
    return after, tuple(_alert(kind, update, now) for kind in kinds)


def _bad(update: IncidentUpdate) -> str:
    return _BAD[update.incident.partition(" ")[0]]


def _spent(update: IncidentUpdate) -> bool:
    """Return whether all attempts are used up; a pipeline without a retry policy never gives up."""
    return update.gave_up and update.max_attempts > 1


def _alert(kind: str, update: IncidentUpdate, now: datetime) -> AlertEvent:
    known = (update.error_message, update.error_type, update.attempt, update.max_attempts)
    return AlertEvent(kind, update.pipeline, now, *known, gave_up=update.gave_up, incident=update.incident)


def _utc_text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()


class IncidentStore(Protocol):
    """Where incidents are stored: the run log, so that all hosts see them."""

    def find(self, kind: type[Incident], /, *key: str) -> Incident | None:
        """Return the record of a pipeline and a kind of incident."""
        ...

    def swap(self, before: Incident | None, after: Incident, /) -> Incident | None:
        """Replace a record as it was read; None when another process was first."""
        ...


class MemoryIncidentStore:
    """Stores incidents as long as the process lives, where no run log does."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, ...], Incident] = {}
        self._lock = threading.Lock()

    def find(self, kind: type[Incident], /, *key: str) -> Incident | None:
        """Return the record of a pipeline and a kind of incident."""
        del kind
        return self._records.get(key)

    def swap(self, before: Incident | None, after: Incident, /) -> Incident | None:
        """Replace a record."""
        key = (after.pipeline, after.kind)
        with self._lock:
            if self._records.get(key) != before:
                return None
            stored = self._records[key] = replace(after, version=after.version + 1)
        return stored


class Incidents:
    """Turns updates into alerts."""

    def __init__(
        self,
        store: IncidentStore,
        send: Callable[[AlertEvent], None],
        rules: Callable[[str], AlertRules] = declared_rules,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._store, self._send, self._rules, self._clock = store, send, rules, clock
        self._memory_store = MemoryIncidentStore()

    def __call__(self, event: Event) -> None:
        """Handle a run that has ended, rows that were measured, tables that become stale and streams that are behind."""
        match event:
            case PipelineEnded():
                update = run_update(event)
            case QualityMeasured():
                update = quality_update(event.pipeline, _failing(event), _shared(event))
            case FreshnessChanged():
                update = freshness_update(event.pipeline, _age(event), _shared(event))
            case LogLagChecked():
                update = lag_update(event.pipeline, event.problem, event.target)
            case _:
                update = None
        if update is not None:
            self.hear(update)

    def hear(self, update: IncidentUpdate) -> None:
        """Store the update first and alert afterwards, and only if no other process does: one failure, one alert."""
        try:
            alerts = self._records(self._store, update)
        except TransientError:
            # While the run log is away, alerts of two hosts are better than none.
            alerts = self._records(self._memory_store, update)
        for alert in alerts:
            self._send(alert)

    def _records(self, store: IncidentStore, update: IncidentUpdate) -> tuple[AlertEvent, ...]:
        for _ in range(TRIES):
            before = store.find(Incident, update.pipeline, update.incident)
            after, alerts = decide(before, update, self._clock.now(), self._rules(update.pipeline))
            if after is None or after == before or store.swap(before, after) is not None:
                return alerts
        return ()

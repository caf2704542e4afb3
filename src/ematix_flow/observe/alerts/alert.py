"""An alert as a value, and its text; nothing is sent here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ematix_flow.connect.config.redact import redact

if TYPE_CHECKING:
    from datetime import datetime

FAILED, GAVE_UP, RECOVERED = "failed", "gave_up", "recovered"
QUALITY_FAILED, SLA_BREACHED, LAGGING = "quality_failed", "sla_breached", "lagging"
KINDS = (FAILED, GAVE_UP, RECOVERED, QUALITY_FAILED, SLA_BREACHED, LAGGING)

LONGEST = 1500
"""Characters of an error that are sent."""

_KIND_TEXT = {
    FAILED: "failed",
    GAVE_UP: "gave up",
    RECOVERED: "has recovered",
    QUALITY_FAILED: "did not meet its expectations",
    SLA_BREACHED: "is not fresh enough",
    LAGGING: "is too far behind its source",
}


@dataclass(frozen=True, slots=True)
class AlertEvent:
    """An alert about a pipeline."""

    kind: str
    """failed, gave_up, recovered, quality_failed, sla_breached or lagging."""
    pipeline: str
    timestamp: datetime
    error_message: str = ""
    error_type: str = ""
    attempt_count: int = 0
    max_attempts: int = 0
    gave_up: bool = False
    incident: str = "failed"
    """What kind of incident it belongs to: failed, quality, freshness or lag."""


class Alerter(Protocol):
    """Sends alerts."""

    def notify(self, event: AlertEvent) -> None:
        """Send one alert; an error is shown once and never stops a run."""
        ...


def headline(event: AlertEvent) -> str:
    """Return the alert in one line."""
    attempts = f" (attempt {event.attempt_count} of {event.max_attempts})" if event.max_attempts > 1 else ""
    return _line(f"{event.pipeline} {_KIND_TEXT.get(event.kind, event.kind)}{attempts}")


def details(event: AlertEvent) -> str:
    """Return what went wrong, without secrets and of bounded length; empty when nothing did."""
    text = redact(event.error_message)
    if len(text) > LONGEST:
        text = text[:LONGEST] + " ..."
    return f"{event.error_type}: {text}" if event.error_type and text else text or event.error_type


def instant(event: AlertEvent) -> str:
    """Return when it happened."""
    return event.timestamp.isoformat(timespec="seconds").replace("+00:00", "Z")


def alert_text(event: AlertEvent) -> str:
    """Return the alert as a text of a few lines."""
    return "\n".join(part for part in (headline(event), details(event), instant(event)) if part)


def _line(text: str) -> str:
    """Return a text in one line: names of pipelines go into headers of mail."""
    return redact(" ".join(text.split()))

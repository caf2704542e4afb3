"""Alerters that need nothing but this process and HTTP: lines on stderr, web hooks as of Slack, and PagerDuty."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ematix_flow.observe.alerts.alert import FAILED, GAVE_UP, RECOVERED, alert_text, details, headline, instant
from ematix_flow.observe.http.client import CLIENT, post

if TYPE_CHECKING:
    from ematix_flow.observe.alerts.alert import AlertEvent
    from ematix_flow.observe.http.client import HttpClient

PAGERDUTY = "https://events.pagerduty.com/v2/enqueue"
SEVERITIES = ("info", "warning", "error", "critical")
_JSON = {"Content-Type": "application/json"}
_LONGEST_SUMMARY = 1024
_LONGEST_KEY = 255


@dataclass(frozen=True, slots=True)
class StdoutAlerter:
    """Writes a line to stderr; stdout belongs to results."""

    def notify(self, event: AlertEvent) -> None:
        """Write the alert."""
        more = " ".join(details(event).split())
        line = f"{event.kind} {headline(event)}" + (f": {more}" if more else "")
        sys.stderr.write(f"[ALERT] {instant(event)} {line}\n")
        sys.stderr.flush()


@dataclass(frozen=True, slots=True)
class SlackAlerter:
    """Posts a text to a web hook of Slack, or of anything that takes `{"text": ...}`."""

    url: str = field(repr=False)
    client: HttpClient = field(default=CLIENT, repr=False)

    def notify(self, event: AlertEvent) -> None:
        """Post the alert."""
        text = alert_text(event).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        post(self.url, json.dumps({"text": text}).encode(), _JSON, self.client)


@dataclass(frozen=True, slots=True)
class PagerDutyAlerter:
    """Opens and resolves incidents by the Events API v2; what belongs together has one key there."""

    routing_key: str = field(repr=False)
    severity: str = "error"
    service: str = "ematix-flow"
    url: str = field(default=PAGERDUTY, repr=False)
    client: HttpClient = field(default=CLIENT, repr=False)

    def notify(self, event: AlertEvent) -> None:
        """Trigger, or resolve what has recovered."""
        over = event.kind == RECOVERED
        body: dict[str, object] = {
            "routing_key": self.routing_key,
            "event_action": "resolve" if over else "trigger",
            "dedup_key": self._key(event),
        }
        if not over:
            body["payload"] = self._payload(event)
        post(self.url, json.dumps(body).encode(), _JSON, self.client)

    def _key(self, event: AlertEvent) -> str:
        kind = "" if event.incident == FAILED else f":{event.incident}"
        return f"{self.service}:{event.pipeline}{kind}"[:_LONGEST_KEY]

    def _payload(self, event: AlertEvent) -> dict[str, object]:
        return {
            "summary": f"{headline(event)}: {details(event)}"[:_LONGEST_SUMMARY],
            "source": self.service,
            "severity": "critical" if event.kind == GAVE_UP else self.severity,
            "timestamp": event.timestamp.isoformat(),
            "component": event.pipeline,
            "class": event.kind,
            "custom_details": {
                "error_type": event.error_type,
                "attempt_count": event.attempt_count,
                "max_attempts": event.max_attempts,
            },
        }

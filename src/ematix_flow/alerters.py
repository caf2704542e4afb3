"""Public names of alerts; nothing else is defined here."""

from ematix_flow.observe.alerts.alert import Alerter, AlertEvent
from ematix_flow.observe.alerts.channels import PagerDutyAlerter, SlackAlerter, StdoutAlerter
from ematix_flow.observe.alerts.mail import EmailAlerter
from ematix_flow.observe.alerts.registry import active_alerters, clear_alerters, register_alerter
from ematix_flow.observe.alerts.urls import from_url

__all__ = [
    "AlertEvent",
    "Alerter",
    "EmailAlerter",
    "PagerDutyAlerter",
    "SlackAlerter",
    "StdoutAlerter",
    "active_alerters",
    "clear_alerters",
    "from_url",
    "register_alerter",
]

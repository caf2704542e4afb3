"""Chooses an alerter by its URL; the forms of the URLs are known here only."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from ematix_flow.connect.config.secrets import expand, remember
from ematix_flow.errors import DeclareError, did_you_mean
from ematix_flow.observe.alerts.channels import SEVERITIES, PagerDutyAlerter, SlackAlerter, StdoutAlerter
from ematix_flow.observe.alerts.mail import EmailAlerter
from ematix_flow.observe.http.client import CLIENT
from ematix_flow.observe.http.host_guard import VARIABLE, Allowed, allowed_hosts

if TYPE_CHECKING:
    from urllib.parse import SplitResult

    from ematix_flow.observe.alerts.alert import Alerter
    from ematix_flow.observe.http.client import HttpClient

_SHORTEST_KEY = 8


def from_url(url: str, client: HttpClient = CLIENT) -> Alerter:
    """Return the alerter of a URL; `${...}` in it is filled in, and what is secret in it is never shown."""
    full = expand(url.strip())
    try:
        parts = urlsplit(full)
        _ = parts.port
    except ValueError:
        raise DeclareError("the address of an alerter is no URL", hint="write scheme://...") from None
    _remember_secrets(parts, full)
    match parts.scheme:
        case "stdout":
            return StdoutAlerter()
        case "slack" if "." in (parts.hostname or ""):
            return SlackAlerter("https" + full.removeprefix("slack"), client)
        case "https":
            return SlackAlerter(full, client)
        case "http":
            return _plain_hook(full, client)
        case "email":
            return _mail(parts, client)
        case "pagerduty":
            return _pagerduty(parts, client)
        case "":
            raise DeclareError("the address of an alerter has no scheme", hint="write scheme://...")
    # Imported here: it takes as long as all the others together.
    from ematix_flow.observe.alerts.apprise import apprise_alerter

    return apprise_alerter(full, client)


def _plain_hook(url: str, client: HttpClient) -> SlackAlerter:
    """Return the alerter of a hook in plain text, which only hosts that the operator named may have."""
    if (allowed_hosts() if client.allowed is None else client.allowed) == Allowed():
        hint = f"write https://, or name the host in {VARIABLE}."
        raise DeclareError("a web hook must be https", hint=hint)
    return SlackAlerter(url, client)


def _remember_secrets(parts: SplitResult, url: str) -> None:
    """Register with the redactor what must not be shown: the address of a hook is a key to it."""
    host = parts.hostname or ""
    candidates = [*parts.path.split("/"), parts.username or "", "" if "." in host else parts.netloc]
    # Words such as "services" or "hooks" are in such addresses too, and hiding them would ruin other messages.
    keys = [secret for secret in candidates if len(secret) >= _SHORTEST_KEY and any(map(str.isdigit, secret))]
    for secret in (parts.password or "", *keys, *([url] if parts.path.strip("/") else ())):
        remember(secret)
        remember(unquote(secret))


def _query_parameters(parts: SplitResult, known: tuple[str, ...]) -> dict[str, str]:
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in parameters:
        if name not in known:
            message = f"an address of {parts.scheme}:// takes no {name!r}"
            raise DeclareError(message, hint=did_you_mean(name, known))
    return parameters


def _mail(parts: SplitResult, client: HttpClient) -> EmailAlerter:
    parameters = _query_parameters(parts, ("to", "from", "starttls"))
    to = tuple(one.strip() for one in parameters.get("to", "").split(",") if one.strip())
    if not parts.hostname or not to:
        message = "an alert by mail needs a server and an address to write to"
        raise DeclareError(message, hint="write email://user:password@host:587?to=a@example.com,b@example.com.")
    return EmailAlerter(
        parts.hostname,
        to,
        sender=parameters.get("from", ""),
        port=parts.port or 0,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        starttls=parameters.get("starttls", "1").lower() not in ("0", "false", "no"),
        client=client,
    )


def _pagerduty(parts: SplitResult, client: HttpClient) -> PagerDutyAlerter:
    parameters = _query_parameters(parts, ("severity", "service"))
    severity = parameters.get("severity", "error")
    if not parts.netloc:
        message = "an alert by PagerDuty needs a routing key"
        raise DeclareError(message, hint="write pagerduty://KEY.")
    if severity not in SEVERITIES:
        message = f"PagerDuty knows no severity {severity!r}"
        raise DeclareError(message, hint=did_you_mean(severity, SEVERITIES))
    return PagerDutyAlerter(parts.netloc, severity, parameters.get("service") or "ematix-flow", client=client)

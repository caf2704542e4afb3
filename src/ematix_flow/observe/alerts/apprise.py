"""Every channel that Apprise knows by its URL; Apprise opens its own connections, so only the host of a URL is guarded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ematix_flow.errors import DeclareError, RunError
from ematix_flow.observe.alerts.alert import GAVE_UP, RECOVERED, alert_text, headline
from ematix_flow.observe.http.client import CLIENT
from ematix_flow.observe.http.host_guard import HostUnreachableError, RefusedHostError

if TYPE_CHECKING:
    from ematix_flow.observe.alerts.alert import AlertEvent
    from ematix_flow.observe.http.client import HttpClient


@dataclass(frozen=True, slots=True)
class AppriseAlerter:
    """Sends alerts by one channel of Apprise."""

    channel: Any = field(repr=False)
    client: HttpClient = field(default=CLIENT, repr=False)

    def notify(self, event: AlertEvent) -> None:
        """Send the alert."""
        self._check()
        kind = "success" if event.kind == RECOVERED else "failure" if event.kind == GAVE_UP else "warning"
        if not self.channel.notify(body=alert_text(event), title=headline(event), notify_type=kind):
            raise RunError(f"the alert by {type(self.channel).__name__} was not taken")

    def _check(self) -> None:
        """Refuse a private host, and plain text to one that the operator did not name."""
        channel = self.channel
        hosts = {channel.host, getattr(channel, "smtp_host", None)} - {None, ""}
        if not any("{host}" in template for template in channel.templates):
            hosts = set()  # the service has an address of its own, and the host part of the URL is a token
        for host in hosts:
            try:
                endpoint = self.client.find(host, channel.port or (443 if channel.secure else 80))
            except HostUnreachableError:
                continue  # no host, but for example a topic of a service
            if not channel.secure and not endpoint.listed:
                message = f"host {endpoint.host!r} would be sent plain text"
                hint = "use the scheme with an s at its end, or EMATIX_FLOW_ALLOW_HOSTS."
                raise RefusedHostError(message, hint=hint)


def apprise_alerter(url: str, client: HttpClient = CLIENT) -> AppriseAlerter:
    """Return the alerter of a URL that Apprise understands, or refuse it."""
    import logging
    import warnings

    with warnings.catch_warnings():
        # What its channels import is not for our users to fix.
        warnings.simplefilter("ignore")
        import apprise

        # It writes whole URLs, with their tokens, to its log.
        logging.getLogger("apprise").setLevel(logging.CRITICAL)
        asset = apprise.AppriseAsset(app_id="ematix-flow", http_redirects=False, async_mode=False)
        channel = apprise.Apprise.instantiate(url, asset=asset, suppress_exceptions=True)
    if channel is None:
        scheme = url.partition("://")[0]
        message = f"no alerter understands this address of the scheme {scheme!r}"
        hint = "known are stdout, slack, https, email, pagerduty and every scheme of Apprise, each with its own form."
        raise DeclareError(message, hint=hint)
    return AppriseAlerter(channel, client)

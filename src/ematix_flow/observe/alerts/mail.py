"""Alerts by mail: SMTP with STARTTLS, or with TLS from the start; never in plain text."""

from __future__ import annotations

import smtplib
import ssl
from dataclasses import dataclass, field
from email.message import EmailMessage
from typing import TYPE_CHECKING

from ematix_flow.errors import RunError
from ematix_flow.observe.alerts.alert import alert_text, headline
from ematix_flow.observe.http.client import CLIENT, connected, within

if TYPE_CHECKING:
    import socket

    from ematix_flow.observe.alerts.alert import AlertEvent
    from ematix_flow.observe.http.client import HttpClient
    from ematix_flow.observe.http.host_guard import Reachable


@dataclass(frozen=True, slots=True)
class EmailAlerter:
    """Sends one mail for each alert."""

    host: str
    to: tuple[str, ...]
    sender: str = ""
    port: int = 0
    """0: 587, or 465 without STARTTLS."""
    user: str = ""
    password: str = field(default="", repr=False)
    starttls: bool = True
    """False: TLS from the first byte on."""
    client: HttpClient = field(default=CLIENT, repr=False)

    def notify(self, event: AlertEvent) -> None:
        """Send the alert."""
        message = self.message(event)
        within(self.client.seconds, lambda sockets: self._send(message, sockets), self.host)

    def message(self, event: AlertEvent) -> EmailMessage:
        """Return the mail."""
        message = EmailMessage()
        message["Subject"] = f"[ematix-flow] {headline(event)}"
        message["From"] = self.sender or (self.user if "@" in self.user else f"ematix-flow@{self.host}")
        message["To"] = ", ".join(self.to)
        message["Date"] = event.timestamp
        message.set_content(alert_text(event))
        return message

    def _send(self, message: EmailMessage, sockets: list[socket.socket]) -> None:
        endpoint = self.client.find(self.host, self.port or (587 if self.starttls else 465))
        try:
            with _Mailer(endpoint, self.client.seconds, sockets, starttls=self.starttls) as server:
                if self.user:
                    server.login(self.user, self.password)
                server.send_message(message)
        except smtplib.SMTPNotSupportedError:
            raise RunError(f"mail server {self.host} offers no STARTTLS, or no login") from None
        except smtplib.SMTPResponseException as error:
            # Its text may repeat the login.
            raise RunError(f"mail server {self.host} answers {error.smtp_code}") from None
        except (smtplib.SMTPException, OSError) as error:
            raise RunError(f"mail server {self.host} took no mail: {type(error).__name__}") from None


class _Mailer(smtplib.SMTP):
    """Connects to exactly the address that was checked, and sends nothing before TLS."""

    def __init__(self, endpoint: Reachable, seconds: float, sockets: list[socket.socket], *, starttls: bool) -> None:
        self._endpoint, self._sockets, self._starttls = endpoint, sockets, starttls
        self._tls = ssl.create_default_context()
        super().__init__(endpoint.host, endpoint.port, timeout=seconds)
        if starttls:
            self.starttls(context=self._tls)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        del host, port
        plain = connected(self._endpoint, timeout, self._sockets)
        return plain if self._starttls else self._tls.wrap_socket(plain, server_hostname=self._endpoint.host)

"""Alerts as their receivers get them: real servers, no stand-ins for a channel."""

from __future__ import annotations

import asyncio
import email
import ssl
import threading
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult

from ematix_flow.connect.config.redact import redact
from ematix_flow.connect.config.secrets import remember
from ematix_flow.errors import DeclareError, RunError
from ematix_flow.observe.alerts.alert import KINDS, AlertEvent
from ematix_flow.observe.alerts.channels import PagerDutyAlerter, SlackAlerter, StdoutAlerter
from ematix_flow.observe.alerts.mail import EmailAlerter
from ematix_flow.observe.alerts.registry import AlertDesk, active_alerters, clear_alerters, register_alerter
from ematix_flow.observe.alerts.urls import from_url
from ematix_flow.observe.http.client import HttpClient
from ematix_flow.observe.http.host_guard import RefusedHostError, allowed_hosts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import Message
    from pathlib import Path

    from tests.observe.endpoints import Endpoint

LOCAL_CLIENT = HttpClient(allowed_hosts("127.0.0.1, localhost"))
AT = datetime(2026, 3, 2, 9, 15, tzinfo=UTC)
FAILED = AlertEvent("failed", "orders", AT, "no <table> & no hope", "RunError", 2, 5)


def test_a_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    from_url("stdout://").notify(FAILED)
    captured = capsys.readouterr()
    line = "[ALERT] 2026-03-02T09:15:00Z failed orders failed (attempt 2 of 5): RunError: no <table> & no hope\n"
    assert (captured.out, captured.err) == ("", line)


@pytest.mark.parametrize("scheme", ["slack", "https"])
def test_a_web_hook_over_tls_gets_the_text(secure_endpoint: Endpoint, scheme: str) -> None:
    host = "127.0.0.1"  # slack://host/path needs a dot, or else it is a token of Apprise
    from_url(f"{scheme}://{host}:{secure_endpoint.port}/services/T1/B2", LOCAL_CLIENT).notify(FAILED)
    (got,) = secure_endpoint.got
    assert (got.path, got.headers["content-type"]) == ("/services/T1/B2", "application/json")
    text = "orders failed (attempt 2 of 5)\nRunError: no &lt;table&gt; &amp; no hope\n2026-03-02T09:15:00Z"
    assert got.json == {"text": text}


def test_a_hook_in_plain_text_must_be_listed(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"http://127.0.0.1:{endpoint.port}/hook"
    with pytest.raises(DeclareError, match="https"):
        from_url(url)
    monkeypatch.setenv("EMATIX_FLOW_ALLOW_HOSTS", "127.0.0.1")
    from_url(url).notify(FAILED)
    assert len(endpoint.got) == 1


def test_pagerduty_triggers_and_resolves_by_one_key(endpoint: Endpoint) -> None:
    alerter = PagerDutyAlerter("canary-key", url=f"http://127.0.0.1:{endpoint.port}/v2/enqueue", client=LOCAL_CLIENT)
    alerter.notify(FAILED)
    alerter.notify(replace(FAILED, kind="gave_up", gave_up=True))
    alerter.notify(AlertEvent("recovered", "orders", AT))
    alerter.notify(AlertEvent("sla_breached", "orders", AT, "4 h old", incident="freshness"))
    first, second, third, fourth = (got.json for got in endpoint.got)
    assert (first["event_action"], first["dedup_key"], first["routing_key"]) == (
        "trigger",
        "ematix-flow:orders",
        "canary-key",
    )
    assert first["payload"]["severity"] == "error"
    assert first["payload"]["summary"] == "orders failed (attempt 2 of 5): RunError: no <table> & no hope"
    assert first["payload"]["timestamp"] == "2026-03-02T09:15:00+00:00"
    assert second["payload"]["severity"] == "critical"
    assert (third["event_action"], third["dedup_key"], "payload" in third) == ("resolve", "ematix-flow:orders", False)
    assert fourth["dedup_key"] == "ematix-flow:orders:freshness"


def test_addresses_of_pagerduty() -> None:
    alerter = from_url("pagerduty://KEY12345?severity=warning&service=shop")
    assert alerter == PagerDutyAlerter("KEY12345", "warning", "shop")
    assert "KEY12345" not in repr(alerter)
    assert "KEY12345" not in redact("it said KEY12345")
    with pytest.raises(DeclareError, match="did you mean 'warning'"):
        from_url("pagerduty://KEY12345?severity=warn")


class Inbox:
    """A mail server with STARTTLS and a login, in front of a list."""

    def __init__(self, certificates: Path, *, from_the_start: bool = False) -> None:
        self.mails: list[Message] = []
        self.logins: list[tuple[str, str]] = []
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificates / "server.both")
        more: dict[str, Any] = {"ssl_context": tls} if from_the_start else {}
        inbox = self

        class Server(Controller):
            def _trigger_server(self) -> None:
                self.port = self.server.sockets[0].getsockname()[1]
                super()._trigger_server()

            def factory(self) -> SMTP:
                starttls = {} if from_the_start else {"tls_context": tls, "require_starttls": True}
                return SMTP(self.handler, authenticator=inbox.login, auth_require_tls=not from_the_start, **starttls)

        self.server = Server(self, hostname="127.0.0.1", port=0, **more)
        self.server.start()

    def login(self, *credentials: Any) -> AuthResult:
        data = credentials[-1]
        self.logins.append((data.login.decode(), data.password.decode()))
        return AuthResult(success=data.password == b"canary/pw", handled=False)

    async def handle_DATA(self, _: Any, __: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
        await asyncio.sleep(0)
        self.mails.append(email.message_from_bytes(envelope.content))
        return "250 taken"

    @property
    def port(self) -> int:
        return int(self.server.port)


@pytest.fixture
def inbox(trusted: Path) -> Iterator[Inbox]:
    """Return a mail server with STARTTLS."""
    created = Inbox(trusted)
    yield created
    created.server.stop()


def test_mail_by_starttls_with_a_login(inbox: Inbox) -> None:
    from_url(
        f"email://me:canary%2Fpw@127.0.0.1:{inbox.port}?to=a@example.com,b@example.com&from=flow@example.com",
        LOCAL_CLIENT,
    ).notify(replace(FAILED, pipeline="or\r\nders"))
    (mail,) = inbox.mails
    assert inbox.logins == [("me", "canary/pw")]
    assert (mail["To"], mail["From"]) == ("a@example.com, b@example.com", "flow@example.com")
    assert mail["Subject"] == "[ematix-flow] or ders failed (attempt 2 of 5)"
    assert "RunError: no <table> & no hope" in str(mail.get_payload())


def test_a_refused_login_is_told_without_it(inbox: Inbox) -> None:
    with pytest.raises(RunError, match=r"mail server 127.0.0.1 answers 535") as raised:
        from_url(f"email://me:canary-wrong@127.0.0.1:{inbox.port}?to=a@example.com", LOCAL_CLIENT).notify(FAILED)
    assert "canary-wrong" not in str(raised.value)
    with pytest.raises(RefusedHostError):
        EmailAlerter("127.0.0.1", ("a@example.com",), port=inbox.port, client=HttpClient(allowed_hosts(""))).notify(
            FAILED
        )
    assert inbox.mails == []


def test_mail_with_tls_from_the_start(trusted: Path) -> None:
    inbox = Inbox(trusted, from_the_start=True)
    try:
        from_url(f"email://127.0.0.1:{inbox.port}?to=a@example.com&starttls=0", LOCAL_CLIENT).notify(FAILED)
        assert [mail["From"] for mail in inbox.mails] == ["ematix-flow@127.0.0.1"]
    finally:
        inbox.server.stop()


@pytest.mark.slow
def test_every_other_scheme_goes_through_apprise(endpoint: Endpoint) -> None:
    alerter = from_url(f"json://127.0.0.1:{endpoint.port}/hook", LOCAL_CLIENT)
    alerter.notify(FAILED)
    (got,) = endpoint.got
    assert (got.path, got.json["title"], got.json["type"]) == ("/hook", "orders failed (attempt 2 of 5)", "warning")
    assert "no <table> & no hope" in got.json["message"]
    endpoint.answer = 302
    with pytest.raises(RunError, match="not taken"):
        alerter.notify(FAILED)
    assert [one.path for one in endpoint.got] == ["/hook", "/hook"]
    with pytest.raises(RefusedHostError):
        from_url(f"json://127.0.0.1:{endpoint.port}/hook", HttpClient(allowed_hosts(""))).notify(FAILED)


def test_a_mail_server_behind_an_address_of_apprise_is_judged_too() -> None:
    url = "mailtos://me:pw@example.com?smtp=mail.internal&to=a@example.com"
    client = HttpClient(allowed_hosts(""), lambda host, _: ["10.0.0.1"] if host == "mail.internal" else ["8.8.8.8"])
    with pytest.raises(RefusedHostError, match=r"mail\.internal"):
        from_url(url, client).notify(FAILED)


@pytest.mark.parametrize("url", ["nosuch://host/canary-token-1", "slack://", "orders", "email://host", "https://[x"])
def test_an_address_that_nobody_understands_is_refused_without_its_tokens(url: str) -> None:
    with pytest.raises(DeclareError) as raised:
        from_url(url)
    assert "canary-token-1" not in str(raised.value)


def test_secrets_are_filled_in_and_never_shown(secure_endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", f"https://127.0.0.1:{secure_endpoint.port}/services/canary-of-hook-7")
    remember("canary-of-database")
    alerter = from_url("${HOOK}", LOCAL_CLIENT)
    alerter.notify(replace(FAILED, error_message="no login with canary-of-database at /services/canary-of-hook-7"))
    assert "canary" not in str(secure_endpoint.got[0].body)
    assert "canary" not in repr(alerter)
    assert redact("services of a hook") == "services of a hook"


def test_long_errors_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    StdoutAlerter().notify(replace(FAILED, error_message="x" * 100_000))
    assert len(capsys.readouterr().err) < 2000


@pytest.mark.slow
def test_one_slow_and_one_broken_alerter_keep_nobody_waiting(
    endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    heard: list[str] = []
    go_on = threading.Event()

    class Slow:
        def notify(self, _: AlertEvent) -> None:
            go_on.wait(30)

    class Broken:
        def notify(self, _: AlertEvent) -> None:
            raise KeyError("canary-of-alert")

    class Good:
        def notify(self, event: AlertEvent) -> None:
            heard.append(event.kind)

    remember("canary-of-alert")
    endpoint.answer = 500
    desk = AlertDesk([Slow(), Broken(), SlackAlerter(f"http://127.0.0.1:{endpoint.port}/", LOCAL_CLIENT), Good()])
    for kind in KINDS:
        desk.send(replace(FAILED, kind=kind))
    desk.close(1.0)
    go_on.set()
    assert heard == list(KINDS)
    assert len(endpoint.got) == len(KINDS)  # an answer of 500 is no reason to send an alert twice
    lines = capsys.readouterr().err.splitlines()
    assert sorted(line.partition(":")[0] for line in lines) == [
        "alerts by Broken",
        "alerts by SlackAlerter",
        "alerts by Slow",
    ]
    assert "canary" not in str(lines)


def test_alerters_of_the_process() -> None:
    alerter = StdoutAlerter()
    register_alerter(alerter)
    assert active_alerters() == [alerter]
    clear_alerters()
    assert active_alerters() == []

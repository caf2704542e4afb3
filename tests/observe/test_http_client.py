"""Nothing is sent to hosts that the operator did not mean, whatever a URL is made to look like."""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from ematix_flow.errors import FlowError, RunError, TransientError
from ematix_flow.observe.http.client import HttpClient, post
from ematix_flow.observe.http.host_guard import HostUnreachableError, RefusedHostError, allowed_hosts, reach

if TYPE_CHECKING:
    from pathlib import Path

    from tests.observe.endpoints import Endpoint

PRIVATE = [
    "127.0.0.1", "127.9.9.9", "0.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254",
    "100.100.100.200", "168.63.129.16", "192.0.0.192", "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1",
    "fd00:ec2::254", "ff02::1", "fe80::1%eth0",
]  # fmt: skip
DISGUISED = [
    "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::ffff:7f00:1", "64:ff9b::7f00:1", "2002:7f00:1::", "::127.0.0.1",
]  # fmt: skip
SPELLINGS = [
    "2130706433", "0x7f000001", "0x7f.1", "127.1", "0177.0.0.1", "127.0.0.01", "0x7f.0x0.0x0.0x1", "", " ",
    "127.0.0.1\t", "1.2.3.4.5", "017700000001",
]  # fmt: skip
NO_HOSTS = allowed_hosts("")


def names(*addresses: str) -> HttpClient:
    return HttpClient(NO_HOSTS, lambda *_: list(addresses))


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_refused_as_written_and_as_found(address: str) -> None:
    with pytest.raises(RefusedHostError):
        reach(address, 443, NO_HOSTS, lambda host, _: [host])
    with pytest.raises(RefusedHostError, match="private"):
        reach("rebound.example.com", 443, NO_HOSTS, lambda *_: [address])


@pytest.mark.parametrize("address", DISGUISED)
def test_an_address_of_ipv4_in_one_of_ipv6_is_refused(address: str) -> None:
    with pytest.raises(RefusedHostError, match="hides"):
        reach(address, 443, NO_HOSTS)
    with pytest.raises(RefusedHostError):
        reach("mapped.example.com", 443, NO_HOSTS, lambda *_: [address.replace("8.8.8.8", "127.0.0.1")])


@pytest.mark.parametrize("host", SPELLINGS)
def test_other_spellings_of_addresses_are_refused_before_anybody_is_asked(host: str) -> None:
    requested: list[str] = []
    with pytest.raises(RefusedHostError, match="no name of a host"):
        reach(host, 443, NO_HOSTS, lambda name, _: requested.append(name) or ["8.8.8.8"])
    assert requested == []


def test_one_private_address_among_public_ones_is_enough_to_refuse() -> None:
    with pytest.raises(RefusedHostError):
        reach("mixed.example.com", 443, NO_HOSTS, lambda *_: ["8.8.8.8", "10.0.0.1"])
    assert reach("two.example.com", 443, NO_HOSTS, lambda *_: ["8.8.8.8", "1.1.1.1"]).addresses == (
        "8.8.8.8",
        "1.1.1.1",
    )


@pytest.mark.parametrize(
    ("listed", "host", "port", "fine"),
    [
        ("hooks.internal", "hooks.internal", 443, True),
        ("hooks.internal", "HOOKS.internal.", 8443, True),
        ("hooks.internal:8443", "hooks.internal", 8443, True),
        ("hooks.internal:8443", "hooks.internal", 443, False),
        ("other.internal, 10.0.0.0/8", "hooks.internal", 443, True),
        ("10.0.0.5", "10.0.0.5", 443, True),
        ("10.0.0.6", "hooks.internal", 443, False),
        ("internal", "hooks.internal", 443, False),
        ("[::1]:443", "::1", 443, True),
    ],
)
def test_the_operator_lists_hosts_ports_and_networks(listed: str, host: str, port: int, fine: bool) -> None:
    def request() -> bool:
        return reach(host, port, allowed_hosts(listed), lambda *_: ["10.0.0.5"]).listed

    if fine:
        assert request()
    else:
        with pytest.raises(RefusedHostError, match="EMATIX_FLOW_ALLOW_HOSTS="):
            request()


def test_a_name_that_flips_is_asked_for_once_and_its_first_address_is_used(secure_endpoint: Endpoint) -> None:
    answers = iter([["127.0.0.1"], ["169.254.169.254"]])
    client = HttpClient(allowed_hosts("localhost"), lambda *_: next(answers))
    post(f"https://localhost:{secure_endpoint.port}/hook", b"{}", {}, client)
    assert next(answers) == ["169.254.169.254"]
    assert secure_endpoint.names == ["localhost"]
    assert secure_endpoint.got[0].headers["host"] == f"localhost:{secure_endpoint.port}"


def test_plain_text_goes_to_listed_hosts_only(endpoint: Endpoint) -> None:
    url = f"http://127.0.0.1:{endpoint.port}/hook?a=1"
    with pytest.raises(RefusedHostError, match="private"):
        post(url, b"x", {}, HttpClient(NO_HOSTS))
    with pytest.raises(RefusedHostError, match="plain text"):
        post("http://example.com/", b"x", {}, names("8.8.8.8"))
    assert endpoint.got == []
    post(url, b"x", {"X-Mine": "1"}, HttpClient(allowed_hosts("127.0.0.0/8")))
    assert (endpoint.got[0].path, endpoint.got[0].body, endpoint.got[0].headers["x-mine"]) == ("/hook?a=1", b"x", "1")


@pytest.mark.parametrize(
    "url", ["ftp://host/x", "file:///etc/passwd", "https://", "https://host:99999/", "https://[::1"]
)
def test_what_is_no_address_of_a_web_service_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(RefusedHostError, match="no address of a web service") as refused:
        post(url, b"", {}, HttpClient(NO_HOSTS))
    assert url not in refused.value.what


def test_no_redirect_is_followed_and_no_body_is_told(endpoint: Endpoint) -> None:
    client, url = HttpClient(allowed_hosts("127.0.0.1")), f"http://127.0.0.1:{endpoint.port}/"
    for status, kind in (
        (302, RunError),
        (308, RunError),
        (404, RunError),
        (500, TransientError),
        (503, TransientError),
    ):
        endpoint.answer = status
        with pytest.raises(kind, match=f"answers {status}") as raised:
            post(url, b"", {}, client)
        assert "canary" not in str(raised.value)
    assert [got.path for got in endpoint.got] == ["/"] * 5


def test_a_certificate_of_nobody_is_refused(
    certificates: Path, secure_endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "client.pem"))
    with pytest.raises(RunError, match="no certificate that is trusted"):
        post(f"https://127.0.0.1:{secure_endpoint.port}/", b"", {}, HttpClient(allowed_hosts("127.0.0.1")))
    assert secure_endpoint.got == []


@pytest.mark.slow
def test_slow_and_dripping_answers_end_with_the_deadline(endpoint: Endpoint) -> None:
    endpoint.answer = "slow"
    client = HttpClient(allowed_hosts("127.0.0.1"), seconds=0.3)
    with pytest.raises(TransientError, match=r"within 0.3 s"):
        post(f"http://127.0.0.1:{endpoint.port}/", b"", {}, client)
    with socket.create_server(("127.0.0.1", 0)) as dripping:
        over = threading.Event()
        drips = threading.Thread(target=_drip, args=(dripping, over))
        drips.start()
        with pytest.raises(TransientError, match=r"within 0.3 s"):
            post(f"http://127.0.0.1:{dripping.getsockname()[1]}/", b"", {}, client)
        over.set()
        drips.join()


def _drip(server: socket.socket, over: threading.Event) -> None:
    """Answer one byte at a time, each in time for a timeout of its own."""
    with server.accept()[0] as client:
        try:
            while not over.is_set():
                client.send(b"H")
                time.sleep(0.05)
        except OSError:
            return


def test_a_port_where_nobody_listens_is_not_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(HostUnreachableError, match="cannot be reached"):
        post(f"http://127.0.0.1:{port}/", b"", {}, HttpClient(allowed_hosts("127.0.0.1")))


def test_what_is_no_http_is_not_repeated() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def talk() -> None:
            with server.accept()[0] as client:
                client.recv(1000)
                client.send(b"canary-of-a-database\r\n\r\n")

        thread = threading.Thread(target=talk)
        thread.start()
        with pytest.raises(FlowError) as raised:
            post(f"http://127.0.0.1:{server.getsockname()[1]}/", b"x", {}, HttpClient(allowed_hosts("127.0.0.1")))
        thread.join()
    assert "canary" not in str(raised.value)

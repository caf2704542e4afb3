"""What scanners send: names that leave a folder, broken heads, half requests. Each is refused, and nobody waits for it."""

from __future__ import annotations

import re
import socket
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from ematix_flow.commit.runlog.open import open_run_log
from ematix_flow.records import RunRecord
from ematix_flow.serve.web.run_logs import log_of
from tests.serve.web.test_server import call, served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from starlette.testclient import TestClient

NAMES = {
    "traversal": "../../../../../../etc/passwd",
    "windows": "..\\..\\..\\etc\\passwd",
    "zero": "a\0.log",
    "headers": "a\r\nSet-Cookie: stolen=1\r\n\r\n<script>",
    "sql": "x' OR '1'='1'; DROP TABLE run_records; --",
    "format": "%s%n{{7*7}}${7*7}",
    "long": "x" * 5000,
}
HEADS = {
    "two lengths": "POST /api/jobs/never/run-now HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 5\r\n\r\n{}",
    "negative length": "POST /api/jobs/never/run-now HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    "odd length": "POST /api/jobs/never/run-now HTTP/1.1\r\nHost: localhost\r\nContent-Length: \xb2\r\n\r\n",
    "length and chunks": "POST /api/jobs/never/run-now HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n"
    "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "no chunk": "POST /api/jobs/never/run-now HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "folded": "GET /api/runs HTTP/1.1\r\nHost: localhost\r\nX-User: a\n root\r\nHost: evil.example\r\n\r\n",
    "no host": "GET /api/runs HTTP/1.1\r\n\r\n",
    "two hosts": "GET /api/runs HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
    "zero in path": "GET /api/\0runs HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "long head": "GET /api/runs HTTP/1.1\r\nHost: localhost\r\nX-Long: " + "x" * 200_000 + "\r\n\r\n",
    "long address": "GET /" + "x" * 200_000 + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no method": "\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03\r\n\r\n",
}


@pytest.mark.slow
@pytest.mark.usefixtures("history")
def test_names_that_no_route_expects_are_refused_by_every_route(page: Callable[..., TestClient]) -> None:
    api, tried = page(datasources={"lite": "lite"}), 0
    schema = api.get("/api/openapi.json").json()["paths"]
    pages = dict.fromkeys(("/pipelines/{x}", "/runs/{x}", "/streams/{x}", "/plans/{x}", "/dashboards/{x}"), ("get",))
    for path, methods in {**schema, **pages, "/static/{x}": ("get",)}.items():
        if "{" not in path:
            continue
        for name in NAMES.values():
            address = re.sub(r"{\w+}", lambda _, name=name: quote(name, safe=""), path)
            for method in methods:
                body = {} if method in ("post", "put") else None
                refused = api.request(method, address, json=body)
                assert 400 <= refused.status_code < 500, (method, address, refused.text[:300])
                assert "root:" not in refused.text
                assert "set-cookie" not in refused.headers
                assert "<script>" not in refused.text or not refused.headers["content-type"].startswith("text/html")
                tried += 1
    assert tried > 200
    assert len(api.get("/api/runs").json()["runs"]) == 3


def test_a_run_with_the_name_of_a_file_shows_no_file(api: TestClient, project: Path) -> None:
    (project / "secret.log").write_text("canary")
    at = "2026-01-01T00:00:00+00:00"
    names = (f"{project}/secret", "../secret", "../../../../../../../../etc/passwd", "*")
    for number, name in enumerate(names):
        run = RunRecord(name, f"p{number}", "succeeded", at, at, request_id=name)
        open_run_log().record(run)
        assert log_of(run) is None
        assert api.get(f"/api/runs/{quote(name, safe='')}/log").json().get("text", "") == ""


def test_headers_that_nobody_was_told_to_trust_say_nothing(page: Callable[..., TestClient]) -> None:
    forged = {
        "X-Forwarded-User": "root",
        "X-User": "root",
        "X-Forwarded-Host": "evil.example",
        "X-Forwarded-For": "::1",
    }
    api = page(bearer_token="s3cr3t-t0ken")
    assert api.get("/api/runs", headers=forged).status_code == 401
    away = api.get("/runs", headers=forged)
    assert (away.status_code, away.headers["location"]) == (303, "/login?next=/runs")
    for path in ("/%0d%0aSet-Cookie:%20stolen=1", "//evil.example/%2f..", "/\\evil.example"):
        away = api.get(path)
        assert away.headers.get("location", "/login").startswith("/login"), path
        assert "set-cookie" not in away.headers


@contextmanager
def impatient() -> Iterator[tuple[str, int]]:
    """Serve a page that waits for a second where others wait for half a minute; return its address and port."""
    program = (
        "import sys\nfrom ematix_flow.serve.web import events, guard, server\nfrom ematix_flow.serve.cli.main import main\n"
        "guard.BODY_SECONDS = server.HEADER_SECONDS = 1.0\nevents.HEARTBEAT_SECONDS = 3.0\nsys.exit(main(['web', '-m', 'flows', '--port', '0']))"
    )
    with served(command=[sys.executable, "-c", program]) as (url, _):
        yield url, int(url.rstrip("/").rpartition(":")[2])


def answer_of(connection: socket.socket) -> bytes:
    """Return what a server sends until it closes the connection; nothing where it only closes it."""
    answer = b""
    try:
        while part := connection.recv(65536):
            answer += part
    except ConnectionResetError:
        pass
    return answer


@pytest.mark.slow
@pytest.mark.usefixtures("project")
def test_broken_heads_and_half_requests_are_refused_and_hold_nobody_up() -> None:
    with impatient() as (url, port):
        for name, head in HEADS.items():
            with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                try:
                    connection.sendall(head.encode("latin-1"))
                except (BrokenPipeError, ConnectionResetError):
                    continue  # closed before all of it was sent
                assert re.match(rb"(HTTP/1.1 4\d\d |$)", answer_of(connection)), name
        halves = [b"GET /api/ru", b"GET /api/runs HTTP/1.1\r\nHost: local", b""]
        halves += [b"POST /api/jobs/never/run-now HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"]
        waiting = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(40)]
        for number, one in enumerate(waiting):
            one.sendall(halves[number % len(halves)])
        assert call(f"{url}api/health") == (200, {"status": "ok"})
        for number, one in enumerate(waiting):  # each is closed in the end
            expected = rb"HTTP/1.1 408 " if number % len(halves) == 3 else b"$"
            assert re.match(expected, answer_of(one)), number
            one.close()
        assert call(f"{url}api/runs")[1]["runs"] == []
        stream = socket.create_connection(("127.0.0.1", port), timeout=60)
        stream.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        heard = b""
        while heard.count(b"alive") < 1:  # an open page is quiet for longer than any of these
            heard += stream.recv(65536)
        stream.close()

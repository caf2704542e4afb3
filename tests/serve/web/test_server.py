"""The command and its server: events as they happen, refusals, a missing extra, and the read-only page of `flow status`."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest

from ematix_flow.errors import MissingExtraError
from ematix_flow.serve.cli.main import main
from ematix_flow.web import create_app

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.slow


@contextmanager
def served(*arguments: str, command: list[str] | None = None) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run a command that serves a page, and return its address."""
    command = command or [sys.executable, "-m", "ematix_flow", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield address_in(process.stderr), process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def address_in(lines: IO[str]) -> str:
    for line in lines:
        if match := re.search(r"http://[^ ]+", line):
            return match[0]
    raise AssertionError("no address was printed")


def call(url: str, method: str = "GET", **headers: str) -> tuple[int, Any]:
    request = urllib.request.Request(url, method=method, headers=headers)  # noqa: S310 - of this machine
    try:
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310 - of this machine
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, None


def test_a_page_that_is_open_hears_of_a_run(run: Callable[..., int]) -> None:
    assert run("run", "never") == 0
    with served("web", "-m", "flows", "--port", "0") as (url, _):
        stream = urllib.request.urlopen(f"{url}api/events", timeout=60)  # noqa: S310 - of this machine
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = iter(stream)
        assert next(line for line in lines if line.startswith(b"event")).strip() == b"event: hello"
        time.sleep(3)  # until the first look at the run log is over
        assert run("run", "copy") == 0
        assert next(line for line in lines if line.startswith(b"event")).strip() == b"event: changed"
        changed = json.loads(next(lines).removeprefix(b"data: "))
        assert len(changed["runs"]) == 1
        stream.close()


def test_a_page_ends_on_a_signal_although_events_are_open(project: Path) -> None:
    with served("web", "-m", "flows", "--port", "0") as (url, process):
        stream = urllib.request.urlopen(f"{url}api/events", timeout=60)  # noqa: S310 - of this machine
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 128 + signal.SIGTERM
        stream.close()


def test_status_serves_the_same_page_read_only(run: Callable[..., int]) -> None:
    assert run("run", "never") == 0
    with served("status", "-m", "flows", "--port", "0") as (url, _):
        assert call(f"{url}api/runs")[1]["total"] == 1
        assert call(f"{url}api/me")[1]["read_only"]
        assert call(f"{url}api/jobs/never/run-now", "POST")[0] == 403


def test_a_slow_client_keeps_nobody_else_out(project: Path) -> None:
    with served("web", "-m", "flows", "--port", "0") as (url, _):
        port = int(url.rstrip("/").rpartition(":")[2])
        slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
        for one in slow:
            one.sendall(b"POST /api/jobs/never/run-now HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        assert call(f"{url}api/health") == (200, {"status": "ok"})
        for one in slow:
            one.close()


def test_a_page_for_other_machines_needs_a_login(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["web", "-m", "flows", "--bind", "0.0.0.0"]) == 2  # noqa: S104 - which is refused
    assert "EMATIX_FLOW_WEB_TOKEN" in capsys.readouterr().err
    assert main(["web", "-m", "flows", "--auth-admin", "root"]) == 2
    assert main(["web", "-m", "flows", "--auth-header", "X-User", "--auth-group-role", "a=king"]) == 1
    assert "no role 'king'" in capsys.readouterr().err


def test_a_port_that_is_taken_is_named(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert main(["web", "-m", "flows", "--port", str(port)]) == 1
    assert f"127.0.0.1:{port}" in capsys.readouterr().err


def test_without_the_extra_its_name_is_said(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "fastapi" or "serve.web.app" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    with pytest.raises(MissingExtraError, match="fastapi"):
        create_app()
    assert main(["web", "-m", "flows", "--port", "0"]) == 1
    assert "ematix-flow-spark[web]" in capsys.readouterr().err


def test_assets_and_templates_are_in_the_package() -> None:
    folder = Path(sys.modules["ematix_flow.serve.web"].__file__ or "").parent
    assert {file.name for file in (folder / "static").iterdir()} == {"flow.css", "flow.js", "lab.js", "icon.svg"}
    assert len(list((folder / "templates").glob("*.html"))) > 15

"""An HTTP proxy that answers some requests wrongly, late or not at all; it passes everything else on as it is."""

from __future__ import annotations

import threading
from collections import deque
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

BUSY = '<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>'
BROKEN = '<?xml version="1.0"?><Error><Code>InternalError</Code><Message>We encountered an error.</Message></Error>'
RACED = '<?xml version="1.0"?><Error><Code>ConditionalRequestConflict</Code><Message>Raced.</Message></Error>'
ANSWERS = {"busy": (503, BUSY), "broken": (500, BROKEN), "raced": (409, RACED)}


class FaultyProxy(ThreadingHTTPServer):
    """Listens on a free port; faults are taken in order by the next requests of their method, and their path if it is said.

    `lost` is a request that never arrives, `unanswered` one that arrives and whose answer is lost, `silent` one that
    arrives and is never answered, `ignored` one whose condition is forgotten, `held` one that waits until it is let go.
    """

    daemon_threads = True

    def __init__(self, port: int, handler: type[Handler] | None = None) -> None:
        super().__init__(("127.0.0.1", 0), handler or Handler)
        self.upstream = port
        self.faults: deque[tuple[str, str]] = deque()
        self.methods: list[str] = []
        self.received: dict[str, int] = {}
        """How many bytes of each resumable upload the service was sent."""
        self.over = threading.Event()
        self.held = threading.Event()
        self.let_go = threading.Event()
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def endpoint(self) -> str:
        """Return the address of the proxy."""
        return f"http://127.0.0.1:{self.server_port}"

    def close(self) -> None:
        """End the proxy."""
        self.over.set()
        self.shutdown()
        self.server_close()

    def fault_for(self, method: str, path: str) -> str:
        """Return what happens to the next request of a method."""
        self.methods.append(method)
        action, _, part = self.faults[0][0].partition(" ") if self.faults else ("", "", "")
        return self.faults.popleft()[1] if action == method and part in path else ""


class Handler(BaseHTTPRequestHandler):
    """Passes requests on, or does to them what the proxy says."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def answered(self) -> bool:
        """Return whether a request has been answered here already; no request is."""
        return False

    def _pass(self) -> None:
        proxy = cast("FaultyProxy", self.server)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.answered():
            return
        is_status_query = self.headers.get("Content-Range", "").startswith("bytes */")
        fault = "" if is_status_query else proxy.fault_for(self.command, self.path)
        if fault == "held":
            proxy.held.set()
            proxy.let_go.wait(600)
        if fault in ANSWERS:
            status, text = ANSWERS[fault]
            self._answer(status, {"Content-Type": "application/xml"}, text.encode())
            return
        if fault == "lost":
            self.close_connection = True
            return
        if is_status_query:
            self._answer_received(proxy.received.get(self.path, 0))
            return
        status, headers, answer = self._forwarded(body, forgetful=fault == "ignored")
        if status in (200, 308) and "Content-Range" in self.headers:
            proxy.received[self.path] = proxy.received.get(self.path, 0) + len(body)
        if fault == "silent":
            proxy.over.wait(30)
        if fault in ("unanswered", "silent"):
            self.close_connection = True
            return
        self._answer(status, headers, answer)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass  # noqa: N815 - names that the base class looks for

    def _answer_received(self, received: int) -> None:
        """Say what of a resumable upload has arrived, which the server of the tests cannot: it would end the upload."""
        total = self.headers["Content-Range"].rpartition("/")[2]
        headers = {"Range": f"bytes=0-{received - 1}"} if received else {}
        self._answer(200 if total == str(received) else 308, headers, b"")

    def _forwarded(self, body: bytes, *, forgetful: bool) -> tuple[int, dict[str, str], bytes]:
        dropped = {"expect", "connection", *(["if-none-match"] if forgetful else [])}
        headers = {name: value for name, value in self.headers.items() if name.lower() not in dropped}
        path = self.path.replace("ifGenerationMatch=0", "") if forgetful else self.path
        upstream = HTTPConnection("127.0.0.1", cast("FaultyProxy", self.server).upstream, timeout=30)
        try:
            upstream.request(self.command, path, body or None, headers)
            answer = upstream.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            upstream.close()

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in {"connection", "transfer-encoding", "content-length"}:
                # What an answer tells the client to ask next shall pass here too.
                proxy = cast("FaultyProxy", self.server)
                self.send_header(name, value.replace(f":{proxy.upstream}/", f":{proxy.server_port}/"))
        length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(body))
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

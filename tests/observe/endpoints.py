"""Endpoints that tests send to: a web service that answers as it is told, over TLS or not, and keeps what it got."""

from __future__ import annotations

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pathlib import Path


class Got:
    """One request."""

    def __init__(self, path: str, headers: dict[str, str], body: bytes) -> None:
        self.path, self.headers, self.body = path, headers, body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Endpoint(ThreadingHTTPServer):
    """Listens on a free port; `answer` is a status, or `slow` for no answer before the test ends."""

    daemon_threads = True

    def __init__(self, certificates: Path | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer: int | str = 200
        self.got: list[Got] = []
        self.names: list[str] = []
        """Names that clients asked for in TLS."""
        self.over = threading.Event()
        if certificates is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificates / "server.both")
            context.sni_callback = lambda _, name, __: self.names.append(name)
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self.server_port)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that went away."""

    def close(self) -> None:
        self.over.set()
        self.shutdown()
        self.server_close()
        self._thread.join()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = cast("Endpoint", self.server)
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        server.got.append(Got(self.path, {name.lower(): value for name, value in self.headers.items()}, body))
        if server.answer == "slow":
            server.over.wait(30)
            return
        status = int(server.answer)
        self.send_response(status)
        if status in range(300, 400):
            self.send_header("Location", f"http://127.0.0.1:{server.port}/elsewhere")
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"said": "canary-of-the-endpoint"}')

    def log_message(self, *_: Any) -> None:
        """Keep quiet."""

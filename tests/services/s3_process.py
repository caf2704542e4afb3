"""The process of the S3 server: moto with keys that must be right and conditional writes that are decided one by one.

It is started with a port and an access key.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, run_simple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_REFUSAL = '<?xml version="1.0"?><Error><Code>{code}</Code><Message>{code}</Message></Error>'


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_request(self, *_: object) -> None:
        """Say nothing: a test makes thousands of requests."""


class Gate:
    """Lets requests with the right key pass, and conditional writes one by one."""

    def __init__(self, app: Any, key: str) -> None:
        self._app = app
        self._key = key
        self._writing = threading.Lock()

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request."""
        refusal = self._refusal(environ)
        if refusal:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            body = b"" if environ["REQUEST_METHOD"] == "HEAD" else _REFUSAL.format(code=refusal).encode()
            start("403 Forbidden", [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
            return [body]
        if environ["REQUEST_METHOD"] in ("PUT", "POST") and "HTTP_IF_NONE_MATCH" in environ:
            with self._writing:
                return list(self._app(environ, start))
        return self._app(environ, start)  # type: ignore[no-any-return]

    def _refusal(self, environ: dict[str, Any]) -> str:
        authorization = environ.get("HTTP_AUTHORIZATION", "")
        if f"Credential={self._key}/" not in authorization:
            return "InvalidAccessKeyId"
        return "AccessDenied" if environ["PATH_INFO"].startswith("/forbidden-") else ""


if __name__ == "__main__":
    application = Gate(DomainDispatcherApplication(create_backend_app), sys.argv[2])
    run_simple("127.0.0.1", int(sys.argv[1]), application, threaded=True, request_handler=_Quiet)

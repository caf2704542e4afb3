"""What every request passes before a route sees it: host, size, origin, login; and the headers of every response."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, RedirectResponse

from ematix_flow.serve.web.identity import ANONYMOUS, viewer_of
from ematix_flow.serve.web.names import keep_slashes, path_as_sent

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from ematix_flow.serve.web.identity import Logins, Viewer
    from ematix_flow.serve.web.settings import WebSettings

LARGEST_BODY = 1 << 20
BODY_SECONDS = 30.0
"""How long the next part of a body may take."""
OPEN_PATHS = ("/api/health", "/login", "/logout")
OPEN_FOLDERS = ("/static/",)
_SAFE = ("GET", "HEAD", "OPTIONS")

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Guard:
    """Refuses what no route has to see, and notes who sends the rest."""

    def __init__(self, app: ASGIApp, settings: WebSettings, logins: Logins) -> None:
        self._app, self._settings, self._logins = app, settings, logins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = HTTPConnection(scope)
        viewer = viewer_of(request, self._settings, self._logins)
        refusal = self._refusal(request, str(scope["method"]), viewer)
        scope.setdefault("state", {})["viewer"] = viewer
        answer: ASGIApp = self._app if refusal is None else refusal
        sender = _with_headers(send, private=not request.url.path.startswith(OPEN_FOLDERS))
        keep_slashes(scope)
        await answer(scope, _bounded(receive), sender)

    def _refusal(self, request: HTTPConnection, method: str, viewer: Viewer) -> ASGIApp | None:
        path = request.url.path
        if not self._is_own_host(request.headers.get("host", "")):
            return _refused(400, "the page is not served under this name", "flow web --host NAME adds one.")
        length = request.headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > LARGEST_BODY:
            return _refused(413, "the body is too large")
        if method not in _SAFE and self._is_foreign(request, viewer):
            return _refused(403, "the request comes from another site")
        open_ = path in OPEN_PATHS or path.startswith(OPEN_FOLDERS)
        if open_ or viewer != ANONYMOUS or (path == "/api/me" and self._settings.token is None):
            return None
        if path.startswith("/api/") or self._settings.token is None:
            return _refused(401, "a login is needed", headers={"WWW-Authenticate": "Bearer"})
        return RedirectResponse(f"/login?next={quote(path_as_sent(request.scope) or quote(path))}", status_code=303)

    def _is_own_host(self, host: str) -> bool:
        """Return whether a request was meant for this page: a name of another site may lead to this machine too."""
        name = host if host.endswith("]") else host.rsplit(":", 1)[0] if ":" in host else host
        return "*" in self._settings.hosts or name.lower() in self._settings.hosts

    def _is_foreign(self, request: HTTPConnection, viewer: Viewer) -> bool:
        """Return whether a page of another site sends the request; programs say neither where from nor carry a login."""
        site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
        if site is not None and site not in ("same-origin", "none"):
            return True
        if origin is not None:
            return urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower()
        return site is None and viewer.by_cookie


def _refused(status: int, detail: str, hint: str | None = None, headers: dict[str, str] | None = None) -> JSONResponse:
    content = {"detail": detail} | ({"hint": hint} if hint else {})
    return JSONResponse(content, status_code=status, headers=headers)


def _bounded(receive: Receive) -> Receive:
    """Return the body of a request as long as it is neither too large, whatever its header says, nor too slow."""
    read, whole = 0, False

    async def bounded() -> Message:
        nonlocal read, whole
        if whole:  # what comes next is that the client goes away, and may take for ever
            return await receive()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                message = await receive()
        except TimeoutError:
            raise HTTPException(408, "the rest of the body does not come") from None
        read, whole = read + len(message.get("body", b"")), not message.get("more_body", False)
        if read > LARGEST_BODY:
            raise HTTPException(413, "the body is too large")
        return message

    return bounded


def add_headers(headers: MutableHeaders, *, private: bool) -> None:
    """Add the headers that every response has."""
    for name, value in HEADERS.items():
        headers.setdefault(name, value)
    headers.setdefault("Cache-Control", "no-store" if private else "public, max-age=3600")


def _with_headers(send: Send, *, private: bool) -> Send:
    async def sender(message: Message) -> None:
        if message["type"] == "http.response.start":
            add_headers(MutableHeaders(scope=message), private=private)
        await send(message)

    return sender

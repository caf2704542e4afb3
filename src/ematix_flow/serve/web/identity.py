"""Who sends a request and what they may do: a bearer token, a login by it, or headers of a trusted proxy."""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.serve.web.settings import ADMINISTRATOR, PERMISSIONS, READ, VIEWER

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

    from ematix_flow.serve.web.settings import WebSettings

COOKIE = "flow_session"
SESSION_SECONDS = 12 * 3600.0
_MOST_SESSIONS = 10_000


@dataclass(frozen=True, slots=True)
class Viewer:
    """The person or program behind a request."""

    identity: str | None
    role: str | None
    permissions: tuple[str, ...]
    by_cookie: bool = False
    """True when a browser sent its login by itself, as it also does for another site's forms."""

    def may(self, permission: str) -> bool:
        """Return whether a permission is given."""
        return permission in self.permissions


ANONYMOUS = Viewer(None, None, ())


class Logins:
    """Browsers that have shown the token; they are forgotten when the process ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until: dict[str, float] = {}

    def begin(self) -> str:
        """Return the id of a new login."""
        with self._lock:
            now = time.monotonic()
            self._until = {key: until for key, until in self._until.items() if until > now}
            while len(self._until) >= _MOST_SESSIONS:
                del self._until[next(iter(self._until))]
            session = secrets.token_urlsafe(32)
            self._until[session] = now + SESSION_SECONDS
            return session

    def end(self, session: str) -> None:
        """Forget a login."""
        with self._lock:
            self._until.pop(session, None)

    def is_open(self, session: str) -> bool:
        """Return whether a login is known and not too old."""
        return self._until.get(session, 0.0) > time.monotonic()


def is_token(settings: WebSettings, given: str) -> bool:
    """Return whether a text is the token, in a time that does not depend on how much of it is right."""
    return settings.token is not None and hmac.compare_digest(given.encode(), settings.token.encode())


def viewer_of(request: HTTPConnection, settings: WebSettings, logins: Logins) -> Viewer:
    """Return who sends a request; ANONYMOUS where a login is needed and missing."""
    by_cookie = False
    if settings.token is not None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if not (scheme.lower() == "bearer" and is_token(settings, given.strip())):
            by_cookie = logins.is_open(request.cookies.get(COOKIE, ""))
            if not by_cookie:
                return ANONYMOUS
    if settings.rbac is None:
        name = settings.user if settings.token is None else f"token@{request.client.host if request.client else '-'}"
        return _limited(Viewer(name, ADMINISTRATOR, PERMISSIONS[ADMINISTRATOR], by_cookie), settings)
    identity = request.headers.get(settings.rbac.identity_header, "").strip()
    if not identity:
        return ANONYMOUS
    listed = request.headers.get(settings.rbac.groups_header, "") if settings.rbac.groups_header else ""
    role = settings.rbac.role_of(identity, tuple(group.strip() for group in listed.split(",") if group.strip()))
    return _limited(Viewer(identity, role, PERMISSIONS.get(role or "", ()), by_cookie), settings)


def _limited(viewer: Viewer, settings: WebSettings) -> Viewer:
    """Return the viewer of a page on which nothing can be changed."""
    if not settings.read_only or not viewer.may(READ):
        return viewer
    return Viewer(viewer.identity, VIEWER, PERMISSIONS[VIEWER], viewer.by_cookie)

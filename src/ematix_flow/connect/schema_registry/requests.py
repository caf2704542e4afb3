"""Queries a schema registry over HTTP, again while it is away; what a response means is decided by the caller."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from ematix_flow.connect.base.retry import SCHEMA_REGISTRY, attempts
from ematix_flow.connect.config.redact import redact
from ematix_flow.errors import RunError, TransientError

if TYPE_CHECKING:
    from collections.abc import Mapping

SECONDS = 10.0
"""How long the registry may be silent."""

LARGEST = 16 << 20
"""Bytes of an answer that are read; no schema is that long."""

_JSON = "application/vnd.schemaregistry.v1+json"
_MISSING = (40401, 40402, 40403)
"""A subject, a version or a schema that the registry searched for; another 404 means that this is no registry."""

_BUSY = (408, 425, 429)


@dataclass(frozen=True, slots=True)
class Login:
    """A user of a registry."""

    user: str
    password: str = field(repr=False)

    @property
    def header(self) -> str:
        """Return the value of the header that logs in."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


class _Stay(HTTPRedirectHandler):
    """Follows no redirect: the login would go with it."""

    def redirect_request(self, *_: Any) -> None:
        """Return no other request."""


_opener = build_opener(_Stay)


def request_json(
    url: str, path: str, login: Login | None, body: Mapping[str, Any] | None = None
) -> dict[str, Any] | None:
    """Return the object that a registry answers; None where it knows no such thing."""
    for attempt in attempts(SCHEMA_REGISTRY):
        with attempt:
            document = once(url, path, login, body)
    if document is None or isinstance(document, dict):
        return document
    raise _no_registry(url)


def once(
    url: str, path: str, login: Login | None, body: Mapping[str, Any] | None = None, seconds: float = SECONDS
) -> Any:
    """Return the response of a registry to a single request."""
    headers = {"Accept": f"{_JSON}, application/json", "Content-Type": _JSON}
    if login is not None:
        headers["Authorization"] = login.header
    data = None if body is None else json.dumps(body).encode()
    request = Request(url + path, data, headers)  # noqa: S310 - the scheme was looked at
    try:
        with _opener.open(request, timeout=seconds) as response:
            return json.loads(response.read(LARGEST))
    except HTTPError as error:
        with error:
            _raise_refusal(url, error.code, error.read(LARGEST))
        return None
    except (OSError, HTTPException) as error:
        message = f"schema registry {url} cannot be reached: {getattr(error, 'reason', None) or error!r}"
        raise TransientError(message) from None
    except ValueError:
        raise _no_registry(url) from None


def _raise_refusal(url: str, status: int, body: bytes) -> None:
    """Raise what is wrong, unless something was only searched for and not found."""
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    details = document if isinstance(document, dict) else {}
    if status in _BUSY or status >= 500:  # noqa: PLR2004 - out of order
        message = f"schema registry {url} is out of order: it answers {status}"
        raise TransientError(message)
    if status == 404 and details.get("error_code") in _MISSING:  # noqa: PLR2004
        return
    if status in (401, 403):
        message = f"schema registry {url} refuses the login"
        raise RunError(message, hint="check basic_auth_user and basic_auth_password of its connection.")
    if status in (404, 405) or status < 400:  # noqa: PLR2004
        raise _no_registry(url)
    message = f"schema registry {url} answers {status}: {redact(str(details.get('message', ''))[:500])}"
    raise RunError(message)


def _no_registry(url: str) -> RunError:
    message = f"there is no schema registry at {url}"
    return RunError(message, hint="it must speak Confluent's API; the address of Apicurio ends in /apis/ccompat/v7.")

"""The HTTP client of this process: guarded hosts, no redirects, five seconds in all; response bodies are not read."""

from __future__ import annotations

import base64
import socket
import ssl
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote, urlsplit

from ematix_flow.background import in_background
from ematix_flow.errors import RunError, TransientError
from ematix_flow.observe.http.host_guard import HostUnreachableError, RefusedHostError, reach, system_addresses

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from urllib.parse import SplitResult

    from ematix_flow.observe.http.host_guard import Allowed, Reachable, Resolve

SECONDS = 5.0
"""From the DNS query to the last byte of the response's head."""

PORTS = {"https": 443, "http": 80}
_FINE = range(200, 300)

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class HttpClient:
    """How requests go out; tests put their own resolver here."""

    allowed: Allowed | None = None
    """None: what the environment allows at the time of the call."""
    resolve: Resolve = system_addresses
    seconds: float = SECONDS

    def find(self, host: str, port: int) -> Reachable:
        """Return the addresses of a host, or refuse it."""
        return reach(host, port, self.allowed, self.resolve)


CLIENT = HttpClient()


def within(seconds: float, work: Callable[[list[socket.socket]], Result], what: str) -> Result:
    """Return the result of the work; after the seconds its sockets, which it adds to its argument, are closed."""
    sockets: list[socket.socket] = []
    future = in_background(lambda: work(sockets), "flow-outbound")
    try:
        return future.result(seconds)
    except TimeoutError:
        for one in sockets:
            one.close()
        raise TransientError(f"{what} did not answer within {seconds:g} s") from None


def connected(endpoint: Reachable, seconds: float, sockets: list[socket.socket]) -> socket.socket:
    """Return a connection to one of the addresses that were checked."""
    problem: OSError | None = None
    for address in endpoint.addresses:
        try:
            one = socket.create_connection((address, endpoint.port), timeout=seconds)
        except OSError as error:
            problem = error
        else:
            sockets.append(one)
            return one
    message = f"{endpoint.host}:{endpoint.port} cannot be reached: {getattr(problem, 'strerror', None) or problem}"
    raise HostUnreachableError(message)


def post(url: str, body: bytes, headers: Mapping[str, str], client: HttpClient = CLIENT) -> None:
    """Send a body; any response but success is an error, and no redirect is followed."""
    parts = _split_url(url)
    what = str(parts.hostname)
    status = within(client.seconds, lambda sockets: _status(parts, body, headers, client, sockets), what)
    if status in _FINE:
        return
    message = f"{what} answers {status}"
    if status in range(300, 400):
        raise RunError(message, hint="redirects are not followed; write the address that it leads to.")
    raise TransientError(message) if status >= 500 else RunError(message)  # noqa: PLR2004 - out of order


def _split_url(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in PORTS or not parts.hostname or port == 0:
        raise RefusedHostError("this is no address of a web service", hint="write https://host/path.")
    return parts


def _status(
    parts: SplitResult, body: bytes, headers: Mapping[str, str], client: HttpClient, sockets: list[socket.socket]
) -> int:
    endpoint = client.find(str(parts.hostname), parts.port or PORTS[parts.scheme])
    if parts.scheme == "http" and not endpoint.listed:
        message = f"host {endpoint.host!r} would be sent plain text"
        raise RefusedHostError(message, hint="write https://, or list the host in EMATIX_FLOW_ALLOW_HOSTS.")
    connection = HTTPConnection(endpoint.host, endpoint.port, timeout=client.seconds)
    connection.sock = _secured(connected(endpoint, client.seconds, sockets), endpoint, parts.scheme, sockets)
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", path, body, {"Host": _host(parts), **_login(parts), **headers})
        return connection.getresponse().status
    except TimeoutError:
        raise  # reported by the caller that set the deadline
    except (OSError, HTTPException, ValueError) as error:
        # The text of a response that is no HTTP is in the error: it is not shown.
        raise TransientError(f"{endpoint.host} did not answer as a web service does: {type(error).__name__}") from None
    finally:
        connection.close()


def _secured(plain: socket.socket, endpoint: Reachable, scheme: str, sockets: list[socket.socket]) -> socket.socket:
    if scheme != "https":
        return plain
    try:
        secured = ssl.create_default_context().wrap_socket(plain, server_hostname=endpoint.host)
    except TimeoutError:
        plain.close()
        raise
    except ssl.SSLCertVerificationError as error:
        plain.close()
        raise RunError(f"{endpoint.host} has no certificate that is trusted: {error.verify_message}") from None
    except OSError as error:
        plain.close()
        raise HostUnreachableError(f"{endpoint.host} speaks no TLS: {type(error).__name__}") from None
    sockets.append(secured)
    return secured


def _host(parts: SplitResult) -> str:
    name = str(parts.hostname)
    spelled = f"[{name}]" if ":" in name else name
    usual = parts.port in (None, PORTS[parts.scheme])
    return spelled if usual else f"{spelled}:{parts.port}"


def _login(parts: SplitResult) -> dict[str, str]:
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}

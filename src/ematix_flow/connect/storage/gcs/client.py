"""Where a bucket of Google is, the client that gets there and what its errors mean; it knows no keys of tables.

What travels to tasks is the name of the file with the credentials, not the credentials.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from ematix_flow.connect.storage.base import StoreError, StoreUnavailableError
from ematix_flow.connect.storage.location import BucketLocation, as_prefix, check_endpoint
from ematix_flow.connect.storage.requests import (
    POOL,
    MissingObjectError,
    PreconditionError,
    StoreUnreachableError,
    installed,
)

if TYPE_CHECKING:
    from ematix_flow.declare.connection.registry import ObjectStoreGCSConnection

_installed = partial(installed, extra="gcs")

SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
_REFUSALS = {
    401: "the service does not accept the credentials",
    403: "the credentials may not {operation} there",
}


@dataclass(frozen=True, slots=True)
class GcsLocation(BucketLocation):
    """A bucket, a prefix in it and how to get there; the key itself stays in its file."""

    service_kind: ClassVar[str] = "gcs"
    scheme: ClassVar[str] = "gs"

    bucket: str
    prefix: str = ""
    endpoint: str = ""
    credentials_path: str = ""
    anonymous: bool = False

    @property
    def service(self) -> str:
        """Return the service for people."""
        return self.endpoint or "Google Cloud Storage"

    @property
    def honors_conditions(self) -> bool:
        """Return True for Google's own service; others are probed."""
        return not self.endpoint


def location_of(connection: ObjectStoreGCSConnection) -> GcsLocation:
    """Return the location that a connection names; without a file the Google libraries look for credentials."""
    if connection.endpoint:
        check_endpoint(connection.name, connection.endpoint)
    return GcsLocation(
        connection.bucket,
        as_prefix(connection.prefix),
        connection.endpoint.rstrip("/"),
        # Tasks may run in another folder than the driver.
        os.path.abspath(connection.credentials_path) if connection.credentials_path else "",  # noqa: PTH100 - may be open
        connection.anonymous,
    )


class Client:
    """The client of one service in this process, with the deadlines of its requests and the clock of the service."""

    def __init__(self, storage: Any, http: Any, seconds: tuple[float, float]) -> None:
        self.storage = storage
        self.http = http
        """The session that adds credentials to plain requests."""
        self.seconds = seconds
        self.now = datetime.now(UTC)

    def read_clock(self, response: Any, *_: Any, **__: Any) -> None:
        """Take the time from a response."""
        date = response.headers.get("Date")
        self.now = parsedate_to_datetime(date) if date else self.now


def connect(location: GcsLocation, seconds: tuple[float, float]) -> Client:
    """Return a client of the service."""
    storage, transport, adapters = (
        _installed(name) for name in ("google.cloud.storage", "google.auth.transport.requests", "requests.adapters")
    )
    session = transport.AuthorizedSession(_credentials(location))
    session.mount("https://", adapters.HTTPAdapter(pool_maxsize=POOL))
    session.mount("http://", adapters.HTTPAdapter(pool_maxsize=POOL))
    options = {"api_endpoint": location.endpoint} if location.endpoint else None
    # No request about objects names a project, but the client looks for one unless it is given any.
    storage_client = storage.Client("none", session.credentials, client_options=options, _http=session)
    client = Client(storage_client, session, seconds)
    session.hooks["response"].append(client.read_clock)
    return client


def _credentials(location: GcsLocation) -> Any:
    auth = _installed("google.auth")
    if location.anonymous:
        return _installed("google.auth.credentials").AnonymousCredentials()
    if location.credentials_path:
        accounts = _installed("google.oauth2.service_account")
        try:
            return accounts.Credentials.from_service_account_file(location.credentials_path, scopes=[SCOPE])
        except (OSError, ValueError):
            message = f"{location.credentials_path} is no file with the key of a service account"
            raise StoreError(message) from None
    return auth.default(scopes=[SCOPE])[0]


def error_of(location: GcsLocation, operation: str, error: Exception) -> StoreError | None:
    """Return what an error of the client means, or None for any other error."""
    auth, api, http = (
        _installed(name) for name in ("google.auth.exceptions", "google.api_core.exceptions", "requests.exceptions")
    )
    if isinstance(error, api.GoogleAPICallError):
        return refusal(location, operation, int(error.code or 0), str(error.message or ""))
    if isinstance(error, http.RequestException):
        return _away(location, http, error)
    return _no_token(location, auth, error) if isinstance(error, auth.GoogleAuthError) else None


def _no_token(location: GcsLocation, auth: Any, error: Any) -> StoreError:
    if isinstance(error, auth.DefaultCredentialsError):
        where = "no credentials were found where the Google libraries look for them"
        return StoreError(
            f"{location.display_address}: {'the bucket requires credentials' if location.anonymous else where}"
        )
    if isinstance(error, auth.TransportError) or error.retryable:
        return StoreUnavailableError(f"{location.display_address}: the service that gives out tokens does not answer")
    return StoreError(f"{location.display_address}: the credentials were refused by the service that gives out tokens")


def refusal(location: GcsLocation, operation: str, status: int, detail: str) -> StoreError:
    """Return the error for a status of the service."""
    if status == 404:  # noqa: PLR2004 - not found
        if "bucket does not exist" in detail or operation in ("list", "write"):
            return StoreError(f"{location.display_address}: bucket {location.bucket!r} does not exist")
        return MissingObjectError(f"{location.display_address}: there is no such object")
    if status == 412:  # noqa: PLR2004 - the precondition failed
        return PreconditionError(f"{location.display_address}: the object is there, or is another one")
    reason = _REFUSALS.get(status, "the service refuses with status {status}").format(
        operation=operation, status=status
    )
    # A conditional write that failed for a reason of its own may be made again: the condition still holds.
    if status >= 500 or status in (408, 409, 429):  # noqa: PLR2004 - out of order, or busy
        return StoreUnavailableError(f"{location.display_address}: {reason}")
    return StoreError(f"{location.display_address}: {reason}")


def _away(location: GcsLocation, http: Any, error: Exception) -> StoreError:
    unreached = isinstance(error, http.ConnectTimeout) or "Failed to establish" in str(error)
    if unreached or "NameResolutionError" in str(error):
        return StoreUnreachableError(f"{location.display_address}: {location.service} cannot be reached")
    return StoreUnavailableError(f"{location.display_address}: the answer was lost ({type(error).__name__})")

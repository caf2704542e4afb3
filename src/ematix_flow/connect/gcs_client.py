"""Requests to Google Cloud Storage with deadlines, bounded repetition and errors for people; it knows no keys of tables.

A client belongs to one process: what travels to tasks is the place and the name of the file with its credentials.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ematix_flow.connect.bucket_place import BucketPlace, as_prefix, check_endpoint
from ematix_flow.connect.bucket_requests import (
    ATTEMPTS,
    POOL,
    MissingObjectError,
    PreconditionError,
    UnreachedError,
    installed,
    patience,
    repeated,
)
from ematix_flow.connect.store import StoreError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.declare.connection.registry import ObjectStoreGCSConnection

_Answer = TypeVar("_Answer")
_making = threading.Lock()

SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
_REFUSALS = {
    401: "the service does not accept the credentials",
    403: "the credentials may not {operation} there",
}


@dataclass(frozen=True, slots=True)
class GcsPlace(BucketPlace):
    """A bucket, a prefix in it and how to get there; the key itself stays in its file."""

    service_kind: ClassVar[str] = "gcs"
    scheme: ClassVar[str] = "gs"

    bucket: str
    prefix: str = ""
    endpoint: str = ""
    credentials_path: str = ""
    anonymous: bool = False

    @property
    def root(self) -> str:
        """Give the bucket."""
        return self.bucket

    @property
    def service(self) -> str:
        """Give the service for people."""
        return self.endpoint or "Google Cloud Storage"

    @property
    def keeps_conditions(self) -> bool:
        """Say yes for Google's own service; others are asked."""
        return not self.endpoint


def place_of(connection: ObjectStoreGCSConnection) -> GcsPlace:
    """Give the place that a connection names; without a file the Google libraries look for credentials."""
    if connection.endpoint:
        check_endpoint(connection.name, connection.endpoint)
    return GcsPlace(
        connection.bucket,
        as_prefix(connection.prefix),
        connection.endpoint.rstrip("/"),
        # Tasks may run in another folder than the driver.
        os.path.abspath(connection.credentials_path) if connection.credentials_path else "",  # noqa: PTH100 - may be open
        connection.anonymous,
    )


class Client:
    """The client of one service in this process, with the deadlines of its requests and the clock of the service."""

    def __init__(self, storage: Any, seconds: tuple[float, float]) -> None:
        self.storage = storage
        self.seconds = seconds
        self.now = datetime.now(UTC)

    @property
    def http(self) -> Any:
        """Give the session that adds credentials to plain requests."""
        return self.storage._http  # noqa: SLF001 - made below

    def look(self, response: Any, *_: Any, **__: Any) -> None:
        """Take the time from an answer."""
        told = response.headers.get("Date")
        self.now = parsedate_to_datetime(told) if told else self.now

    def age(self, since: datetime) -> float:
        """Give the seconds between an instant and the last answer, both by the clock of the service."""
        return (self.now - since).total_seconds()


def client_of(place: GcsPlace, seconds: float | None = None) -> Client:
    """Give the client of this process; `seconds` bounds how long an answer may take."""
    with _making:
        return once(
            place, "reach", lambda: _client(os.getpid(), replace(place, bucket="", prefix=""), patience(seconds))
        )


@lru_cache(maxsize=32)
def _client(process: int, place: GcsPlace, seconds: tuple[float, float]) -> Client:
    del process
    storage, transport, adapters = (
        _installed(name) for name in ("google.cloud.storage", "google.auth.transport.requests", "requests.adapters")
    )
    session = transport.AuthorizedSession(_credentials(place))
    session.mount("https://", adapters.HTTPAdapter(pool_maxsize=POOL))
    session.mount("http://", adapters.HTTPAdapter(pool_maxsize=POOL))
    options = {"api_endpoint": place.endpoint} if place.endpoint else None
    # No request about objects names a project, but the client looks for one unless it is given any.
    made = storage.Client("none", session.credentials, client_options=options, _http=session)
    client = Client(made, seconds)
    session.hooks["response"].append(client.look)
    return client


def _credentials(place: GcsPlace) -> Any:
    auth = _installed("google.auth")
    if place.anonymous:
        return _installed("google.auth.credentials").AnonymousCredentials()
    if place.credentials_path:
        accounts = _installed("google.oauth2.service_account")
        try:
            return accounts.Credentials.from_service_account_file(place.credentials_path, scopes=[SCOPE])
        except (OSError, ValueError):
            message = f"{place.credentials_path} is no file with the key of a service account"
            raise StoreError(message) from None
    return auth.default(scopes=[SCOPE])[0]


def _installed(module: str) -> Any:
    return installed(module, "gcs")


def asked(place: GcsPlace, operation: str, call: Callable[[], _Answer], attempts: int = ATTEMPTS) -> _Answer:
    """Give what a request answers; it is made again while the service is away, busy or out of order."""
    return repeated(lambda: once(place, operation, call), attempts)


def once(place: GcsPlace, operation: str, call: Callable[[], _Answer]) -> _Answer:
    """Give what a request answers, or raise what went wrong as an error of stores."""
    auth, api, http = (
        _installed(name) for name in ("google.auth.exceptions", "google.api_core.exceptions", "requests.exceptions")
    )
    try:
        return call()
    except api.GoogleAPICallError as error:
        raise refusal(place, operation, int(error.code or 0), str(error.message or "")) from None
    except http.RequestException as error:
        raise _away(place, http, error) from None
    except auth.GoogleAuthError as error:
        raise _no_token(place, auth, error) from None


def _no_token(place: GcsPlace, auth: Any, error: Any) -> StoreError:
    if isinstance(error, auth.DefaultCredentialsError):
        where = "no credentials were found where the Google libraries look for them"
        return StoreError(f"{place.shown}: {'the bucket asks for credentials' if place.anonymous else where}")
    if isinstance(error, auth.TransportError) or error.retryable:
        return StoreUnavailableError(f"{place.shown}: the service that gives out tokens does not answer")
    return StoreError(f"{place.shown}: the credentials were refused by the service that gives out tokens")


def refusal(place: GcsPlace, operation: str, status: int, said: str) -> StoreError:
    """Give the error for a status of the service."""
    if status == 404:  # noqa: PLR2004 - not found
        if "bucket does not exist" in said or operation in ("list", "write"):
            return StoreError(f"{place.shown}: bucket {place.bucket!r} does not exist")
        return MissingObjectError(f"{place.shown}: there is no such object")
    if status == 412:  # noqa: PLR2004 - the precondition failed
        return PreconditionError(f"{place.shown}: the object is there, or is another one")
    told = _REFUSALS.get(status, "the service refuses with status {status}").format(operation=operation, status=status)
    # A conditional write that failed for a reason of its own may be made again: the condition still holds.
    if status >= 500 or status in (408, 409, 429):  # noqa: PLR2004 - out of order, or busy
        return StoreUnavailableError(f"{place.shown}: {told}")
    return StoreError(f"{place.shown}: {told}")


def _away(place: GcsPlace, http: Any, error: Exception) -> StoreError:
    unreached = isinstance(error, http.ConnectTimeout) or "Failed to establish" in str(error)
    if unreached or "NameResolutionError" in str(error):
        return UnreachedError(f"{place.shown}: {place.service} cannot be reached")
    return StoreUnavailableError(f"{place.shown}: the answer was lost ({type(error).__name__})")

"""Where a container of Azure is, the client that gets there and what its errors mean; it knows no keys of tables."""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from ematix_flow.connect.storage.base import StoreError, StoreUnavailableError
from ematix_flow.connect.storage.location import BucketLocation, as_prefix, check_endpoint
from ematix_flow.connect.storage.requests import (
    ConflictError,
    MissingObjectError,
    PreconditionError,
    StoreUnreachableError,
    installed,
)
from ematix_flow.errors import RunError

if TYPE_CHECKING:
    from ematix_flow.declare.connection.registry import ObjectStoreAzureConnection

_installed = partial(installed, extra="azure")

_SUFFIX = "core.windows.net"
_MISSING = frozenset({"BlobNotFound", "ResourceNotFound"})
_PRECONDITION_CODES = frozenset({"BlobAlreadyExists", "ConditionNotMet", "TargetConditionNotMet"})
_BUSY = frozenset({"ServerBusy", "OperationTimedOut", "InternalError", "ContainerBeingDeleted", "AccountBeingCreated"})
_REFUSALS = {
    "ContainerNotFound": "container {container!r} does not exist",
    "AuthenticationFailed": "the account_key or the token is wrong, or has expired",
    "NoAuthenticationInformation": "the service takes no request without credentials",
    "AuthorizationFailure": "the credentials may not {operation} there",
    "AuthorizationPermissionMismatch": "the credentials may not {operation} there",
    "AuthorizationServiceMismatch": "the token is for another service",
    "AuthorizationResourceTypeMismatch": "the token may not {operation} there",
    "AuthorizationProtocolMismatch": "the token does not allow this protocol",
    "InsufficientAccountPermissions": "the credentials may not {operation} there",
    "AccountIsDisabled": "the account is disabled",
    "LeaseIdMissing": "another client holds a lease there",
    "BlobImmutableDueToPolicy": "a policy forbids to change what is there",
}


@dataclass(frozen=True, slots=True)
class AzureLocation(BucketLocation):
    """A container, a prefix in it and how to get there; what it shows of itself holds no secret."""

    service_kind: ClassVar[str] = "azure"
    scheme: ClassVar[str] = "az"
    noun: ClassVar[str] = "container"

    account: str
    container: str
    prefix: str = ""
    service: str = ""
    """The address of the blob service."""
    account_key: str = field(default="", repr=False)
    sas_token: str = field(default="", repr=False)

    @property
    def endpoint(self) -> str:
        """Return the address of the service."""
        return self.service

    @property
    def user(self) -> str:
        """Return the account."""
        return self.account

    @property
    def honors_conditions(self) -> bool:
        """Return True for Microsoft's own service; others are probed."""
        return (urlsplit(self.service).hostname or "").endswith(f".blob.{_SUFFIX}")


def location_of(connection: ObjectStoreAzureConnection) -> AzureLocation:
    """Return the location that a connection names; without key and token the Azure libraries look for credentials."""
    settings = _connection_string(connection)
    account = connection.account or settings.get("accountname", "")
    suffix = settings.get("endpointsuffix", _SUFFIX)
    service = connection.endpoint or settings.get("blobendpoint", "") or f"https://{account}.blob.{suffix}"
    check_endpoint(connection.name, service, "container")
    return AzureLocation(
        account,
        connection.container,
        as_prefix(connection.prefix),
        service.rstrip("/"),
        connection.account_key or settings.get("accountkey", ""),
        (connection.sas_token or settings.get("sharedaccesssignature", "")).lstrip("?"),
    )


def _connection_string(connection: ObjectStoreAzureConnection) -> dict[str, str]:
    """Return the fields of a connection string, by their names in lower case."""
    text = connection.connection_string or ""
    pairs = (item.partition("=") for item in text.split(";") if item.strip())
    settings = {name.strip().lower(): value.strip() for name, _, value in pairs}
    if text and "${" not in text and not settings.keys() & {"accountkey", "sharedaccesssignature"}:
        message = (
            f"connection {connection.name!r}: the connection_string holds no AccountKey and no SharedAccessSignature"
        )
        raise RunError(message)
    return settings


def connect(location: AzureLocation, seconds: tuple[float, float]) -> Any:
    """Return a client of the service."""
    blob = _installed("azure.storage.blob")
    try:
        return blob.BlobServiceClient(
            location.service,
            credential=credential_of(location),
            connection_timeout=seconds[0],
            read_timeout=seconds[1],
            # One attempt: a caller that repeats a conditional write must know that it may have happened.
            retry_total=0,
        )
    except ValueError:
        raise StoreError(f"{location.service}: the account_key or the endpoint cannot be used") from None


def credential_of(location: AzureLocation) -> Any:
    """Return the credentials as the client takes them."""
    if location.account_key:
        base64.b64decode(location.account_key, validate=True)  # a ValueError now, and not with every signature
        return {"account_name": location.account, "account_key": location.account_key}
    return location.sas_token or _default_credential(os.getpid())


@lru_cache(maxsize=1)
def _default_credential(process: int) -> Any:
    del process
    return _installed("azure.identity").DefaultAzureCredential()


def error_of(location: AzureLocation, operation: str, error: Exception) -> StoreError | None:
    """Return what an error of the client means, or None for any other error."""
    exceptions = _installed("azure.core.exceptions")
    if isinstance(error, exceptions.ServiceRequestError):
        return StoreUnreachableError(f"{location.display_address}: {location.service} cannot be reached")
    if isinstance(error, exceptions.ServiceResponseError | exceptions.IncompleteReadError):
        return StoreUnavailableError(f"{location.display_address}: the answer was lost ({type(error).__name__})")
    if isinstance(error, exceptions.HttpResponseError):
        return _refusal(location, operation, error)
    if isinstance(error, exceptions.AzureError):
        return StoreError(f"{location.display_address}: the client failed ({type(error).__name__})")
    return None


def _refusal(location: AzureLocation, operation: str, error: Any) -> StoreError:
    status = int(error.status_code or 0)
    code = getattr(error, "error_code", None) or ""
    code = str(getattr(code, "value", code))
    if not status:
        return _no_credentials(location)
    template = _REFUSALS.get(code, "the service refuses with status {status}")
    known = {"container": location.container, "operation": operation, "status": status}
    message = f"{location.display_address}: {template.format(**known)} ({code or status})"
    if code in _MISSING or (status == 404 and code not in _REFUSALS):  # noqa: PLR2004 - not found
        return MissingObjectError(message)
    if code in _PRECONDITION_CODES or (status == 412 and code not in _REFUSALS):  # noqa: PLR2004 - the precondition failed
        return PreconditionError(message)
    if code == "PendingCopyOperation":
        return ConflictError(message)
    if code in _BUSY or (code not in _REFUSALS and (status >= 500 or status in (408, 429))):  # noqa: PLR2004 - out of order
        return StoreUnavailableError(message)
    return StoreError(message)


def _no_credentials(location: AzureLocation) -> StoreError:
    return StoreError(f"{location.display_address}: no credentials were found where the Azure libraries look for them")

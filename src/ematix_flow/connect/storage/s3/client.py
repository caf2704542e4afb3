"""Where a bucket of an S3 service is, the client that gets there and what its errors mean; it knows no keys of tables."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from ematix_flow.connect.storage.base import StoreError, StoreUnavailableError
from ematix_flow.connect.storage.location import BucketLocation, as_prefix, check_endpoint
from ematix_flow.connect.storage.requests import (
    POOL,
    ConflictError,
    MissingObjectError,
    PreconditionError,
    StoreUnreachableError,
    installed,
)

if TYPE_CHECKING:
    from ematix_flow.declare.connection.databases import DeltaS3Connection, IcebergConnection
    from ematix_flow.declare.connection.files import ObjectStoreS3Connection

    BucketConnection = ObjectStoreS3Connection | DeltaS3Connection | IcebergConnection

_installed = partial(installed, extra="s3")

_MISSING = frozenset({"NoSuchKey", "404", "NotFound", "NoSuchUpload"})
_BUSY = frozenset({"SlowDown", "RequestTimeout", "RequestTimeoutException", "Throttling", "ThrottlingException",
                   "TooManyRequests", "RequestLimitExceeded", "InternalError", "ServiceUnavailable",
                   "OperationAborted"})  # fmt: skip
_REFUSALS = {
    "NoSuchBucket": "bucket {bucket!r} does not exist",
    "InvalidAccessKeyId": "the service does not know the access_key_id",
    "SignatureDoesNotMatch": "the secret_access_key does not belong to the access_key_id",
    "AccessDenied": "the credentials may not {operation} there",
    "403": "the credentials are wrong, or may not {operation} there",
    "ExpiredToken": "the credentials have expired",
    "PermanentRedirect": "the bucket is in another region than {region!r}",
    "301": "the bucket is in another region than {region!r}",
    "AuthorizationHeaderMalformed": "the bucket is in another region than {region!r}",
    "NotImplemented": "the service cannot {operation} in the way that is needed",
}


@dataclass(frozen=True, slots=True)
class S3Location(BucketLocation):
    """A bucket, a prefix in it and how to get there; what it shows of itself holds no secret."""

    service_kind: ClassVar[str] = "s3"
    scheme: ClassVar[str] = "s3"

    bucket: str
    prefix: str = ""
    endpoint: str = ""
    region: str = ""
    path_style: bool = False
    profile: str = ""
    access_key_id: str = field(default="", repr=False)
    secret_access_key: str = field(default="", repr=False)

    @property
    def service(self) -> str:
        """Return the service for people."""
        return self.endpoint or "Amazon S3"

    @property
    def honors_conditions(self) -> bool:
        """Return True for Amazon's own service; others are probed."""
        return self.is_amazon

    @property
    def is_amazon(self) -> bool:
        """Return whether the service is Amazon's own."""
        host = urlsplit(self.endpoint).hostname or ""
        return not self.endpoint or host.endswith((".amazonaws.com", ".amazonaws.com.cn"))


def location_of(connection: BucketConnection) -> S3Location:
    """Return the location that a connection names; without keys and profile the AWS libraries look for keys."""
    if connection.endpoint:
        check_endpoint(connection.name, connection.endpoint)
    chain = connection.default_credentials or bool(connection.profile)
    location = S3Location(
        connection.bucket,
        as_prefix(connection.prefix),
        connection.endpoint.rstrip("/"),
        connection.region,
        profile=connection.profile or "",
        access_key_id="" if chain else connection.access_key_id,
        secret_access_key="" if chain else connection.secret_access_key,
        path_style=bool(connection.path_style),
    )
    if connection.path_style is None and not location.is_amazon:
        # Names of buckets are host names at Amazon and at few others.
        return replace(location, path_style=True)
    return location


@dataclass(frozen=True, slots=True)
class S3Keys:
    """Keys as they are now; those with a token end."""

    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)


def keys_of(location: S3Location) -> S3Keys:
    """Return the keys of a location, found where the AWS libraries look for them if the location has none itself."""
    if location.access_key_id:
        return S3Keys(location.access_key_id, location.secret_access_key)
    exceptions = _installed("botocore.exceptions")
    try:
        credentials = _installed("boto3").Session(profile_name=location.profile or None).get_credentials()
        now = None if credentials is None else credentials.get_frozen_credentials()
    except exceptions.BotoCoreError as error:
        raise _failure(location, error) from None
    if now is None:
        raise _failure(location, exceptions.NoCredentialsError())
    return S3Keys(now.access_key, now.secret_key, now.token or "")


def connect(location: S3Location, seconds: tuple[float, float]) -> Any:
    """Return a client of the service."""
    boto3, botocore = (_installed(name) for name in ("boto3", "botocore.config"))
    checksums = "when_supported" if location.is_amazon else "when_required"
    config = botocore.Config(
        connect_timeout=seconds[0],
        read_timeout=seconds[1],
        # One attempt: a caller that repeats a conditional write must know that it may have happened.
        retries={"total_max_attempts": 1, "mode": "standard"},
        max_pool_connections=POOL,
        s3={"addressing_style": "path" if location.path_style else "auto"},
        request_checksum_calculation=checksums,
        response_checksum_validation=checksums,
    )
    keys = {"aws_access_key_id": location.access_key_id, "aws_secret_access_key": location.secret_access_key}
    try:
        session = boto3.Session(profile_name=location.profile or None, region_name=location.region or None)
        credentials = keys if location.access_key_id else {}
        return session.client("s3", endpoint_url=location.endpoint or None, config=config, **credentials)
    except (_installed("botocore.exceptions").BotoCoreError, ValueError) as error:
        raise StoreError(str(error)) from None


def error_of(location: S3Location, operation: str, error: Exception) -> StoreError | None:
    """Return what an error of the client means, or None for any other error."""
    exceptions = _installed("botocore.exceptions")
    if isinstance(error, exceptions.ClientError):
        return _refusal(location, operation, error.response)
    return _failure(location, error) if isinstance(error, exceptions.BotoCoreError) else None


def _refusal(location: S3Location, operation: str, response: Any) -> StoreError:
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0)
    code, detail = (str(response.get("Error", {}).get(name, "")) for name in ("Code", "Message"))
    known = {"bucket": location.bucket, "region": location.region, "operation": operation, "said": detail}
    message = f"{location.display_address}: {_REFUSALS.get(code, '{said}').format(**known)} ({code})"
    if code in _MISSING:
        return MissingObjectError(message)
    if status == 412:  # noqa: PLR2004 - the precondition failed
        return PreconditionError(message)
    if code == "ConditionalRequestConflict" or (status == 409 and code != "BucketAlreadyExists"):  # noqa: PLR2004
        return ConflictError(message)
    if code not in _REFUSALS and (status >= 500 or status == 429 or code in _BUSY):  # noqa: PLR2004 - out of order
        return StoreUnavailableError(message)
    return StoreError(message)


def _failure(location: S3Location, error: Exception) -> StoreError:
    from botocore import exceptions

    unreached = (exceptions.EndpointConnectionError, exceptions.ConnectTimeoutError, exceptions.ProxyConnectionError)
    away = (
        exceptions.ConnectionError,
        exceptions.HTTPClientError,
        exceptions.IncompleteReadError,
        exceptions.ResponseStreamingError,
        exceptions.CredentialRetrievalError,
        exceptions.MetadataRetrievalError,
    )
    message = f"{location.display_address}: {error}"
    if isinstance(error, unreached):
        return StoreUnreachableError(f"{location.display_address}: {location.service} cannot be reached")
    if isinstance(error, exceptions.NoCredentialsError):
        return StoreError(
            f"{location.display_address}: no credentials were found where the AWS libraries look for them"
        )
    return StoreUnavailableError(message) if isinstance(error, away) else StoreError(message)

"""Where a bucket of an S3 service is, the client that gets there and what its errors mean; it knows no keys of tables."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from ematix_flow.connect.storage.base import StoreError, StoreUnavailableError
from ematix_flow.connect.storage.location import BucketPlace, as_prefix, check_endpoint
from ematix_flow.connect.storage.requests import (
    POOL,
    ConflictError,
    MissingObjectError,
    PreconditionError,
    UnreachedError,
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
class S3Place(BucketPlace):
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
    def keeps_conditions(self) -> bool:
        """Return True for Amazon's own service; others are asked."""
        return self.is_amazon

    @property
    def is_amazon(self) -> bool:
        """Return whether the service is Amazon's own."""
        host = urlsplit(self.endpoint).hostname or ""
        return not self.endpoint or host.endswith((".amazonaws.com", ".amazonaws.com.cn"))


def place_of(connection: BucketConnection) -> S3Place:
    """Return the place that a connection names; without keys and profile the AWS libraries look for keys."""
    if connection.endpoint:
        check_endpoint(connection.name, connection.endpoint)
    chain = connection.default_credentials or bool(connection.profile)
    place = S3Place(
        connection.bucket,
        as_prefix(connection.prefix),
        connection.endpoint.rstrip("/"),
        connection.region,
        profile=connection.profile or "",
        access_key_id="" if chain else connection.access_key_id,
        secret_access_key="" if chain else connection.secret_access_key,
        path_style=bool(connection.path_style),
    )
    if connection.path_style is None and not place.is_amazon:
        # Names of buckets are host names at Amazon and at few others.
        return replace(place, path_style=True)
    return place


@dataclass(frozen=True, slots=True)
class S3Keys:
    """Keys as they are now; those with a token end."""

    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)


def keys_of(place: S3Place) -> S3Keys:
    """Return the keys of a place, found where the AWS libraries look for them if the place has none itself."""
    if place.access_key_id:
        return S3Keys(place.access_key_id, place.secret_access_key)
    exceptions = _installed("botocore.exceptions")
    try:
        found = _installed("boto3").Session(profile_name=place.profile or None).get_credentials()
        now = None if found is None else found.get_frozen_credentials()
    except exceptions.BotoCoreError as error:
        raise _failure(place, error) from None
    if now is None:
        raise _failure(place, exceptions.NoCredentialsError())
    return S3Keys(now.access_key, now.secret_key, now.token or "")


def connect(place: S3Place, seconds: tuple[float, float]) -> Any:
    """Return a client of the service."""
    boto3, botocore = (_installed(name) for name in ("boto3", "botocore.config"))
    checksums = "when_supported" if place.is_amazon else "when_required"
    config = botocore.Config(
        connect_timeout=seconds[0],
        read_timeout=seconds[1],
        # One attempt: whoever repeats a conditional write must know that it may have happened.
        retries={"total_max_attempts": 1, "mode": "standard"},
        max_pool_connections=POOL,
        s3={"addressing_style": "path" if place.path_style else "auto"},
        request_checksum_calculation=checksums,
        response_checksum_validation=checksums,
    )
    keys = {"aws_access_key_id": place.access_key_id, "aws_secret_access_key": place.secret_access_key}
    try:
        session = boto3.Session(profile_name=place.profile or None, region_name=place.region or None)
        given = keys if place.access_key_id else {}
        return session.client("s3", endpoint_url=place.endpoint or None, config=config, **given)
    except (_installed("botocore.exceptions").BotoCoreError, ValueError) as error:
        raise StoreError(str(error)) from None


def error_of(place: S3Place, operation: str, error: Exception) -> StoreError | None:
    """Return what an error of the client means, or None for any other error."""
    exceptions = _installed("botocore.exceptions")
    if isinstance(error, exceptions.ClientError):
        return _refusal(place, operation, error.response)
    return _failure(place, error) if isinstance(error, exceptions.BotoCoreError) else None


def _refusal(place: S3Place, operation: str, response: Any) -> StoreError:
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0)
    code, said = (str(response.get("Error", {}).get(name, "")) for name in ("Code", "Message"))
    known = {"bucket": place.bucket, "region": place.region, "operation": operation, "said": said}
    told = f"{place.shown}: {_REFUSALS.get(code, '{said}').format(**known)} ({code})"
    if code in _MISSING:
        return MissingObjectError(told)
    if status == 412:  # noqa: PLR2004 - the precondition failed
        return PreconditionError(told)
    if code == "ConditionalRequestConflict" or (status == 409 and code != "BucketAlreadyExists"):  # noqa: PLR2004
        return ConflictError(told)
    if code not in _REFUSALS and (status >= 500 or status == 429 or code in _BUSY):  # noqa: PLR2004 - out of order
        return StoreUnavailableError(told)
    return StoreError(told)


def _failure(place: S3Place, error: Exception) -> StoreError:
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
    told = f"{place.shown}: {error}"
    if isinstance(error, unreached):
        return UnreachedError(f"{place.shown}: {place.service} cannot be reached")
    if isinstance(error, exceptions.NoCredentialsError):
        return StoreError(f"{place.shown}: no credentials were found where the AWS libraries look for them")
    return StoreUnavailableError(told) if isinstance(error, away) else StoreError(told)

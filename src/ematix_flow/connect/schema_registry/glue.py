"""Schemas of messages from AWS Glue, whose messages carry the identity of a version instead of a number."""

from __future__ import annotations

import os
import threading
import zlib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ematix_flow.connect.base.retry import AWS_REQUEST
from ematix_flow.connect.formats.schema_decoders import require_module
from ematix_flow.connect.schema_registry.base import Registry, Schema
from ematix_flow.errors import RunError, TransientError
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.connect.schema_registry.base import SchemaId
    from ematix_flow.declare.connection.brokers import GlueSchemaRegistryConnection

VERSION = 3
HEAD = 18
"""Bytes before the payload: the version of the header, how it is packed, and the identity of the schema."""

PLAIN, PACKED = 0, 5
LARGEST = 64 << 20
"""Bytes that a packed message may have."""

_client_lock = threading.Lock()
_MISSING = ("EntityNotFoundException",)
_AWAY = ("ThrottlingException", "InternalServiceException", "ServiceUnavailable", "RequestLimitExceeded")


@dataclass(frozen=True)
class GlueRegistry(Registry):
    """One registry of AWS Glue; without keys and profile the AWS libraries look for keys."""

    registry_name: str
    region: str
    profile: str | None = None
    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    auto_register: bool = True

    @property
    def display_address(self) -> str:
        """Return name and region."""
        return f"{self.registry_name} of AWS Glue in {self.region}"

    def subject_of(self, topic: str) -> str:
        """Return the topic itself, as AWS's own libraries do."""
        return topic

    def unframed(self, payload: bytes) -> tuple[SchemaId, bytes] | str:
        """Cut the header off and unpack the rest."""
        if len(payload) < HEAD:
            return f"too few for a message with a schema: {quantity(len(payload), 'byte')}"
        if payload[0] != VERSION or payload[1] not in (PLAIN, PACKED):
            return f"begins with the bytes {payload[0]} and {payload[1]}, which Glue does not write"
        body = _unpacked(payload[HEAD:]) if payload[1] == PACKED else payload[HEAD:]
        return body if isinstance(body, str) else (str(UUID(bytes=payload[2:HEAD])), body)

    def framed(self, schema: SchemaId, body: bytes) -> bytes:
        """Put the header before the values."""
        return bytes([VERSION, PLAIN]) + UUID(str(schema)).bytes + body

    def fetched(self, schema: SchemaId) -> Schema | None:
        """Return a version by its identity."""
        response = self._request(lambda glue: glue.get_schema_version(SchemaVersionId=str(schema)))
        return None if response is None else _schema(response)

    def latest(self, subject: str) -> Schema | None:
        """Return the last version of a schema."""
        newest = {"LatestVersion": True}
        response = self._request(
            lambda glue: glue.get_schema_version(SchemaId=self._id(subject), SchemaVersionNumber=newest)
        )
        return None if response is None else _schema(response)

    def register(self, subject: str, kind: str, text: str) -> Schema:
        """Add a version to a schema, or make the schema."""
        request = {"SchemaId": self._id(subject), "SchemaDefinition": text}
        response = self._request(lambda glue: glue.register_schema_version(**request))
        if response is None:
            response = self._request(
                lambda glue: glue.create_schema(
                    RegistryId={"RegistryName": self.registry_name},
                    SchemaName=subject,
                    DataFormat=kind,
                    Compatibility="BACKWARD",
                    SchemaDefinition=text,
                )
            )
        if response is None or str(response.get("Status", response.get("SchemaVersionStatus"))) == "FAILURE":
            message = f"schema registry {self.display_address} did not register a schema for {subject!r}"
            raise RunError(message, hint="is there a registry of that name, and is the schema compatible?")
        return Schema(str(response["SchemaVersionId"]), kind, text, by_order=True)

    def _id(self, subject: str) -> dict[str, str]:
        return {"RegistryName": self.registry_name, "SchemaName": subject}

    def _request(self, call: Callable[[Any], Any]) -> Any:
        """Return what Glue answers; None where it knows no such thing."""
        exceptions = require_module("botocore.exceptions", "s3")
        with _client_lock:
            client = _client(os.getpid(), self)
        try:
            return call(client)
        except exceptions.ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code in _MISSING:
                return None
            message = (
                f"schema registry {self.display_address}: {error.response.get('Error', {}).get('Message', '')} ({code})"
            )
            raise (TransientError if code in _AWAY else RunError)(message) from None
        except (exceptions.NoCredentialsError, exceptions.ProfileNotFound) as error:
            raise RunError(f"schema registry {self.display_address}: {error}") from None
        except exceptions.BotoCoreError as error:
            raise TransientError(f"schema registry {self.display_address} cannot be reached: {error}") from None


def glue_registry(connection: GlueSchemaRegistryConnection) -> GlueRegistry:
    """Return the registry that a connection names; it is not contacted yet."""
    return GlueRegistry(
        connection.registry_name,
        connection.region,
        connection.aws_profile,
        connection.aws_access_key_id,
        connection.aws_secret_access_key,
        connection.auto_register,
    )


def _schema(response: Any) -> Schema:
    return Schema(
        str(response["SchemaVersionId"]), str(response["DataFormat"]), str(response["SchemaDefinition"]), by_order=True
    )


def _unpacked(body: bytes) -> bytes | str:
    unpack = zlib.decompressobj()
    try:
        content = unpack.decompress(body, LARGEST)
    except zlib.error as error:
        return f"cannot be unpacked: {error}"
    return content if unpack.eof else "cannot be unpacked: it is cut off or too large"


@lru_cache(maxsize=8)
def _client(process: int, registry: GlueRegistry) -> Any:
    del process
    boto3, config = require_module("boto3", "s3"), require_module("botocore.config", "s3")
    session = boto3.Session(profile_name=registry.profile, region_name=registry.region)
    return session.client(
        "glue",
        aws_access_key_id=registry.access_key_id,
        aws_secret_access_key=registry.secret_access_key,
        config=config.Config(retries={"total_max_attempts": AWS_REQUEST.attempts, "mode": "standard"}),
    )

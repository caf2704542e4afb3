"""Schemas of messages, stored by a registry with Confluent's API; it reads no message and guesses no schema."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from ematix_flow.connect.schema_registry.base import AVRO, Registry, Schema
from ematix_flow.connect.schema_registry.requests import Login, once, request_json
from ematix_flow.errors import RunError
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ematix_flow.connect.schema_registry.base import SchemaId
    from ematix_flow.declare.connection.brokers import SchemaRegistryConnection

MAGIC = 0
HEAD = 5
"""Bytes before the payload: the magic one and the number of the schema."""


@dataclass(frozen=True)
class ConfluentRegistry(Registry):
    """A registry with Confluent's API, as Confluent, Apicurio and Karapace have it."""

    url: str
    login: Login | None = field(default=None, repr=False)
    auto_register: bool = True

    @property
    def display_address(self) -> str:
        """Return the address."""
        return self.url

    def unframed(self, payload: bytes) -> tuple[SchemaId, bytes] | str:
        """Cut the magic byte and the number off."""
        if len(payload) < HEAD:
            return f"too few for a message with a schema: {quantity(len(payload), 'byte')}"
        if payload[0] != MAGIC:
            return f"magic byte {payload[0]} instead of {MAGIC}"
        return int.from_bytes(payload[1:HEAD], "big"), payload[HEAD:]

    def framed(self, schema: SchemaId, body: bytes) -> bytes:
        """Put the magic byte and the number before the values."""
        return bytes([MAGIC]) + int(schema).to_bytes(4, "big") + body

    def fetched(self, schema: SchemaId) -> Schema | None:
        """Return a schema by its number."""
        document = self._request(f"/schemas/ids/{schema}")
        return None if document is None else self._schema(schema, document)

    def latest(self, subject: str) -> Schema | None:
        """Return the last version of a subject."""
        document = self._request(f"/subjects/{quote(subject, safe='')}/versions/latest")
        return None if document is None else self._schema(int(document["id"]), document)

    def register(self, subject: str, kind: str, text: str) -> Schema:
        """Add a version to a subject."""
        body = {"schema": text, "schemaType": kind}
        document = self._request(f"/subjects/{quote(subject, safe='')}/versions", body) or {}
        if "id" not in document:
            message = f"schema registry {self.url} did not register a schema for {subject!r}"
            raise RunError(message)
        return Schema(int(document["id"]), kind, text)

    def _request(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        return request_json(self.url, path, self.login, body)

    def _schema(self, number: SchemaId, document: Mapping[str, Any]) -> Schema:
        imports = dict(self._imports(document, set()))
        return Schema(number, str(document.get("schemaType") or AVRO), str(document["schema"]), tuple(imports.items()))

    def _imports(self, document: Mapping[str, Any], visited: set[str]) -> Iterator[tuple[str, str]]:
        for reference in document.get("references") or ():
            name, subject = str(reference["name"]), quote(str(reference["subject"]), safe="")
            if name in visited:
                continue
            visited.add(name)
            used = self._request(f"/subjects/{subject}/versions/{reference['version']}")
            if used is None:
                message = f"schema registry {self.url} does not know {reference['subject']!r}, which a schema uses"
                raise RunError(message)
            yield from self._imports(used, visited)
            yield name, str(used["schema"])


def probe(connection: SchemaRegistryConnection, seconds: float) -> str:
    """Return a sentence about a registry that answers within so many seconds."""
    registry = confluent_registry(connection)
    subjects = once(registry.url, "/subjects", registry.login, seconds=seconds)
    return f"{registry.url} has {len(subjects or ())} subjects"


def confluent_registry(connection: SchemaRegistryConnection) -> ConfluentRegistry:
    """Return the registry of a connection, with its login."""
    user, password = connection.basic_auth_user, connection.basic_auth_password
    login = Login(user, password) if user and password else None
    return registry_at(connection.url, login, register=connection.auto_register)


def registry_at(url: str, login: Login | None, *, register: bool) -> ConfluentRegistry:
    """Return the registry at an address; a login inside the address becomes a separate field."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        message = "the address of a schema registry begins with http:// or https:// and has a host"
        raise RunError(message)
    if login is None and parts.username and parts.password:
        login = Login(unquote(parts.username), unquote(parts.password))
    host = parts.netloc.rpartition("@")[2]
    return ConfluentRegistry(urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", "")), login, register)

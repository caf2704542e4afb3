"""Schemas of messages, kept by a registry that speaks Confluent's API; it reads no message and guesses no schema.

A schema that the registry does not know is told apart from a registry that cannot be asked: the first is a fault of
the message, the second one passes, and nothing may be set aside because of it.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from ematix_flow.connect.schema_registry.requests import Login, ask, once
from ematix_flow.declare.connection.brokers import GlueSchemaRegistryConnection, SchemaRegistryConnection
from ematix_flow.errors import RunError, UnsupportedError
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ematix_flow.declare.connection.brokers import KafkaConnection

SchemaId: TypeAlias = int | str

AVRO, PROTOBUF = "AVRO", "PROTOBUF"

SCHEMA_FORMATS = ("avro", "protobuf")
"""Payload formats whose schemas stand in a registry."""

MAGIC = 0
HEAD = 5
"""Bytes before the payload: the magic one and the number of the schema."""

FORGET = 30.0
"""Seconds after which the registry is asked again about a schema that it did not know."""


@dataclass(frozen=True, slots=True)
class Schema:
    """One version of a schema, which never changes."""

    id: SchemaId
    kind: str
    text: str
    imports: tuple[tuple[str, str], ...] = ()
    """Names and texts of the schemas that it uses, each behind those it uses itself."""
    by_order: bool = False
    """A message of Protobuf says its type by the place of the name among all names in order, not by a path."""


class Registry(ABC):
    """Where schemas stand, and how a message says which one it was written with."""

    auto_register: bool
    """Whether a schema may be added for rows that have none."""

    @property
    @abstractmethod
    def shown(self) -> str:
        """Return the registry for people."""

    def subject_of(self, topic: str) -> str:
        """Return the subject of the payloads of a topic."""
        return f"{topic}-value"

    @abstractmethod
    def unframed(self, payload: bytes) -> tuple[SchemaId, bytes] | str:
        """Return the schema's number and the values of a message, or what is wrong with it."""

    @abstractmethod
    def framed(self, schema: SchemaId, body: bytes) -> bytes:
        """Return values as a message that says its schema."""

    @abstractmethod
    def fetched(self, schema: SchemaId) -> Schema | None:
        """Ask the registry for a schema; None where there is none."""

    @abstractmethod
    def latest(self, subject: str) -> Schema | None:
        """Return the newest schema of a subject; None where there is no such subject."""

    @abstractmethod
    def register(self, subject: str, kind: str, text: str) -> Schema:
        """Add a schema to a subject and give it with its number; one that is there already is given as it is."""

    def schema(self, number: SchemaId) -> Schema | None:
        """Return a schema by its number; None where the registry knows none."""
        key = (self, number)
        if key in _known:
            return _known[key]
        if time.monotonic() - _unknown.get(key, -FORGET) < FORGET:
            return None
        found = self.fetched(number)
        if found is None:
            _unknown[key] = time.monotonic()
        else:
            _known[key] = found
        return found


_known: dict[tuple[Registry, SchemaId], Schema] = {}
_unknown: dict[tuple[Registry, SchemaId], float] = {}
"""Schemas and missing ones of this process; a number means the same schema for ever."""


@dataclass(frozen=True)
class ConfluentRegistry(Registry):
    """A registry with Confluent's API, as Confluent, Apicurio and Karapace have it."""

    url: str
    login: Login | None = field(default=None, repr=False)
    auto_register: bool = True

    @property
    def shown(self) -> str:
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
        """Ask for a schema by its number."""
        found = self._ask(f"/schemas/ids/{schema}")
        return None if found is None else self._schema(schema, found)

    def latest(self, subject: str) -> Schema | None:
        """Ask for the last version of a subject."""
        found = self._ask(f"/subjects/{quote(subject, safe='')}/versions/latest")
        return None if found is None else self._schema(int(found["id"]), found)

    def register(self, subject: str, kind: str, text: str) -> Schema:
        """Add a version to a subject."""
        asked = {"schema": text, "schemaType": kind}
        found = self._ask(f"/subjects/{quote(subject, safe='')}/versions", asked) or {}
        if "id" not in found:
            message = f"schema registry {self.url} did not register a schema for {subject!r}"
            raise RunError(message)
        return Schema(int(found["id"]), kind, text)

    def _ask(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        return ask(self.url, path, self.login, body)

    def _schema(self, number: SchemaId, found: Mapping[str, Any]) -> Schema:
        imports = dict(self._imports(found, set()))
        return Schema(number, str(found.get("schemaType") or AVRO), str(found["schema"]), tuple(imports.items()))

    def _imports(self, found: Mapping[str, Any], seen: set[str]) -> Iterator[tuple[str, str]]:
        for reference in found.get("references") or ():
            name, subject = str(reference["name"]), quote(str(reference["subject"]), safe="")
            if name in seen:
                continue
            seen.add(name)
            used = self._ask(f"/subjects/{subject}/versions/{reference['version']}")
            if used is None:
                message = f"schema registry {self.url} does not know {reference['subject']!r}, which a schema uses"
                raise RunError(message)
            yield from self._imports(used, seen)
            yield name, str(used["schema"])


def registry_of(connection: KafkaConnection) -> Registry:
    """Return the registry of a connection whose references are filled in; it is not asked yet."""
    found = connection.schema_registry
    if isinstance(found, GlueSchemaRegistryConnection):
        from ematix_flow.connect.schema_registry.glue import glue_registry

        return glue_registry(found)
    if isinstance(found, SchemaRegistryConnection):
        return _confluent(found)
    if connection.schema_registry_url:
        return _at(connection.schema_registry_url, None, register=True)
    message = f"connection {connection.name!r} has payloads of {connection.payload_format}, but no schema registry"
    raise UnsupportedError(message, hint="give schema_registry= a connection, or schema_registry_url= an address.")


def probe(connection: SchemaRegistryConnection, seconds: float) -> str:
    """Return a sentence about a registry that answers within so many seconds."""
    registry = _confluent(connection)
    subjects = once(registry.url, "/subjects", registry.login, seconds=seconds)
    return f"{registry.url} has {len(subjects or ())} subjects"


def _confluent(connection: SchemaRegistryConnection) -> ConfluentRegistry:
    user, password = connection.basic_auth_user, connection.basic_auth_password
    login = Login(user, password) if user and password else None
    return _at(connection.url, login, register=connection.auto_register)


def _at(url: str, login: Login | None, *, register: bool) -> ConfluentRegistry:
    """Return the registry at an address; a login inside the address becomes one beside it."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        message = "the address of a schema registry begins with http:// or https:// and has a host"
        raise RunError(message)
    if login is None and parts.username and parts.password:
        login = Login(unquote(parts.username), unquote(parts.password))
    place = parts.netloc.rpartition("@")[2]
    return ConfluentRegistry(urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", "")), login, register)

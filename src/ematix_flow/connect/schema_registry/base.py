"""What a schema registry is: schemas by number and by subject, and how a message names the one it was written with.

A schema that the registry does not know is distinguished from a registry that cannot be queried: the first is a fault
of the message, the second one passes, and nothing may be set aside because of it.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TypeAlias

SchemaId: TypeAlias = int | str

AVRO, PROTOBUF = "AVRO", "PROTOBUF"

SCHEMA_FORMATS = ("avro", "protobuf")
"""Payload formats whose schemas are in a registry."""

FORGET = 30.0
"""Seconds after which the registry is queried again about a schema that it did not know."""


@dataclass(frozen=True, slots=True)
class Schema:
    """One version of a schema, which never changes."""

    id: SchemaId
    kind: str
    text: str
    imports: tuple[tuple[str, str], ...] = ()
    """Names and texts of the schemas that it uses, each behind those it uses itself."""
    by_order: bool = False
    """A message of Protobuf names its type by the index of the name among all names in order, not by a path."""


class Registry(ABC):
    """Where schemas are stored, and how a message names the one it was written with."""

    auto_register: bool
    """Whether a schema may be added for rows that have none."""

    @property
    @abstractmethod
    def display_address(self) -> str:
        """Return the registry for people."""

    def subject_of(self, topic: str) -> str:
        """Return the subject of the payloads of a topic."""
        return f"{topic}-value"

    @abstractmethod
    def unframed(self, payload: bytes) -> tuple[SchemaId, bytes] | str:
        """Return the schema's number and the values of a message, or what is wrong with it."""

    @abstractmethod
    def framed(self, schema: SchemaId, body: bytes) -> bytes:
        """Return values as a message that names its schema."""

    @abstractmethod
    def fetched(self, schema: SchemaId) -> Schema | None:
        """Return a schema from the registry; None where there is none."""

    @abstractmethod
    def latest(self, subject: str) -> Schema | None:
        """Return the newest schema of a subject; None where there is no such subject."""

    @abstractmethod
    def register(self, subject: str, kind: str, text: str) -> Schema:
        """Add a schema to a subject and return it with its number; one that is there already is returned as it is."""

    def schema(self, number: SchemaId) -> Schema | None:
        """Return a schema by its number; None where the registry knows none."""
        key = (self, number)
        if key in _known:
            return _known[key]
        if time.monotonic() - _unknown.get(key, -FORGET) < FORGET:
            return None
        schema = self.fetched(number)
        if schema is None:
            _unknown[key] = time.monotonic()
        else:
            _known[key] = schema
        return schema


_known: dict[tuple[Registry, SchemaId], Schema] = {}
_unknown: dict[tuple[Registry, SchemaId], float] = {}
"""Schemas and missing ones of this process; a number means the same schema for ever."""

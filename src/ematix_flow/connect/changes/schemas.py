"""Change events with a schema in a registry: read as JSON is, with what their schema says of the columns."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ematix_flow.connect.formats.schema_decoders import SchemaDecoder

_ROWS = ("after", "before")
_NAMED = ("record", "enum", "fixed")


@dataclass(frozen=True, slots=True)
class ChangeReader:
    """Reads payloads that have schemas; it travels to the tasks that read the messages."""

    decoder: SchemaDecoder
    wraps: bool = True
    """Whether an event is returned with its schema, as the JSON of a connector has it."""

    def read(self, payload: bytes) -> dict[str, Any] | str:
        """Return the values of one message, or what is wrong with it."""
        values = self.decoder.read(payload)
        if isinstance(values, str):
            return f"({values})"
        return {"schema": self._schema(payload), "payload": values} if self.wraps else values

    def _schema(self, payload: bytes) -> dict[str, Any]:
        frame = self.decoder.registry.unframed(payload)
        schema = None if isinstance(frame, str) else self.decoder.registry.schema(frame[0])
        return {} if schema is None else _connect_schema(schema.text)


@lru_cache(maxsize=256)
def _connect_schema(text: str) -> dict[str, Any]:
    """Return an Avro schema as far as connectors write it in JSON: the logical types of the columns."""
    schema = json.loads(text)
    named = dict(_named(schema))
    envelope = _described(schema, named)
    blocks = []
    for field in envelope.get("fields", ()):
        row = _described(field["type"], named)
        if "fields" in row and field["name"] in _ROWS:
            blocks.append({"field": field["name"], "fields": [_column(one, named) for one in row["fields"]]})
    return {"fields": blocks or [_column(one, named) for one in envelope.get("fields", ())]}


def _named(schema: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return all types that a schema describes, which may refer to each other by their names."""
    if isinstance(schema, list):
        for one in schema:
            yield from _named(one)
    elif isinstance(schema, dict):
        for one in schema.values():
            yield from _named(one)
        if "name" in schema and schema.get("type") in _NAMED:
            yield str(schema["name"]).rpartition(".")[2], schema


def _described(schema: Any, named: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the description of the type that a schema is or may be; one that has only a name is empty."""
    for one in schema if isinstance(schema, list) else [schema]:
        if isinstance(one, str) and one.rpartition(".")[2] in named:
            return named[one.rpartition(".")[2]]
        if isinstance(one, dict):
            return one
    return {}


def _column(field: dict[str, Any], named: dict[str, dict[str, Any]]) -> dict[str, Any]:
    described = _described(field["type"], named)
    if "logicalType" in described:  # fastavro reads Avro's own, so only those of connectors are left to be read
        return {"field": field["name"]}
    name, parameters = described.get("connect.name", ""), described.get("connect.parameters")
    return {"field": field["name"], "name": name, "type": described.get("type"), "parameters": parameters}

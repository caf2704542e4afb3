"""Change events with a schema in a registry: read as JSON is, with what their schema says of the columns."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ematix_flow.connect.formats.schema_decoders import SchemaDecoder

_ROWS = ("after", "before")


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
    named: dict[str, dict[str, Any]] = {}
    envelope = _record(json.loads(text), named) or {}
    blocks = []
    for field in envelope.get("fields", ()):
        row = _record(field["type"], named)
        if row is not None and field["name"] in _ROWS:
            blocks.append({"field": field["name"], "fields": [_column(one) for one in row.get("fields", ())]})
    return {"fields": blocks}


def _record(schema: Any, named: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    """Return the record that a schema is or may be; one that was described before is found by its name."""
    for one in schema if isinstance(schema, list) else [schema]:
        if isinstance(one, str) and one.rpartition(".")[2] in named:
            return named[one.rpartition(".")[2]]
        if isinstance(one, dict) and one.get("type") == "record":
            named[str(one["name"]).rpartition(".")[2]] = one
            return one
    return None


def _column(field: dict[str, Any]) -> dict[str, Any]:
    kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
    described = next((one for one in kinds if isinstance(one, dict)), {})
    # fastavro reads Avro's own logical types, so only those of connectors are left to be read.
    name = described.get("connect.name", "") if "logicalType" not in described else ""
    return {"field": field["name"], "name": name, "type": described.get("type")}

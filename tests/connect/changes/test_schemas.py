"""Schemas of Avro as connectors write them: what they say of the columns of a change."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import fastavro

from ematix_flow import CDC
from ematix_flow.connect.changes.decoder import ChangeDecoder, ChangeTable
from ematix_flow.connect.changes.schemas import ChangeReader
from ematix_flow.connect.formats.avro import AvroDecoder
from ematix_flow.connect.schema_registry.base import AVRO, Registry, Schema

if TYPE_CHECKING:
    from ematix_flow.connect.schema_registry.base import SchemaId

DECIMAL = {
    "type": "record",
    "namespace": "io.debezium.data",
    "name": "VariableScaleDecimal",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
    "connect.name": "io.debezium.data.VariableScaleDecimal",
}
BITS = {"type": "bytes", "connect.name": "io.debezium.data.Bits", "connect.parameters": {"length": "5"}}
DATE = {"type": "int", "connect.name": "io.debezium.time.Date"}
ROW = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "first", "type": ["null", DECIMAL]},
        {"name": "second", "type": ["null", "io.debezium.data.VariableScaleDecimal"]},
        {"name": "bits", "type": ["null", BITS]},
        {"name": "day", "type": DATE},
    ],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "op", "type": "string"},
    ],
}
FLAT = {**ROW, "fields": [*ROW["fields"], {"name": "__op", "type": "string"}]}  # type: ignore[misc]
VALUES = {
    "id": 1,
    "first": {"scale": 2, "value": b"\x7f"},
    "second": {"scale": -1, "value": b"\x05"},
    "bits": b"\x16",
    "day": 20454,
}
KINDS = (("id", "big_int"), ("first", "text"), ("second", "text"), ("bits", "text"), ("day", "text"))
EXPECTED = ["1", "1.27", "50", "10110", "2026-01-01"]


class OneSchema(Registry):
    """A registry that knows one schema, and no server."""

    def __init__(self, text: str) -> None:
        self.known = Schema(1, AVRO, text)

    @property
    def display_address(self) -> str:
        """Return nothing."""
        return ""

    def unframed(self, payload: bytes) -> tuple[SchemaId, bytes]:
        """Return the only schema and the message."""
        return 1, payload

    def framed(self, schema: SchemaId, body: bytes) -> bytes:
        """Return the message."""
        del schema
        return body

    def fetched(self, schema: SchemaId) -> Schema:
        """Return the only schema."""
        del schema
        return self.known

    def latest(self, subject: str) -> Schema:
        """Return the only schema."""
        del subject
        return self.known

    def register(self, subject: str, kind: str, text: str) -> Schema:
        """Return the only schema."""
        del subject, kind, text
        return self.known


def row_of(schema: dict[str, Any], message: dict[str, Any]) -> list[Any]:
    """Return the columns of the row that a message of Avro writes."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), message)
    reader = ChangeReader(AvroDecoder(OneSchema(json.dumps(schema))))
    decoded = ChangeDecoder(CDC(), ChangeTable("t", KINDS, ("id",)), reader).decode([body.getvalue()])
    assert decoded.wrong == [None]
    return [column.to_pylist()[0] for column in decoded.columns[: len(KINDS)]]


def test_columns_may_have_types_that_an_earlier_one_described() -> None:
    assert row_of(ENVELOPE, {"before": None, "after": VALUES, "op": "c"}) == EXPECTED


def test_a_flattened_row_has_its_types_too() -> None:
    assert row_of(FLAT, {**VALUES, "__op": "c"}) == EXPECTED

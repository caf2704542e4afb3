"""Schemas of Avro as connectors write them: what they say of the columns of a change."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from ematix_flow import CDC
from ematix_flow.connect.changes.decoder import ChangeDecoder, ChangeTable
from ematix_flow.connect.changes.message_list import MessageList
from ematix_flow.connect.changes.schemas import ChangeReader
from ematix_flow.connect.formats.avro import AvroDecoder
from ematix_flow.connect.schema_registry.base import AVRO, Registry, Schema
from ematix_flow.declare.table.types import Bytes, Numeric
from ematix_flow.engine.stream.sinks.new_columns import new_columns
from ematix_flow.plan.steps import OffsetRange

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
BYTE = {"type": "bytes", "connect.version": 1}
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


def written(schema: dict[str, Any], message: dict[str, Any]) -> tuple[ChangeReader, bytes]:
    """Return a message of Avro, and what reads it."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), message)
    return ChangeReader(AvroDecoder(OneSchema(json.dumps(schema)))), body.getvalue()


def row_of(schema: dict[str, Any], message: dict[str, Any]) -> list[Any]:
    """Return the columns of the row that a message of Avro writes."""
    reader, body = written(schema, message)
    decoded = ChangeDecoder(CDC(), ChangeTable("t", KINDS, ("id",)), reader).decode([body])
    assert decoded.wrong == [None]
    return [column.to_pylist()[0] for column in decoded.columns[: len(KINDS)]]


def test_columns_may_have_types_that_an_earlier_one_described() -> None:
    assert row_of(ENVELOPE, {"before": None, "after": VALUES, "op": "c"}) == EXPECTED


def test_a_flattened_row_has_its_types_too() -> None:
    assert row_of(FLAT, {**VALUES, "__op": "c"}) == EXPECTED


@pytest.mark.parametrize("connector", [{}, {"connect.name": "org.apache.kafka.connect.data.Decimal"}])
def test_a_decimal_of_avro_becomes_a_column_that_takes_it(connector: dict[str, Any]) -> None:
    price = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2, **connector}
    fields = [{"name": "id", "type": "long"}, {"name": "price", "type": ["null", price]}, {"name": "b", "type": BYTE}]
    row = {"type": "record", "name": "Value", "fields": fields}
    envelope = {**ENVELOPE, "fields": [{"name": "after", "type": row}, {"name": "op", "type": "string"}]}
    after = {"id": 1, "price": Decimal("12.34"), "b": b"\x01"}
    reader, body = written(envelope, {"after": after, "op": "c"})
    known = (("id", "big_int"),)
    lacking = ChangeDecoder(CDC(), ChangeTable("t", known, ("id",)), reader)
    added = new_columns(MessageList("m", [(body, "{}")]), OffsetRange("m", "{}", "{}"), lacking)
    assert {one.name: one.type for one in added} == {"price": Numeric(38, 18), "b": Bytes()}
    table = ChangeTable("t", (*known, *((str(one.name), one.type.kind) for one in added)), ("id",))
    decoded = ChangeDecoder(CDC(), table, reader).decode([body])
    assert decoded.wrong == [None]
    assert [column.to_pylist()[0] for column in decoded.columns[:3]] == ["1", "12.34", b"\x01"]

"""Types of columns that changes show: every digit of a number has room, and what is no exact number is a double."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ematix_flow import CDC
from ematix_flow.connect.changes.decoder import ChangeDecoder, ChangeTable
from ematix_flow.connect.changes.message_list import MessageList
from ematix_flow.declare.table.types import BigInt, Double, Numeric, Text
from ematix_flow.engine.stream.sinks.new_columns import new_columns
from ematix_flow.plan.steps import OffsetRange

if TYPE_CHECKING:
    from ematix_flow.declare.table.types import ColumnType

DECIMAL = {"name": "org.apache.kafka.connect.data.Decimal", "type": "bytes", "parameters": {"scale": "2"}}


def type_of(*written: str, schema: dict[str, object] | None = None) -> ColumnType:
    """Return the type of a column with values as JSON writes them."""
    payloads = [f'{{"op": "c", "after": {{"id": 1, "n": {one}}}}}' for one in written]
    if schema is not None:
        fields = json.dumps({"fields": [{"field": "after", "fields": [{"field": "n", **schema}]}]})
        payloads = [f'{{"schema": {fields}, "payload": {one}}}' for one in payloads]
    messages = [(one.encode(), "{}") for one in payloads]
    decoder = ChangeDecoder(CDC(), ChangeTable("t", (("id", "big_int"),), ("id",)))
    (column,) = new_columns(MessageList("m", messages), OffsetRange("m", "{}", "{}"), decoder)
    return column.type


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        (("1", "-9223372036854775807"), BigInt()),
        (("9223372036854775808",), Numeric(38, 0)),
        (("1", "-12345678901234567890"), Numeric(38, 0)),
        (("1.5",), Numeric(38, 18)),
        (("1234567890123456.7891", "2"), Numeric(38, 18)),
        (("123456789012345678901234567890.25",), Numeric(38, 8)),
        (("0.1234567890123456789012345",), Numeric(38, 25)),
        (("0.1234567890123456789012345", "12345678901234.5"), Text()),
        ((f"0.{'1' * 31}",), Text()),
        (("1" * 39,), Text()),
        (("1" * 5000,), Text()),
        (("1.5", "1.0E7"), Double()),
        (("1", "1e-3"), Double()),
        (("1.5", '"NaN"'), Text()),
    ],
)
def test_a_number_has_room_for_all_its_digits(written: tuple[str, ...], kind: ColumnType) -> None:
    assert type_of(*written) == kind


def test_a_schema_says_what_a_number_is() -> None:
    assert type_of("1.5", schema={"type": "double"}) == Double()
    assert type_of("1", schema={"type": "float"}) == Double()
    assert type_of('"AQ=="', schema=DECIMAL) == Numeric(38, 2)

"""Types of columns that changes show: every digit of a number has room, and what is no exact number is a double."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ematix_flow import CDC
from ematix_flow.connect.base.stream_source import MessagePartition
from ematix_flow.connect.changes.change import KEY, Semantic
from ematix_flow.connect.changes.decoder import ChangeDecoder, ChangeTable
from ematix_flow.connect.changes.message_list import MessageList
from ematix_flow.connect.changes.values import converted
from ematix_flow.declare.table.types import BigInt, Bytes, Date, Double, Numeric, Text, Timestamp, TimestampTZ
from ematix_flow.engine.stream.sinks.new_columns import _type_of, new_columns
from ematix_flow.plan.steps import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.connect.base.stream_source import Position
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


@pytest.mark.parametrize(
    ("written", "name", "base", "kind", "value"),
    [
        ("3600000000", "io.debezium.time.MicroTime", "int64", Text(), "01:00:00.000000"),
        ("3600000", "org.apache.kafka.connect.data.Time", "int32", Text(), "01:00:00.000000"),
        ('{"scale": 2, "value": "BNI="}', "io.debezium.data.VariableScaleDecimal", "struct", Numeric(38, 18), "12.34"),
        ('"BNI="', "", "bytes", Bytes(), b"\x04\xd2"),
        ("3", "io.debezium.time.Date", "int32", Date(), "1970-01-04"),
    ],
)
def test_a_column_takes_the_values_that_its_schema_describes(
    written: str, name: str, base: str, kind: ColumnType, value: str | bytes
) -> None:
    schema = {"type": base, **({"name": name} if name else {})}
    assert type_of(written, schema=schema) == kind
    assert converted(json.loads(written), kind.kind, Semantic(name or base)) == value


def test_a_schema_of_avro_reads_values_that_are_no_json() -> None:
    assert _type_of(b"\x01", None) == Bytes()
    assert _type_of(datetime(2026, 1, 1, tzinfo=UTC), None) == TimestampTZ()
    assert _type_of(datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None), None) == Timestamp()
    assert _type_of(date(2026, 1, 1), None) == Date()
    assert _type_of(time(12), None) == Text()
    assert _type_of(Decimal("1.50"), None) == Numeric(3, 2)


def test_names_that_differ_only_in_case_are_one_column() -> None:
    rows = ('{"id": 1, "Colour": "red"}', '{"id": 2, "colour": "blue", "Colour": "green"}')
    messages = MessageList("m", [(f'{{"op": "c", "after": {one}}}'.encode(), "{}") for one in rows])
    decoder = ChangeDecoder(CDC(), ChangeTable("t", (("id", "big_int"),), ("id",)))
    assert [one.name for one in new_columns(messages, OffsetRange("m", "{}", "{}"), decoder)] == ["Colour"]


class Keyed(MessageList):
    """Messages of which each has a key of its own."""

    def plan_partitions(self, begin: Position, end: Position, requested: Sequence[str]) -> tuple[MessagePartition, ...]:
        """Return the messages with the columns that are requested."""
        assert tuple(requested) == (KEY,)
        (plain,) = super().plan_partitions(begin, end, ())
        keys = pa.array(['{"id": 1}'])
        return (MessagePartition(plain.label, 1, lambda: (one.append_column(KEY, keys) for one in plain.read())),)


def test_a_row_may_have_its_key_in_the_key_of_its_message() -> None:
    decoder = ChangeDecoder(CDC(), ChangeTable("t", (("id", "big_int"),), ("id",)), keyed=True)
    messages = Keyed("m", [(b'{"op": "u", "after": {"n": 1}}', "{}")])
    assert [one.name for one in new_columns(messages, OffsetRange("m", "{}", "{}"), decoder)] == ["n"]

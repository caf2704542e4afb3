from __future__ import annotations

import pickle
from base64 import b64encode
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, json_format
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ematix_flow.connect.formats.protobuf import ProtobufDecoder, ProtobufEncoder
from ematix_flow.connect.formats.protobuf_schema import compiled
from ematix_flow.connect.schema_registry.base import PROTOBUF
from ematix_flow.connect.schema_registry.confluent import ConfluentRegistry
from ematix_flow.errors import RunError
from tests.connect.registries import registry_at

if TYPE_CHECKING:
    from ematix_flow.connect.schema_registry.base import Registry, Schema
    from tests.services.registry import RegistryServer

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("registry")]

EVERY = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/duration.proto";
import "google/type/date.proto";
import "confluent/type/decimal.proto";
enum Colour { RED = 0; BLUE = 5; }
message Every {
  int32 i = 1; sint64 l = 2; uint64 u = 3; fixed32 x = 4; float f = 5; double d = 6; bool b = 7;
  string s = 8; bytes y = 9; Colour e = 10; optional int32 unset = 11; int32 zero = 12;
  google.protobuf.Timestamp at = 13; google.protobuf.Int64Value wrapped = 14; google.protobuf.Int64Value none = 15;
  google.protobuf.Struct any = 16; google.protobuf.Duration took = 17; google.type.Date day = 18;
  confluent.type.Decimal price = 19; repeated string tags = 20; map<int32, Inner> inner = 21; Inner one = 22;
  oneof either { string left = 23; string right = 24; }
  message Inner { int64 id = 1; optional bytes raw = 2; }
}
message Second { string id = 1; message Deep { int64 n = 1; } }
"""
GIVEN = {
    "i": -7, "l": -(2**62), "u": 2**64 - 1, "x": 4, "f": 0.25, "d": 1.5, "b": True, "s": "ä", "y": "AP8=", "e": "BLUE",
    "at": "2026-01-02T03:04:05.678901Z", "wrapped": 9, "any": {"k": [1.5, None, {"z": "t"}]}, "took": "90.5s",
    "day": {"year": 2026, "month": 2, "day": 3}, "price": {"value": b64encode((-1250).to_bytes(2, "big", signed=True)).decode(),
    "scale": 3}, "tags": ["a", "b"], "inner": {"1": {"id": 2}}, "one": {"id": 3, "raw": "AA=="}, "right": "r",
}  # fmt: skip
COLUMNS = {
    "i": ("integer", "-7"), "l": ("big_int", str(-(2**62))), "u": ("numeric", str(2**64 - 1)), "x": ("big_int", "4"),
    "f": ("float", 0.25), "d": ("double", 1.5), "b": ("boolean", "true"), "s": ("text", "ä"), "y": ("bytes", b"\0\xff"),
    "e": ("text", "BLUE"), "unset": ("integer", None), "zero": ("integer", "0"), "took": ("text", "90.5s"),
    "at": ("timestamp_tz", "2026-01-02T03:04:05.678901Z"), "wrapped": ("big_int", "9"), "none": ("big_int", None),
    "any": ("json", '{"k":[1.5,null,{"z":"t"}]}'), "day": ("date", "2026-02-03"), "price": ("numeric", "-1.250"),
    "tags": ("json", '["a","b"]'), "inner": ("jsonb", '{"1":{"id":2,"raw":null}}'),
    "one": ("text", '{"id":3,"raw":"AA=="}'), "left": ("text", None), "right": ("text", "r"), "absent": ("text", None),
}  # fmt: skip


@pytest.fixture
def registry(registry_server: RegistryServer) -> Registry:
    return registry_at(registry_server.url)


@pytest.fixture
def subject(registry_server: RegistryServer) -> str:
    return registry_server.subject()


def message(schema: Schema, values: dict[str, Any], path: tuple[int, ...] = (0,), head: bytes = b"\0") -> bytes:
    """Return a message whose beginning is written by hand."""
    message_value = json_format.ParseDict(values, compiled(schema).at(path)())
    return b"\0" + int(schema.id).to_bytes(4, "big") + head + bytes(message_value.SerializeToString())


def test_every_type_lands_in_its_column(registry: Registry, subject: str) -> None:
    schema = registry.register(subject, PROTOBUF, EVERY)
    decoder = ProtobufDecoder(registry, tuple((name, kind) for name, (kind, _) in COLUMNS.items()))
    decoded = pickle.loads(pickle.dumps(decoder)).decode([message(schema, GIVEN)])  # noqa: S301 - as it travels to tasks
    assert decoded.wrong == [None]
    values = {name: array[0].as_py() for name, array in zip(COLUMNS, decoded.columns, strict=True)}
    assert values == {name: expected for name, (_, expected) in COLUMNS.items()}


@pytest.mark.parametrize(
    "text", ["1234567890123456789012345678901234567.89", "-99999999999999999999999999999999999999", "1E+3"]
)
def test_decimals_keep_every_digit(registry: Registry, subject: str, text: str) -> None:
    sign, digits, exponent = Decimal(text).as_tuple()
    number = int("".join(map(str, digits))) * (-1) ** sign
    price = {"value": b64encode(number.to_bytes(17, "big", signed=True)).decode(), "scale": -int(exponent)}
    schema = registry.register(subject, PROTOBUF, EVERY)
    read = ProtobufDecoder(registry).read(message(schema, {"price": price}))
    assert isinstance(read, dict)
    assert str(read["price"]) == text


def test_a_decimal_that_no_memory_could_hold_is_a_bad_message(registry: Registry, subject: str) -> None:
    schema = registry.register(subject, PROTOBUF, EVERY)
    price = {"value": "AQ==", "scale": 2**31 - 1}
    assert "a scale of 2147483647" in str(ProtobufDecoder(registry).read(message(schema, {"price": price})))


def test_a_message_says_which_one_of_its_file_it_is(registry: Registry, subject: str) -> None:
    schema, read = registry.register(subject, PROTOBUF, EVERY), ProtobufDecoder(registry).read
    assert read(message(schema, {"id": "x"}, (1,), b"\2\2")) == {"id": "x"}
    assert read(message(schema, {"n": "4"}, (1, 0), b"\4\2\0")) == {"n": 4}
    assert isinstance(read(message(schema, {"id": "x"}, (1,), b"\2\x08")), str)
    assert isinstance(read(message(schema, {"id": "x"}, (1,), b"\1")), str)


def test_what_a_schema_imports_is_found_in_the_registry(registry_server: RegistryServer, subject: str) -> None:
    registry = registry_at(registry_server.url)
    assert isinstance(registry, ConfluentRegistry)
    registry.register(f"{subject}-part", PROTOBUF, 'syntax = "proto3"; package p; message Part { int64 n = 1; }')
    text = 'syntax = "proto3"; import "parts/part.proto"; message Whole { p.Part part = 1; }'
    reference = {"name": "parts/part.proto", "subject": f"{subject}-part", "version": 1}
    body = {"schema": text, "schemaType": PROTOBUF, "references": [reference]}
    registered = registry._request(f"/subjects/{subject}/versions", body)
    assert registered is not None
    schema = registry.schema(registered["id"])
    assert schema is not None
    assert ProtobufDecoder(registry).read(message(schema, {"part": {"n": 8}})) == {"part": {"n": 8}}


def test_a_schema_may_be_a_descriptor(registry: Registry, subject: str) -> None:
    file = descriptor_pb2.FileDescriptorProto(
        name="o.proto", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    message_type = file.message_type.add(name="Order")
    message_type.field.add(name="id", number=1, type=3, label=1)
    message_type.field.add(name="at", number=2, type=11, label=1, type_name=".google.protobuf.Timestamp")
    schema = registry.register(subject, PROTOBUF, b64encode(file.SerializeToString()).decode())
    decoded = ProtobufDecoder(registry).read(message(schema, {"id": 5, "at": "1970-01-01T00:00:01Z"}))
    assert decoded == {"id": 5, "at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)}


def test_a_broken_message_says_why_and_its_neighbours_are_read(registry: Registry, subject: str) -> None:
    schema = registry.register(subject, PROTOBUF, 'syntax = "proto3"; message A { int64 id = 1; string s = 2; }')
    good = message(schema, {"id": 1, "s": "text"})
    bad = [
        good[:-1],
        good + b"\x0c",
        good + b"\x28\1",
        b"\1" + good[1:],
        b"\0\x7f\xff\xff\xff\0",
        good[:5],
        good[:-1] + b"\xff",
    ]
    decoded = ProtobufDecoder(registry, (("id", "big_int"),)).decode([good, *bad, good])
    assert decoded.columns[0].to_pylist() == ["1", *[None] * len(bad), "1"]
    assert [error is None for error in decoded.wrong] == [True, *[False] * len(bad), True]
    assert "fields that the schema lacks" in str(decoded.wrong[3])
    assert "unknown schema 2147483647" in str(decoded.wrong[5])


def test_a_schema_that_does_not_compile_is_told_with_every_message(registry: Registry, subject: str) -> None:
    registered = registry.register(
        subject, PROTOBUF, 'syntax = "proto3"; import "no/such.proto"; message A { no.Such a = 1; }'
    )
    decoded = ProtobufDecoder(registry).read(registry.framed(registered.id, b"\0"))
    assert isinstance(decoded, str)
    assert "no/such.proto" in decoded


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(junk=st.binary(max_size=40))
def test_no_bytes_can_stop_a_stream(registry: Registry, junk: bytes) -> None:
    known = registry.register("t-proto-junk-value", PROTOBUF, EVERY)
    assert isinstance(ProtobufDecoder(registry).read(registry.framed(known.id, junk)), str | dict)


def test_rows_without_a_schema_get_one_and_come_back(registry: Registry, subject: str) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
    rows = pa.table({
        "id": pa.array([2**63 - 1, None], pa.int64()), "d": [0.1, None], "b": [False, None], "s": ["", None],
        "raw": [b"\0\xff", None], "at": [at, None], "day": [date(2026, 1, 2), None], "n": [Decimal("1.50"), None],
        "doc": [{"a": [1]}, None], "never": pa.nulls(2),
    })  # fmt: skip
    encoder = ProtobufEncoder(registry, subject)
    read = [ProtobufDecoder(registry).read(one) for one in encoder.encode(rows)]
    first = {"id": 2**63 - 1, "d": 0.1, "b": False, "s": "", "raw": b"\0\xff", "at": at}
    assert read == [
        first | {"day": "2026-01-02", "n": "1.50", "doc": '{"a":[1]}'},
        dict.fromkeys(rows.column_names[:-1]),
    ]
    with pytest.raises(RunError, match="has no field 'never'"):
        encoder.encode(pa.table({"never": [1]}))
    with pytest.raises(RunError, match="does not fit the newest schema"):
        encoder.encode(pa.table({"id": ["one"]}))


def test_rows_are_written_with_a_schema_that_somebody_else_made(registry: Registry, subject: str) -> None:
    registry.register(subject, PROTOBUF, EVERY)
    rows = pa.table(
        {
            "i": [1],
            "e": ["BLUE"],
            "one": [{"id": 3, "raw": b"\0"}],
            "tags": [["a"]],
            "u": pa.array([2**63], pa.uint64()),
            "d": [1],
        }
    )
    (encoded,) = ProtobufEncoder(registry, subject).encode(rows)
    read = ProtobufDecoder(registry).read(encoded)
    assert isinstance(read, dict)
    assert {name: read[name] for name in rows.column_names} == {
        "i": 1, "e": "BLUE", "one": {"id": 3, "raw": b"\0"}, "tags": ["a"], "u": 2**63, "d": 1.0,
    }  # fmt: skip

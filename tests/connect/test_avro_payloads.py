from __future__ import annotations

import json
import pickle
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ematix_flow.connect.formats.avro import AvroDecoder, AvroEncoder
from ematix_flow.errors import RunError
from tests.connect.registries import avro_messages, record, registry_at

if TYPE_CHECKING:
    from ematix_flow.connect.schema_registry.base import Registry
    from tests.services.registry import RegistryServer

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("registry")]

SOME_UUID = UUID("2b0e3c1a-7c55-4f0e-9c5e-00000000abcd")
INSTANT = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)


@pytest.fixture
def registry(registry_server: RegistryServer) -> Registry:
    return registry_at(registry_server.url)


@pytest.fixture
def subject(registry_server: RegistryServer) -> str:
    return registry_server.subject()


def logical(of: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": of, "logicalType": name, **more}


EVERY = (
    ("i", "int", 7, "integer", "7"),
    ("l", "long", -(2**63), "big_int", str(-(2**63))),
    ("f", "float", 0.25, "float", 0.25),
    ("d", "double", float("inf"), "double", float("inf")),
    ("b", "boolean", True, "boolean", "true"),
    ("s", "string", "ä\0", "text", "ä\0"),
    ("y", "bytes", b"\0\xff", "bytes", b"\0\xff"),
    ("x", {"type": "fixed", "name": "F", "size": 2}, b"\1\2", "bytes", b"\1\2"),
    ("e", {"type": "enum", "name": "E", "symbols": ["RED", "BLUE"]}, "BLUE", "text", "BLUE"),
    ("n", logical("bytes", "decimal", precision=38, scale=3), Decimal("-1.250"), "numeric", "-1.250"),
    ("u", logical("string", "uuid"), SOME_UUID, "uuid", str(SOME_UUID)),
    ("day", logical("int", "date"), date(1969, 12, 31), "date", "1969-12-31"),
    ("t", logical("int", "time-millis"), time(1, 2, 3), "text", "01:02:03"),
    ("ms", logical("long", "timestamp-millis"), INSTANT, "timestamp_tz", "2026-01-02T03:04:05.678000Z"),
    ("us", logical("long", "timestamp-micros"), INSTANT, "timestamp", "2026-01-02T03:04:05.678901Z"),
    ("ns", logical("long", "timestamp-nanos"), 1_000_001_999, "timestamp_tz", "1970-01-01T00:00:01.000001Z"),
    ("ls", logical("long", "local-timestamp-micros"), INSTANT, "timestamp", "2026-01-02T03:04:05.678901"),
    ("o", ["null", "long"], None, "big_int", None),
    ("v", ["null", "long", "string"], "text", "text", "text"),
    ("m", {"type": "map", "values": "long"}, {"k": 1}, "json", '{"k":1}'),
    ("a", {"type": "array", "items": ["null", "double"]}, [1.5, None], "jsonb", "[1.5,null]"),
    ("r", {"type": "record", "name": "In", "fields": [{"name": "q", "type": "bytes"}]}, {"q": b"\0"}, "text", '{"q":"AA=="}'),
)  # fmt: skip


def test_every_type_lands_in_its_column(registry: Registry, subject: str) -> None:
    schema = record(*((name, kind) for name, kind, *_ in EVERY))
    messages = avro_messages(registry, subject, schema, [{name: value for name, _, value, *_ in EVERY}])
    decoder = AvroDecoder(registry, tuple((name, kind) for name, _, _, kind, _ in EVERY))
    decoded = pickle.loads(pickle.dumps(decoder)).decode(messages)  # noqa: S301 - as it travels to tasks
    values = {field.name: array[0].as_py() for field, array in zip(decoder.schema, decoded.columns, strict=True)}
    assert decoded.wrong == [None]
    assert values == {name: expected for name, _, _, _, expected in EVERY}


def test_messages_of_several_schemas_are_read_together(registry: Registry, subject: str) -> None:
    old = avro_messages(registry, subject, record(("id", "long"), ("old", "string")), [{"id": 1, "old": "x"}])
    more = record(("id", "long"), ("old", "string"), ("new", ["null", "int"], {"default": None}))
    added = avro_messages(registry, subject, more, [{"id": 2, "old": "y", "new": 5}])
    dropped = avro_messages(registry, subject, record(("id", "string")), [{"id": "3"}])
    decoder = AvroDecoder(registry, (("id", "big_int"), ("old", "text"), ("new", "integer"), ("never", "bytes")))
    decoded = decoder.decode([*added, *old, *dropped, *added])
    assert [array.to_pylist() for array in decoded.columns] == [
        ["2", "1", "3", "2"],
        ["y", "x", None, "y"],
        ["5", None, None, "5"],
        [None] * 4,
    ]
    assert decoded.wrong == [None] * 4


def test_a_broken_message_says_why_and_its_neighbours_are_read(registry: Registry, subject: str) -> None:
    (good,) = avro_messages(registry, subject, record(("id", "long"), ("s", "string")), [{"id": 1, "s": "text"}])
    (other,) = avro_messages(registry, subject + "-o", '"string"', ["only a text"])  # type: ignore[list-item]
    (raw,) = avro_messages(registry, subject + "-r", record(("s", "bytes")), [{"s": b"\xff"}])
    bad = [b"", b"\0\0\0", b"\1" + good[1:], b"\0\x7f\xff\xff\xff" + good[5:], good[:-1], good + b"\0", other, raw]
    decoder = AvroDecoder(registry, (("id", "big_int"), ("s", "text")))
    decoded = decoder.decode([good, *bad, good])
    assert decoded.columns[0].to_pylist() == ["1", *[None] * len(bad), "1"]
    assert decoded.wrong[0] is decoded.wrong[-1] is None
    for error, part in zip(
        decoded.wrong[1:-1],
        ("too few", "too few", "magic byte 1", "unknown schema 2147483647", "Expected 4 bytes", "1 byte left over",
         "not of a record", "s: bytes cannot become text"),
        strict=True,
    ):  # fmt: skip
        assert error is not None
        assert part in error


def test_a_schema_of_another_format_is_no_avro(registry: Registry, subject: str) -> None:
    registered = registry.register(subject, "PROTOBUF", 'syntax = "proto3"; message A { int64 id = 1; }')
    assert (
        AvroDecoder(registry).read(registry.framed(registered.id, b"\0"))
        == f"schema {registered.id} is PROTOBUF, not AVRO"
    )


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(junk=st.binary(max_size=40))
def test_no_bytes_can_stop_a_stream(registry: Registry, junk: bytes) -> None:
    schema = record(*((name, kind) for name, kind, *_ in EVERY))
    known = registry.register("t-junk-value", "AVRO", schema)
    assert isinstance(AvroDecoder(registry).read(registry.framed(known.id, junk)), str | dict)


VALUES = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "text": st.none() | st.text(),
        "double": st.none() | st.floats(allow_nan=False),
        "yes": st.none() | st.booleans(),
        "raw": st.none() | st.binary(),
        "day": st.none() | st.dates(),
        "at": st.none() | st.datetimes(timezones=st.just(UTC)),
        "local": st.none() | st.datetimes(),
        "n": st.none() | st.decimals(-(10**30), 10**30, places=5),
    }
)
TYPES = pa.schema(
    {"id": pa.int64(), "text": pa.string(), "double": pa.float64(), "yes": pa.bool_(), "raw": pa.binary(),
     "day": pa.date32(), "at": pa.timestamp("us", "UTC"), "local": pa.timestamp("us"), "n": pa.decimal128(38, 5)}
)  # fmt: skip


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(VALUES, min_size=1, max_size=5))
def test_rows_come_back_as_they_were_written(registry: Registry, rows: list[dict[str, Any]]) -> None:
    messages = AvroEncoder(registry, "t-round-value").encode(pa.Table.from_pylist(rows, TYPES))
    read = [AvroDecoder(registry).read(message) for message in messages]
    assert [{name: one.get(name) for name in TYPES.names} for one in read if isinstance(one, dict)] == rows


def test_rows_without_a_schema_get_one_that_grows_with_them(registry: Registry, subject: str) -> None:
    encoder = AvroEncoder(registry, subject)
    assert encoder.encode(pa.table({"id": pa.array([], pa.int64())})) == []
    assert registry.latest(subject) is None, "no row says what the schema is"
    (first,) = encoder.encode(pa.table({"id": [1], "doc": [{"a": 1}], "later": pa.nulls(1)}))
    latest = registry.latest(subject)
    assert latest is not None
    assert [field["name"] for field in json.loads(latest.text)["fields"]] == ["id", "doc"]
    (second,) = encoder.encode(pa.table({"id": [2], "later": [0.5]}))
    (third,) = encoder.encode(pa.table({"id": [3]}))
    read = AvroDecoder(registry).read
    assert [read(one) for one in (first, second, third)] == [
        {"id": 1, "doc": '{"a":1}'},
        {"id": 2, "doc": None, "later": 0.5},
        {"id": 3, "doc": None, "later": None},
    ]


def test_without_leave_to_register_nothing_is_added(registry_server: RegistryServer, subject: str) -> None:
    strict = registry_at(registry_server.url, auto_register=False)
    with pytest.raises(RunError, match="has no subject") as caught:
        AvroEncoder(strict, subject).encode(pa.table({"id": [1]}))
    assert "auto_register" in str(caught.value)
    assert strict.latest(subject) is None
    strict.register(subject, "AVRO", record(("id", "long")))
    assert len(AvroEncoder(strict, subject).encode(pa.table({"id": [1, 2]}))) == 2
    with pytest.raises(RunError, match="has no field 'more'"):
        AvroEncoder(strict, subject).encode(pa.table({"id": [1], "more": ["x"]}))


def test_a_row_that_does_not_fit_its_schema_is_refused(registry: Registry, subject: str) -> None:
    encoder = AvroEncoder(registry, subject)
    encoder.encode(pa.table({"id": [1]}))
    with pytest.raises(RunError, match="does not fit the newest schema"):
        encoder.encode(pa.table({"id": ["one"]}))
    with pytest.raises(RunError, match="cannot have a field 'a b'"):
        encoder.encode(pa.table({"a b": [1]}))

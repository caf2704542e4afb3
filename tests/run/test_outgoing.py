from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ematix_flow.connect.base.stream_source import MESSAGE_OFFSET, VALUE, MessagePartition
from ematix_flow.connect.formats.encoders import JsonEncoder, RawEncoder
from ematix_flow.errors import RunError
from ematix_flow.run.read.infer_messages import TypedRows
from ematix_flow.run.send.messages import Ids, encoded, key_of, passed_on

if TYPE_CHECKING:
    from ematix_flow.run.send.messages import Outgoing

IDS = Ids("stream")


def partition(*payloads: bytes | None, keys: list[str | None] | None = None) -> MessagePartition:
    columns: dict[str, Any] = {VALUE: pa.array(payloads, pa.binary())}
    if keys is not None:
        columns["_key"] = pa.array(keys, pa.string())
    columns[MESSAGE_OFFSET] = pa.array([f"place {n}" for n in range(len(payloads))])
    return MessagePartition("topic/0", len(payloads), lambda: iter([pa.table(columns)]))


def keys_and_values(outgoing: Outgoing) -> list[tuple[bytes | None, bytes | None]]:
    return [(message.key, message.value) for message in outgoing.messages]


def test_objects_without_nulls_keep_every_byte() -> None:
    text = '{ "a" : 12345678901234567890.10, "b": {"c": null}, "ü": "\\u00fc" }'.encode()
    assert keys_and_values(passed_on([partition(text)], None, IDS, objects=True)) == [(None, text)]


def test_null_fields_are_left_out_and_numbers_stay_as_written() -> None:
    outgoing = passed_on([partition(b'{"a": 1.10, "n": null, "b": [1e3, null], "k": "x"}')], "k", IDS, objects=True)
    assert keys_and_values(outgoing) == [(b"x", b'{"a":1.10,"b":[1e3,null],"k":"x"}')]


@pytest.mark.parametrize(
    ("value", "key"),
    [("7", b"7"), ('"7"', b"7"), ("null", None), ("true", b"true"), ('{"a":1}', b'{"a":1}'), ("1.50", b"1.50")],
)
def test_a_field_is_the_key(value: str, key: bytes | None) -> None:
    outgoing = passed_on([partition(f'{{"k":{value},"z":1}}'.encode())], "k", IDS, objects=True)
    assert outgoing.messages[0].key == key


def test_what_is_no_object_is_rejected_with_its_place() -> None:
    broken = [b"[1]", b'{"a":', b"\xff", b'{"a":1,"a":2}', b'{"n":null,"a":"\\ud800"}']
    outgoing = passed_on([partition(b'{"a":1}', *broken)], None, IDS, objects=True)
    assert keys_and_values(outgoing) == [(None, b'{"a":1}')]
    assert outgoing.rejects is not None
    assert outgoing.rejects.column("source_position").to_pylist() == [f"place {n}" for n in range(1, 6)]


def test_bytes_are_passed_on_unread() -> None:
    outgoing = passed_on([partition(b"\xff\x00", b"", keys=["a", None])], "_key", IDS, objects=False)
    assert keys_and_values(outgoing) == [(b"a", b"\xff\x00"), (None, b"")]


def test_a_missing_payload_is_passed_on_with_its_key_only() -> None:
    outgoing = passed_on([partition(None, None, keys=["gone", None])], "_key", IDS, objects=True)
    assert keys_and_values(outgoing) == [(b"gone", None)]


def test_ids_are_those_of_the_place_and_the_stream() -> None:
    first = passed_on([partition(b"{}", b"{}")], None, IDS, objects=True).messages
    again = passed_on([partition(b"{}", b"{}")], None, IDS, objects=True).messages
    other = passed_on([partition(b"{}", b"{}")], None, Ids("other"), objects=True).messages
    assert [one.id for one in first] == [one.id for one in again]
    assert len({one.id for one in (*first, *other)}) == 4


def test_rows_are_objects_without_their_nulls() -> None:
    rows = pa.table({
        "i": pa.array([1, None]), "d": pa.array([Decimal("1.10"), None]), "t": pa.array(['a"b', None]),
        "s": pa.array([{"x": 1, "y": None}, None]), "l": pa.array([[1, 2], None]), MESSAGE_OFFSET: ["p0", "p1"],
    })  # fmt: skip
    outgoing = encoded(TypedRows(rows), JsonEncoder(), "t", IDS)
    expected = rb'{"i":1,"d":1.10,"t":"a\"b","s":{"x": 1},"l":[1, 2]}'
    assert keys_and_values(outgoing) == [(b'a"b', expected), (None, b"{}")]
    assert [one.id for one in outgoing.messages] == [IDS.of("p0"), IDS.of("p1")]


def test_instants_are_written_in_one_form() -> None:
    at = datetime(2026, 2, 28, 1, 2, 3, 500000, UTC)
    rows = pa.table({
        "zoned": pa.array([at], pa.timestamp("ms", "Europe/Berlin")),
        "plain": pa.array([at.replace(tzinfo=None)], pa.timestamp("ns")),
        "day": pa.array([at.date()]), "none": pa.nulls(1), "raw": pa.array([b"\xff"]),
    })  # fmt: skip
    (message,) = encoded(TypedRows(rows), JsonEncoder(), None, IDS).messages
    expected = (
        b'{"zoned":"2026-02-28T01:02:03.500000Z","plain":"2026-02-28T01:02:03.500000","day":"2026-02-28","raw":"ff"}'
    )
    assert message.value == expected


def test_values_in_documents_are_written_as_beside_them() -> None:
    at = datetime(2026, 2, 28, 1, 2, 3, 500000, UTC)
    parts = {"d": Decimal("1.50"), "raw": b"\x00\xff", "at": at, "day": at.date(), "x": float("nan"), "t": 'a"b'}
    rows = pa.table({
        "s": [parts], "l": [[Decimal("0.10"), None]],
        "m": pa.array([[("k", {"n": 1})]], pa.map_(pa.string(), pa.struct([("n", pa.int64())]))),
        "days": pa.array([[(at.date(), 1)]], pa.map_(pa.date32(), pa.int64())),
    })  # fmt: skip
    (message,) = encoded(TypedRows(rows), JsonEncoder(), None, IDS).messages
    assert message.value == (
        b'{"s":{"d": 1.50, "raw": "00ff", "at": "2026-02-28T01:02:03.500000Z", "day": "2026-02-28", "x": "NaN",'
        b' "t": "a\\"b"},"l":[0.10, null],"m":{"k": {"n": 1}},"days":{"2026-02-28": 1}}'
    )


def test_hidden_columns_are_keys_only() -> None:
    rows = pa.table({"a": [1], "_key": ["k"], MESSAGE_OFFSET: ["p"]})
    assert keys_and_values(encoded(TypedRows(rows), JsonEncoder(), "_key", IDS, hidden=["_key"])) == [
        (b"k", b'{"a":1}')
    ]
    assert keys_and_values(encoded(TypedRows(rows.drop_columns(["a"])), JsonEncoder(), None, IDS, hidden=["_key"])) == [
        (None, b"{}")
    ]


def test_rows_without_places_are_known_by_their_stretch() -> None:
    rows = TypedRows(pa.table({"a": [1, 2]}))
    one, two = (encoded(rows, JsonEncoder(), None, IDS, batch).messages for batch in ("0-2", "2-4"))
    assert len({message.id for message in (*one, *two)}) == 4
    assert encoded(rows, JsonEncoder(), None, IDS, "0-2").messages == one


def test_raw_payloads_are_one_column() -> None:
    assert keys_and_values(encoded(TypedRows(pa.table({"v": [b"\xff"]})), RawEncoder(), None, IDS)) == [(None, b"\xff")]
    with pytest.raises(RunError, match="one column, not 2: a, b"):
        encoded(TypedRows(pa.table({"a": [1], "b": [2]})), RawEncoder(), None, IDS)


def test_a_key_that_no_row_has_is_named() -> None:
    with pytest.raises(RunError, match="no column 'idd'") as error:
        encoded(TypedRows(pa.table({"id": [1]})), JsonEncoder(), "idd", IDS)
    assert "did you mean 'id'" in str(error.value)


def test_keys_are_bytes_text_or_json() -> None:
    assert [key_of(value) for value in (None, b"\xff", "ü", 5, True)] == [None, b"\xff", "ü".encode(), b"5", b"true"]

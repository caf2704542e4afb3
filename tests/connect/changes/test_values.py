"""Values that connectors encode: bits, and decimals with a scale of their own; what nobody can read is refused."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from ematix_flow import CDC
from ematix_flow.connect.changes import alike
from ematix_flow.connect.changes.change import ChangeError, Semantic
from ematix_flow.connect.changes.decoder import ChangeDecoder, ChangeTable
from ematix_flow.connect.changes.values import BITS, DECIMAL, converted
from ematix_flow.connect.formats.json_lines import Number

VARIABLE = "io.debezium.data.VariableScaleDecimal"


def based(*raw: int) -> str:
    """Return bytes as JSON has them."""
    return base64.b64encode(bytes(raw)).decode()


@pytest.mark.parametrize(
    ("raw", "length", "kind", "expected"),
    [
        ((0x16,), 5, "text", "10110"),
        ((0x01, 0x02), 10, "string", "1000000001"),
        ((0x01, 0x02), 0, "text", "0000001000000001"),
        ((0x05,), 2**31 - 1, "text", "00000101"),
        ((0x01, 0x02), 10, "integer", "513"),
        ((0x01, 0x02), 10, "numeric", "513"),
        ((0xFF,) * 8, 64, "numeric", str(2**64 - 1)),
        ((0x00, 0x01), 9, "boolean", "true"),
        ((0x00, 0x00), 9, "boolean", "false"),
        ((0x01, 0x02), 10, "bytes", b"\x01\x02"),
        ((), 5, "text", "0"),
    ],
)
def test_bits_begin_with_the_least_one(raw: tuple[int, ...], length: int, kind: str, expected: object) -> None:
    semantic = Semantic(BITS, length=length)
    assert converted(based(*raw), kind, semantic) == converted(bytes(raw), kind, semantic) == expected


@pytest.mark.parametrize("tries", [0, alike.TRIES])
def test_bits_are_the_same_in_messages_that_are_alike(tries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alike, "TRIES", tries)
    columns = [{"field": name, "type": "bytes", "name": BITS, "parameters": {"length": "12"}} for name in "tnb"]
    schema = {"fields": [{"field": "after", "fields": columns}]}
    rows = [{"id": 1, "t": based(3, 8), "n": based(3, 8), "b": based(0, 8)}, {"id": 2, "t": None, "n": "", "b": None}]
    messages = [{"schema": schema, "payload": {"op": "c", "after": one, "source": {"lsn": 1}}} for one in rows]
    kinds = (("id", "big_int"), ("t", "text"), ("n", "big_int"), ("b", "boolean"))
    decoder = ChangeDecoder(CDC(), ChangeTable("t", kinds, ("id",)))
    decoded = decoder.decode([json.dumps(one).encode() for one in messages])
    assert [column.to_pylist() for column in decoded.columns[1:4]] == [
        ["100000000011", None],
        ["2051", "0"],
        ["true", None],
    ]


@pytest.mark.parametrize(
    ("value", "kind", "semantic"),
    [
        ({"scale": None, "value": "AfQ="}, "numeric", Semantic(VARIABLE)),
        ({"scale": Number("3"), "value": None}, "numeric", Semantic(VARIABLE)),
        ({"scale": None, "value": None}, "numeric", None),
        ({"scale": "three", "value": "AfQ="}, "text", Semantic(VARIABLE)),
        ({"scale": {}, "value": []}, "numeric", None),
        ({"scale": Number("-999999999"), "value": "AfQ="}, "numeric", None),
        ("AfQ=", "numeric", Semantic(DECIMAL)),
        ({"a": 1}, "bytes", None),
        (Number("1234"), "bytes", None),
        (True, "bytes", None),
        (["AfQ="], "big_int", Semantic(BITS)),
        ("AfQ=ä", "bytes", None),
    ],
)
def test_what_nobody_can_read_is_refused(value: Any, kind: str, semantic: Semantic | None) -> None:
    with pytest.raises(ChangeError):
        converted(value, kind, semantic)


@pytest.mark.parametrize("parameters", [None, [], "2", {}, {"scale": None}, {"scale": "two"}, {"scale": [2]}])
def test_a_decimal_whose_schema_tells_no_scale_is_refused(parameters: Any) -> None:
    column = {"field": "n", "type": "bytes", "name": DECIMAL, "parameters": parameters}
    event = {"op": "c", "after": {"id": 1, "n": "AfQ="}, "source": {"lsn": 1}}
    message = {"schema": {"fields": [{"field": "after", "fields": [column]}]}, "payload": event}
    decoder = ChangeDecoder(CDC(), ChangeTable("t", (("id", "big_int"), ("n", "numeric")), ("id",)))
    [wrong] = decoder.decode([json.dumps(message).encode()]).wrong
    assert wrong is not None
    assert "(scale)" in wrong


@pytest.mark.parametrize(
    "schema", [5, [], {"fields": 5}, {"fields": [5, {"field": "after", "fields": 7}]}, {"fields": [{"name": ["x"]}]}]
)
def test_a_schema_that_is_none_says_nothing(schema: Any) -> None:
    message = {"schema": schema, "payload": {"op": "c", "after": {"id": 1}, "source": {"lsn": 1}}}
    decoder = ChangeDecoder(CDC(), ChangeTable("t", (("id", "big_int"),), ("id",)))
    decoded = decoder.decode([json.dumps(message).encode()])
    assert (decoded.columns[0].to_pylist(), decoded.wrong) == (["1"], [None])

"""Messages as rows in the types they show: what differs becomes text, what is no object is set apart, nothing is lost."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ematix_flow.connect.base.stream_source import PAYLOAD, format_payload, payload_of
from ematix_flow.run.read.infer_messages import (
    _exact_payload,
    documents,
    json_payload,
    raw_payload,
    rows_of_payloads,
)


def rows_of(*values: object) -> pa.Table:
    """Return the rows of values that are objects."""
    rows = rows_of_payloads([(json.dumps(value).encode(), "") for value in values], json_payload)
    assert rows.rejects is None
    return rows.rows


def test_values_have_the_type_they_share() -> None:
    rows = rows_of({"a": 1, "b": 1.5, "c": "x", "d": True}, {"a": 2, "b": 2, "e": None})
    assert [str(field.type) for field in rows.schema] == ["int64", "double", "string", "bool", "string"]
    assert rows.to_pylist()[1] == {"a": 2, "b": 2.0, "c": None, "d": None, "e": None}


def test_values_of_different_types_are_text() -> None:
    assert rows_of({"a": 1}, {"a": "x"}, {"a": [1]}, {"a": None}).column("a").to_pylist() == ["1", "x", "[1]", None]


def test_numbers_beyond_64_bits_are_not_lost() -> None:
    assert rows_of({"a": 2**70}, {"a": 1}).column("a").to_pylist() == [float(2**70), 1.0]


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, -(2**63) - 1, 10**38 - 1])
def test_whole_numbers_beyond_64_bits_keep_every_digit(number: int) -> None:
    column = rows_of({"a": number}, {"a": None}, {"a": 1}).column("a")
    assert (column.type, column.to_pylist()) == (pa.decimal128(38, 0), [number, None, 1])


_NUMBERS = st.one_of(
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(0, 3).map(lambda shift: (1 << (62 + shift)) - 1),
)
_TEXTS = st.text(st.characters(codec=None), max_size=5)
_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), _NUMBERS, _TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_TEXTS, inner, max_size=3)),
)


@given(_VALUES, st.booleans(), st.binary(max_size=3), st.integers(0, 200))
@example({"a": {"b": [-(2**63) - 1]}}, False, b"", 0)
@example({"a": float("inf"), "b": float("nan")}, False, b"", 0)
@example({"a": "\ud800"}, True, b"", 0)
def test_the_fast_reader_reads_what_the_exact_one_does(value: object, escaped: bool, more: bytes, at: int) -> None:
    payload = json.dumps(value, ensure_ascii=escaped).encode(errors="surrogatepass")
    payload = payload[:at] + more + payload[at:]
    assert repr(json_payload(payload)) == repr(_exact_payload(payload))


@pytest.mark.parametrize(
    "number", ["1e400", "-1E+999", "9" * 400, "-0", "1e23", "18446744073709551616", "1e-400", "01"]
)
def test_numbers_are_as_they_were_written(number: str) -> None:
    payload = f'{{"a": {number}}}'.encode()
    assert repr(json_payload(payload)) == repr(_exact_payload(payload))


def test_values_within_too_many_others_are_refused() -> None:
    payload = b'{"a": ' + b"[" * 5000 + b"]" * 5000 + b"}"
    assert str(json_payload(payload)).startswith("malformed JSON")


def test_nested_values_are_documents_for_tables() -> None:
    rows = documents(rows_of({"a": {"b": [1, 2]}, "c": 1}))
    assert rows.to_pylist() == [{"a": '{"b": [1, 2]}', "c": 1}]


def test_what_is_no_object_is_set_apart_with_its_payload_and_place() -> None:
    payloads = [b'{"a": 1}', b"{oops", b"[1]", b"", b"\xff\xfe"]
    rows = rows_of_payloads([(payload, f"p{number}") for number, payload in enumerate(payloads)], json_payload)
    assert rows.rows.to_pylist() == [{"a": 1}]
    assert rows.count == 5
    assert rows.rejects is not None
    rejects = rows.rejects.to_pylist()
    assert [row["source_position"] for row in rejects] == ["p1", "p2", "p3", "p4"]
    assert [payload_of(row["row_json"]) for row in rejects] == payloads[1:]


def test_a_payload_that_looks_like_a_marked_one_comes_back_too() -> None:
    for payload in (b"base64:abc", b"", b"\x00", "ä".encode()):
        assert payload_of(json.dumps({PAYLOAD: format_payload(payload)})) == payload


def test_a_row_that_was_made_is_its_own_payload() -> None:
    assert payload_of('{"_payload": "as it was kept before"}') == b"as it was kept before"
    assert payload_of('{"_payload": "a field", "a": 1}') == b'{"_payload": "a field", "a": 1}'
    assert payload_of('{"a": 1}') == b'{"a": 1}'


def test_raw_payloads_are_one_column() -> None:
    assert rows_of_payloads([(b"\xff", "")], raw_payload).rows.to_pylist() == [{"value": b"\xff"}]

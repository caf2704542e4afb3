"""The row of a reject as JSON text: every value comes back as it was written."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from ematix_flow.connect.types.reject_rows import as_shaped, bytes_of, is_shaped, json_row, values_of

NUMBERS = '{"a": 1.50, "b":1e400,"c":-0.10, "d": 12345678901234567890123, "e" : true}'


def test_numbers_keep_their_digits() -> None:
    values = values_of(NUMBERS)
    assert values == {"a": "1.50", "b": "1e400", "c": "-0.10", "d": "12345678901234567890123", "e": "true"}


def test_documents_keep_their_text() -> None:
    document, listed = '{ "x":1.50,\n "x": [0.10, {"_flow_bytes": 1}]}', '[1,  2.0, "]}"]'
    assert values_of(f' {{"doc":{document} , "listed" :{listed}}} ') == {"doc": document, "listed": listed}


def test_texts_are_what_they_say() -> None:
    row = '{"null": null, "text": "null", "quoted": "\\"a\\" \\u00e9", "empty": "", "brace": "}, {"}'
    assert values_of(row) == {"null": None, "text": "null", "quoted": '"a" é', "empty": "", "brace": "}, {"}


def test_bytes_are_no_text() -> None:
    assert values_of(json_row({"raw": b"\x00\xffA", "text": "00FF41"})) == {"raw": b"\x00\xffA", "text": "00FF41"}
    assert bytes_of({"_flow_bytes": "no digits"}) is None
    assert bytes_of({"_flow_bytes": "00", "more": 1}) is None


def test_what_json_lacks_is_text() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    row = json_row({"n": float("nan"), "i": float("-inf"), "d": Decimal("1.50"), "at": at, "none": None})
    assert row == '{"n": "NaN", "i": "-Infinity", "d": "1.50", "at": "2026-01-01 00:00:00+00:00", "none": null}'


@pytest.mark.parametrize("row", ["{}", ' { "a" : 1 } ', '{"a":"}"}'])
def test_a_row_can_say_that_it_was_shaped(row: str) -> None:
    assert not is_shaped(row)
    assert is_shaped(as_shaped(row))
    assert values_of(as_shaped(row)) == {"_flow_shaped": "true", **values_of(row)}


@pytest.mark.parametrize(("row", "value"), [('"line"', "line"), (" [1.0]", "[1.0]"), ("null", None)])
def test_what_is_no_object_is_the_only_value(row: str, value: str | None) -> None:
    assert values_of(row) == {"value": value}


@pytest.mark.parametrize("row", ['{"a": 1', "{oops", ""])
def test_what_is_no_json_is_refused(row: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        values_of(row)

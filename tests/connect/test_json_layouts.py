"""Messages that are written alike are read as the exact reader reads each of them, and so are those that are not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ematix_flow.connect.formats.decoders import JsonDecoder
from ematix_flow.connect.formats.json_fast_path import LAYOUTS, read_alike
from ematix_flow.connect.formats.json_lines import row_of

NAMES = ("id", "name", "amount")
_PLAIN = (
    "1",
    "-0.10",
    "1e5",
    "123456789012345678901234567890.5",
    "true",
    "null",
    '"tea"',
    '""',
    '"null"',
    '"é"',
    '" x "',
)
_ODD = ('"a\\"b"', '"\\u00e9"', '"\\ud800"', "[1, 2.50]", '{"a" : 1.0}', "01", "1.", "NaN", '"\t"', "nul", "+1", "")
_KEYS = st.lists(st.sampled_from(['"id"', '"name"', '"amount"', '"other"', '"a.b"', '"\\u0069d"']), max_size=4)


@st.composite
def _message(draw: st.DrawFn) -> bytes:
    space = draw(st.sampled_from(["", "", " ", "\n\t"]))
    values = st.sampled_from(_PLAIN + _PLAIN + _ODD)
    pairs = [f"{key}{space}:{space}{draw(values)}" for key in draw(_KEYS)]
    end = draw(st.sampled_from(["}"] * 8 + ["", "} x", ",}", "}}"]))
    broken = draw(st.sampled_from([b""] * 8 + [b"\xff", "\ufeff".encode()]))
    return broken + f"{{{space}{f'{space},{space}'.join(pairs)}{space}{end}".encode()


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(st.lists(_message(), max_size=6))
def test_every_message_is_read_as_if_it_were_alone(messages: list[bytes]) -> None:
    decoded = JsonDecoder(NAMES).decode(messages)
    exact = [row_of(message) for message in messages]
    rows = list(zip(*(column.to_pylist() for column in decoded.columns), strict=True))
    assert list(decoded.wrong) == [row if isinstance(row, str) else None for row in exact]
    expected = [{} if isinstance(row, str) else row for row in exact]
    assert rows == [tuple(row.get(name) for name in NAMES) for row in expected]


def test_messages_with_the_same_keys_fit_the_pattern_of_the_first() -> None:
    messages = [json.dumps({"id": n, "name": f"tea {n}", "amount": n / 7}).encode() for n in range(50)]
    read = read_alike(messages, NAMES)
    assert (len(read.written), read.others) == (50, {})
    assert read.columns(NAMES)[2].to_pylist() == [json.dumps(n / 7) for n in range(50)]


def test_several_layouts_are_known_at_a_time() -> None:
    layouts = [{"id": 1}, {"name": "a", "id": 2}, {"id": 3, "amount": 1.50}, {}]
    messages = [json.dumps(layout).encode() for layout in layouts * 3]
    read = read_alike(messages, NAMES)
    assert len(layouts) == LAYOUTS
    assert read.others == {}
    assert read.columns(NAMES)[0].to_pylist() == ["1", "2", "3", None] * 3


@pytest.mark.parametrize("odd", ['{"id": 1, "id": 1}', '{"id": 01}', '{"id": 1} {"id": 2}', "[1]", '{"id": Infinity}'])
def test_a_message_that_is_no_object_keeps_its_place_among_good_ones(odd: str) -> None:
    messages = [b'{"id": 7}', odd.encode(), b'{"id": 8}']
    decoded = JsonDecoder(("id",)).decode(messages)
    assert decoded.columns[0].to_pylist() == ["7", None, "8"]
    assert [error is None for error in decoded.wrong] == [True, False, True]
    assert str(decoded.wrong[1]).endswith(odd)


def test_a_key_that_is_written_with_escapes_makes_no_pattern() -> None:
    messages = [b'{"a\\"b": 1, "id": 2}', b'{"a"b": 1, "id": 2}']
    read = read_alike(messages, ("id",))
    assert not read.written
    assert isinstance(read.others[1], str)

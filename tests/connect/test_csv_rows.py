"""CSV read exactly, where reading it in a hurry goes wrong."""

from __future__ import annotations

from dataclasses import replace
from operator import add
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ematix_flow.connect.formats.csv import _with_null_spelling, dialect_of, read_rows
from ematix_flow.connect.formats.csv_records import Dialect, grammar_of

if TYPE_CHECKING:
    from pathlib import Path


def test_short_rows_are_filled_up_beside_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_bytes(b"a,b\n1,2\n3\n\xff,4\n")
    (rows,) = read_rows(str(file), dialect_of(str(file), {"truncated_rows_ok": True}))
    assert rows.good.to_pylist() == [{"a": "1", "b": "2"}, {"a": "3", "b": None}]
    assert len(rows.bad) == 1


def test_line_ends_inside_quotes_are_kept_beside_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_bytes(b"x,y\n\xc3\xa9\xc3\xa9\n\xff,'\r\n'\r\n")
    (rows,) = read_rows(str(file), dialect_of(str(file), {"quote": "'"}))
    assert ("with bytes that are not UTF-8: \\xff,\r\n", {"x": "\\xff", "y": "\r\n"}) in rows.bad


def test_rows_that_are_filled_up_stay_in_their_places(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_bytes(b'a,b\n1\n2,"x\ny"\n\n3\n4,5,6\n1,b\n')
    (rows,) = read_rows(str(file), dialect_of(str(file), {"truncated_rows_ok": True}))
    assert rows.good.to_pylist() == [
        {"a": "1", "b": None}, {"a": "2", "b": "x\ny"}, {"a": "3", "b": None}, {"a": "1", "b": "b"},
    ]  # fmt: skip
    assert [text for text, _ in rows.bad] == ["4,5,6"]


DIALECTS = [
    Dialect(escape="\\"),
    Dialect(escape="\\", delimiter="\t", quote="'"),
    Dialect(escape="^", delimiter="]"),
    Dialect(escape="-", quote="^", delimiter="|"),
    Dialect(escape="\\", terminator=";"),
    Dialect(escape="N"),
]
NULLS = ["N", r"^\\N$", r"^(NA|\\N|\^N|-N|N)$", r"\\N", r"^\\N,\\N$", "^N.", "é", "^$", ""]
FIELDS = ["", "N", "EN", "EN", "EN", "ENa", "aEN", "EEN", "EDEN", "DEN", "E\n", "\nEN", "EQ", "aQ", "aQEN", "QaQ", "QENQ", "QDENDQ",
          "Q\nEN\nQ", "QEQDENQ", "Q", "\xc3\xa9E\xc3\xa9", "\xffEN"]  # fmt: skip
"""With E, Q and D for the escape, the quote and the delimiter of a dialect."""
ENDS = ["D", "D", "\n", "\r\n", "\r", ";"]


@st.composite
def spelled(draw: st.DrawFn) -> tuple[Dialect, bytes]:
    """Return a dialect and whole records, mostly of what has a meaning in it."""
    dialect = replace(draw(st.sampled_from(DIALECTS)), null_regex=draw(st.sampled_from(NULLS)))
    text = "".join(draw(st.lists(st.builds(add, st.sampled_from(FIELDS), st.sampled_from(ENDS)), max_size=12)))
    for name, character in (("E", dialect.escape), ("Q", dialect.quote), ("D", dialect.delimiter)):
        text = text.replace(name, character)
    data = text.encode("latin1") + dialect.ends[0]
    match = grammar_of(dialect).records.match(data)
    assert match is not None
    return dialect, match.group()


def field_by_field(records: bytes, dialect: Dialect) -> bytes:
    """Return what the records become if every field is inspected on its own."""
    escape, field = dialect.escape.encode(), grammar_of(dialect).field
    result, offset = b"", 0
    while offset < len(records):
        match = field.match(records, offset)
        text = match.group() if match is not None else b""
        offset += len(text) + 1
        spelling = pa.scalar(text.decode(errors="replace"))
        parting = (dialect.delimiter.encode(), dialect.quote.encode(), *dialect.ends)
        whole = not any(one in text for one in parting)
        if whole and pc.match_substring_regex(spelling, dialect.null_regex).as_py():
            text = text.replace(escape, escape * 2)
        result += text + records[offset - 1 : offset]
    return result


@pytest.mark.slow
@settings(max_examples=400)
@given(spelled())
@example((Dialect(escape="\\", null_regex=r"^\\N$"), b'\\N,"\\N",a\\N\n\\,,\\N,"\\",\\N"\r\na"\\N,\\N\n'))
def test_null_is_recognised_as_if_every_field_were_alone(file: tuple[Dialect, bytes]) -> None:
    dialect, records = file
    expected = field_by_field(records, dialect) if dialect.null_regex else records
    assert _with_null_spelling(records, dialect) == expected


def test_an_escaped_delimiter_stays_one_in_a_field_in_which_a_loose_pattern_finds_null() -> None:
    dialect = Dialect(escape="\\", null_regex="NA|NULL")
    assert _with_null_spelling(b"1,BAN\\,ANA\n2,\\NA\n", dialect) == b"1,BAN\\,ANA\n2,\\\\NA\n"

"""CSV read exactly, where reading it in a hurry goes wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.formats.csv import dialect_of, read_rows

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

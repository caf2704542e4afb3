"""A CSV or JSON file that is cut between its rows gives the rows, the rejects and the errors of the whole file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ematix_flow.connect.formats import csv_records
from ematix_flow.connect.formats import json_lines as json_rows
from ematix_flow.connect.formats.csv import dialect_of, read_rows
from ematix_flow.connect.formats.csv_records import WHOLE, byte_ranges_of
from ematix_flow.connect.formats.text import StoredFile
from ematix_flow.connect.storage.base import LocalStore
from ematix_flow.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ematix_flow.connect.formats.csv_records import ByteRange, Dialect

DIALECTS: list[dict[str, Any]] = [
    {},
    {"has_header": False},
    {"escape": "\\"},
    {"quote": "'"},
    {"comment": "#"},
    {"terminator": "|"},
    {"truncated_rows_ok": True},
]
TEXTS = [b"a", b"12", b"", b" ", b"\xc3\xa9", b"\xff", b"#", b"\\", b"\\n", b"'", b'"', b"|", b"null"]
ENDS = [b"\n", b"\r\n", b"\r", b"\n\n", b"|", b"|\n"]

inside = st.lists(st.sampled_from([*TEXTS, *ENDS, b",", b'""', b"''"]), max_size=5).map(b"".join)
plain_field = st.lists(st.sampled_from(TEXTS), max_size=3).map(b"".join)
quoted_field = inside.map(lambda text: b'"' + text.replace(b'"', b'""') + b'"')
other_quoted = inside.map(lambda text: b"'" + text.replace(b"'", b"''") + b"'")
field = plain_field | quoted_field | quoted_field | other_quoted
row = st.builds(
    lambda fields, end: b",".join(fields) + end, st.lists(field, min_size=1, max_size=4), st.sampled_from(ENDS)
)
files = st.builds(
    lambda prefix, head, rows, last: prefix + head + b"".join(rows) + last,
    st.sampled_from([b"", b"", b"\xef\xbb\xbf"]),
    st.sampled_from([b"x,y\n", b"x,y\n", b"\n\r\n#c\nx,y\r\n", b'"x\n,",y\n', b"x,y|", b""]),
    st.lists(row, max_size=12),
    st.sampled_from([b"", b"", b"1,2", b'1,"2', b"\n"]),
)


def outcome(path: str, dialect: Dialect, parts: Iterable[ByteRange]) -> tuple[list[Any], list[Any], str]:
    """Return the rows in their order, those that are none, and the error that ends the reading."""
    good: list[Any] = []
    bad: list[Any] = []
    try:
        for part in parts:
            for rows in read_rows(path, dialect, part):
                good += rows.good.to_pylist()
                bad += [(message, sorted(fields.items())) for message, fields in rows.bad]
    except RunError as error:
        return [], [], str(error)
    if dialect.pads_short_rows:
        good.sort(key=repr)  # rows that are filled up come behind those that are read with them
    return good, sorted(bad, key=repr), ""


@pytest.mark.slow
@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files, st.sampled_from(DIALECTS), st.integers(1, 60), st.integers(1, 60))
@example(b'x,y\n1,"a\n2,b"\n3,5" pipe\n4,"c\n', {}, 4, 4)
@example(b'x,y\r\n1,"a""\r\n2,b"\r\n3,c\r\n', {}, 5, 7)
@example(b"x,y\n\xc3\xa9\xc3\xa9\n\xff,'\r\n'\r\n", {"quote": "'"}, 1, 1)
def test_the_parts_of_a_file_are_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, options: dict[str, Any], every: int, block: int
) -> None:
    file = tmp_path / "x.csv"
    file.write_bytes(data)
    dialect, store = dialect_of(str(file), options), LocalStore(str(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(csv_records, "_end_between_quotes", lambda *_: None)
        whole = outcome(str(file), dialect, [WHOLE])
    with monkeypatch.context() as patched:
        patched.setattr(csv_records, "BLOCK", block)
        parts = byte_ranges_of(str(file), dialect, every)
        stored = StoredFile(store, next(iter(store.listed(""))))
        assert outcome(str(file), dialect, parts) == whole
        assert outcome(stored, dialect, byte_ranges_of(stored, dialect, every)) == whole
    assert [part.start for part in parts[1:]] == [part.stop for part in parts[:-1]]


def test_a_large_file_is_cut_and_a_compressed_one_is_not(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_bytes(b"x,y\n" + b'1,"a\nb"\n' * 1_000)
    parts = byte_ranges_of(str(file), dialect_of("x.csv", {}), 1_000)
    assert len(parts) == 8
    assert max(part.stop - part.start for part in parts) < 1_200
    assert [part.line for part in parts] == [file.read_bytes()[: part.start].count(b"\n") + 1 for part in parts]
    packed = tmp_path / "x.csv.gz"
    packed.write_bytes(file.read_bytes())
    assert byte_ranges_of(str(packed), dialect_of("x.csv.gz", {}), 1_000) == [WHOLE]
    assert byte_ranges_of(str(file), dialect_of("x.csv", {}), 1 << 20) == [WHOLE]


lines = st.builds(
    lambda prefix, rows, last: prefix + b"".join(rows) + last,
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    st.lists(
        st.sampled_from([b'{"x": 1}', b'{"x": "a\\nb", "y": 2.50}', b"[]", b"{oops", b"", b'{"y": "\xff"}', b"\r"]).map(
            lambda line: line + b"\n"
        ),
        max_size=20,
    ),
    st.sampled_from([b"", b'{"x": 9}', b"{"]),
)


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines, st.integers(1, 50))
def test_the_pieces_of_a_json_file_are_the_whole(tmp_path: Path, data: bytes, every: int) -> None:
    file = tmp_path / "x.jsonl"
    file.write_bytes(data)

    def rows(partitions: Iterable[tuple[int, int]]) -> tuple[list[Any], list[str]]:
        stored_rows = [
            some for partition in partitions for some in json_rows.read_rows(str(file), partition, ("x", "y"))
        ]
        return [row for some in stored_rows for row in some.good.to_pylist()], [
            s for some in stored_rows for s, _ in some.bad
        ]

    partitions = json_rows.byte_ranges_of(str(file), every)
    assert rows(partitions) == rows([(0, -1)])
    assert len(partitions) == max(1, -(-len(data) // every))

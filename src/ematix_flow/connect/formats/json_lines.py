"""Reads JSON lines exactly: every digit is preserved, and a line that is no JSON object is reported, never dropped."""

from __future__ import annotations

import io
import json
from json.encoder import encode_basestring
from typing import IO, TYPE_CHECKING, Any

from ematix_flow.connect.formats.text import (
    BOM,
    LONGEST_RECORD,
    NOT_UTF8,
    ParsedRows,
    naming,
    open_bytes,
    open_raw,
    size_of,
    unreadable,
)
from ematix_flow.declare.connection.file_names import codec_from_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

BATCH_BYTES = 8 << 20


def byte_ranges_of(path: str, every: int) -> list[tuple[int, int]]:
    """Return the ranges of about so many bytes that tasks may read on their own; a compressed file is one."""
    size = size_of(path)
    if codec_from_path(path) or size <= every:
        return [(0, -1)]
    return [(start, start + every if start + every < size else -1) for start in range(0, size, every)]


def read_rows(path: str, byte_range: tuple[int, int], names: Sequence[str], most: int = 0) -> Iterator[ParsedRows]:
    """Return the rows of the lines that begin in a partition of a file, at most so many at a time where that is set."""
    good: list[list[str | None]] = []
    bad: list[tuple[str, dict[str, str | None]]] = []
    size = 0
    known, spellings = set(names), {name.lower(): name for name in names}
    for line in lines_of(path, byte_range):
        row = row_of(line)
        if not isinstance(row, str) and not known.issuperset(row) and (key := _spelled_otherwise(row, spellings)):
            row = f"(the key {key!r} is spelled {spellings[key.lower()]!r} elsewhere) {line.decode()}"
        if isinstance(row, str):
            bad.append((row, dict.fromkeys(names)))
        else:
            good.append([row.get(name) for name in names])
        size += len(line)
        if size > BATCH_BYTES or len(good) + len(bad) == most:
            yield _rows(good, bad, names)
            good, bad, size = [], [], 0
    yield _rows(good, bad, names)


def _spelled_otherwise(row: Mapping[str, str | None], spellings: Mapping[str, str]) -> str | None:
    """Return a key of a line that differs from a name in nothing but case: its value would be lost."""
    return next((key for key in row if spellings.get(key.lower(), key) != key), None)


def lines_of(path: str, byte_range: tuple[int, int] = (0, -1)) -> Iterator[bytes]:
    """Return the lines that begin in a partition of a file, without blank ones and the byte order mark."""
    start, stop = byte_range
    with naming(path), _open_lines(path) as stream:
        if start:
            stream.seek(start - 1)
            stream.readline()  # the line that the partition before began
        while stop < 0 or stream.tell() < stop:
            line = stream.readline(LONGEST_RECORD + 1)
            if not line:
                return
            if len(line) > LONGEST_RECORD:
                raise unreadable(path, f"a line is longer than {LONGEST_RECORD} bytes")
            line = line.removeprefix(BOM).strip()
            if line:
                yield line


def keys_of(line: bytes) -> tuple[str, ...]:
    """Return the keys of a line; none where it is not an object."""
    row = row_of(line)
    return () if isinstance(row, str) else tuple(row)


def _open_lines(path: str) -> IO[bytes]:
    if codec_from_path(path):
        return io.BufferedReader(open_bytes(path))  # type: ignore[type-var]
    return open_raw(path)


class Number(str):
    """A number as it is written."""

    __slots__ = ()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) != len(pairs):
        raise ValueError("a key stands twice")
    return row


def _constant(literal: str) -> None:
    raise ValueError(f"{literal} is no JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=Number, parse_int=Number, parse_constant=_constant)


def object_of(line: bytes) -> dict[str, Any] | str:
    """Return the values of a JSON object, numbers as the texts they are written as, or what is wrong with the line."""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return NOT_UTF8 + line.decode(errors="backslashreplace")
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        return f"(nested too deeply) {text}"
    except ValueError as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        return f"({reason}) {text}"
    return value if isinstance(value, dict) else f"(not an object) {text}"


def row_of(line: bytes) -> dict[str, str | None] | str:
    """Return the values of a line as text, or what is wrong with it."""
    value = object_of(line)
    if isinstance(value, str):
        return value
    try:
        row = {k: v if v is None or isinstance(v, str) else written(v) for k, v in value.items()}
        if b"\\ud" in line or b"\\uD" in line:
            "".join(text for pair in row.items() for text in pair if text).encode()
    except UnicodeEncodeError:
        return f"(half of a surrogate pair) {line.decode()}"
    except RecursionError:
        return f"(nested too deeply) {line.decode()}"
    return row


_LITERALS = {True: "true", False: "false", None: "null"}


def written(value: Any) -> str:
    """Return JSON for a value with its numbers as they were."""
    if type(value) is Number:
        return value
    if isinstance(value, dict):
        return "{" + ",".join(f"{written(key)}:{written(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    if isinstance(value, str):
        return encode_basestring(value)
    return _LITERALS[value]


def _rows(
    good: list[list[str | None]], bad: list[tuple[str, dict[str, str | None]]], names: Sequence[str]
) -> ParsedRows:
    import pyarrow as pa

    columns = zip(*good, strict=True) if good else [()] * len(names)
    return ParsedRows(pa.table([pa.array(c, pa.string()) for c in columns], names=list(names)), tuple(bad))

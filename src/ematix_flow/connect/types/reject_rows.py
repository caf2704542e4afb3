"""The row of a reject as JSON text: how bytes are written in it, and its values as they were written; no row is read here."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

BYTES = "_flow_bytes"
"""The only field of an object that means bytes, in hexadecimal digits: JSON has no bytes, and a text would be taken for one."""

SHAPED = "_flow_shaped"
"""Field of a row that the column map, the normalisers and the pre-load transforms of its pipeline have shaped already."""

_AS_WRITTEN = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=str)
_SPACE = re.compile(r"[ \t\n\r]*")


def json_value(value: Any) -> str:
    """Return a value as JSON: bytes as the object that means them, what JSON lacks as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> dict[str, str] | str:
    return {BYTES: value.hex().upper()} if isinstance(value, bytes) else str(value)


def json_row(values: Mapping[str, Any]) -> str:
    """Return a row as JSON."""
    pairs = (f"{json.dumps(name, ensure_ascii=False)}: {json_value(value)}" for name, value in values.items())
    return "{" + ", ".join(pairs) + "}"


def as_shaped(row: str) -> str:
    """Return a row with the field that says that it is in the shape of its target."""
    inside = row.strip().removeprefix("{").removesuffix("}").strip()
    return f'{{"{SHAPED}": true{", " if inside else ""}{inside}}}'


def is_shaped(row: str) -> bool:
    """Return whether a row says that it is in the shape of its target."""
    return row.startswith(f'{{"{SHAPED}": true')


def bytes_of(value: Any) -> bytes | None:
    """Return the bytes that an object means, or None for every other value."""
    if not isinstance(value, dict) or value.keys() != {BYTES} or not isinstance(value[BYTES], str):
        return None
    try:
        return bytes.fromhex(value[BYTES])
    except ValueError:
        return None


def values_of(row: str) -> dict[str, str | bytes | None]:
    """Return the values of a row: texts, numbers and documents as they were written, digit by digit, and bytes.

    What is no object is the only value of a row.
    """
    document = _AS_WRITTEN.decode(row)
    if not isinstance(document, dict):
        return {"value": _value(document, row.strip())}
    values: dict[str, str | bytes | None] = {}
    place = _next(row, _next(row, 0) + 1)
    while row[place] != "}":
        name, place = _AS_WRITTEN.raw_decode(row, place)
        begin = _next(row, _next(row, place) + 1)
        value, end = _AS_WRITTEN.raw_decode(row, begin)
        values[name] = _value(value, row[begin:end])
        place = _next(row, end)
        if row[place] == ",":
            place = _next(row, place + 1)
    return values


def _value(value: Any, written: str) -> str | bytes | None:
    if value is None:
        return None
    if written.startswith('"'):
        return str(value)
    known = bytes_of(value)
    return written if known is None else known


def _next(row: str, place: int) -> int:
    """Return the place of the next character that is no space."""
    space = _SPACE.match(row, place)
    assert space is not None  # noqa: S101 - no space is a match too
    return space.end()

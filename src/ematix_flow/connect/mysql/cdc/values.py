"""Values of MySQL as fragments of JSON, the same whether they come from the binary log or from a query."""

from __future__ import annotations

import base64
import json
import struct
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from ematix_flow.connect.change_log.messages import json_text

TIMESTAMP, DATE, SINGLE, BIT, BINARY, YEAR, SET, JSON, OTHER = (
    "timestamp", "date", "single", "bit", "binary", "year", "set", "json", "",
)  # fmt: skip
"""Kinds of columns whose values need more than their Python type to be read."""

FIRST_YEAR = 1900
_NO_INSTANT = datetime(1970, 1, 1)  # noqa: DTZ001 - as the log has 0000-00-00 00:00:00, which a TIMESTAMP begins a second behind
_SINGLE_DIGITS = range(6, 10)


def fragment(value: Any, kind: str, width: int = 0, members: tuple[str, ...] = ()) -> str:
    """Return a value as JSON; one that is no value of its kind, such as the day 0000-00-00, is NULL."""
    if value is None or _is_none(value, kind):
        return "null"
    match kind:
        case "single":
            return _single(float(value))
        case "bit":
            return str(int(value, 2) if isinstance(value, str) else int(value))
        case "year" if width == FIRST_YEAR and int(value) == FIRST_YEAR:
            return "0"
        case "set":
            return json_text(_set_text(value, members))
        case "json":
            return json_text(_document(value))
        case "timestamp":
            return f'"{value.isoformat()}Z"'
    return _plain(value.ljust(width, b"\0") if kind == BINARY and isinstance(value, bytes) else value)


def _is_none(value: Any, kind: str) -> bool:
    """Return whether a value is no day or instant; a DATETIME may be the one that a TIMESTAMP has for none."""
    return (kind in (TIMESTAMP, DATE) and isinstance(value, str)) or (kind == TIMESTAMP and value == _NO_INSTANT)


def _plain(value: Any) -> str:
    match value:
        case bool() | int() | float():
            return json.dumps(value)
        case Decimal():
            return format(value, "f")
        case bytes() | bytearray():
            return _binary(bytes(value))
        case datetime() | date():
            return f'"{value.isoformat()}"'
        case timedelta():
            return f'"{_clock(value)}"'
    return json_text(str(value))


def _single(value: float) -> str:
    """Return the shortest number that is the same in single precision, as the server writes it."""
    for digits in _SINGLE_DIGITS:
        text = f"{value:.{digits}g}"
        if struct.pack("f", float(text)) == struct.pack("f", value):
            break
    return json.dumps(float(text))


def _binary(value: bytes) -> str:
    return f'"{base64.b64encode(value).decode()}"'


def _set_text(value: Any, members: tuple[str, ...]) -> str:
    if isinstance(value, str):
        return value
    return ",".join(member for member in members if member in value) if members else ",".join(sorted(value))


def _document(value: Any) -> str:
    """Return a document in one form: the log has values, and a query has text."""
    parsed = json.loads(value) if isinstance(value, str) else value
    return json.dumps(parsed, ensure_ascii=False, separators=(", ", ": "), default=_text)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _clock(value: timedelta) -> str:
    """Return a TIME, which may be negative and longer than a day."""
    micros = abs(value) // timedelta(microseconds=1)
    seconds, rest = divmod(micros, 1_000_000)
    text = f"{'-' if value < timedelta(0) else ''}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{rest:06}" if rest else text

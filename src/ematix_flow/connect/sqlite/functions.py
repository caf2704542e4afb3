"""The functions that SQL for SQLite counts on, because SQLite has none of its own; pure, except the random one.

Points in time are text of fixed width, so that their order as text is their order in time:
`2026-01-02`, `2026-01-02 03:04:05.000000`, and with `+00:00` at the end for an instant. Decimals are text.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from functools import lru_cache
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from ematix_flow.connect.types.reject_rows import json_value

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

Value = str | int | float | bytes | None

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_DOUBLE = re.compile(r"[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]{1,3})?")
_INT64 = range(-(2**63), 2**63)
_DIGITS = 400


def register(connection: sqlite3.Connection) -> None:
    """Make the functions known to one connection."""
    for name, (arguments, function) in FUNCTIONS.items():
        connection.create_function(name, arguments, function, deterministic=name != "flow_random")
    connection.create_aggregate("flow_fingerprint", -1, Fingerprint)  # type: ignore[arg-type]


class Fingerprint:
    """Adds up a hash of every row, so that the order of the rows does not matter."""

    def __init__(self) -> None:
        self._sum = 0

    def step(self, *row: Value) -> None:
        """Add a row."""
        self._sum += int.from_bytes(hashlib.blake2b(repr(row).encode(errors="surrogatepass"), digest_size=8).digest())

    def finalize(self) -> str:
        """Return the sum."""
        return str(self._sum)


def lower(x: Value) -> Value:
    """Return text in lower case; other values as they are."""
    return x.lower() if isinstance(x, str) else x


def upper(x: Value) -> Value:
    """Return text in upper case; other values as they are."""
    return x.upper() if isinstance(x, str) else x


def matches(x: Value, pattern: str) -> int | None:
    """Return whether the pattern matches; NULL for NULL."""
    return None if x is None else int(_compiled(pattern, "").search(str(x)) is not None)


def replace(x: Value, pattern: str, replacement: str, flags: str) -> str | None:
    r"""Return the text with matches replaced; `\1` and `\&` in the replacement are groups."""
    if x is None:
        return None
    return _compiled(pattern, flags).sub(lambda m: _expand(m, replacement), str(x), count=0 if "g" in flags else 1)


def integer(x: Value) -> int | None:
    """Return a whole 64-bit number, or NULL for anything else."""
    number = as_decimal(x)
    if number is None or number != number.to_integral_value():
        return None
    return int(number) if int(number) in _INT64 else None


def decimal(x: Value, precision: int, scale: int) -> str | None:
    """Return the number as text with `scale` decimals, or NULL when it has too many digits."""
    number = as_decimal(x)
    if number is None:
        return None
    rounded = _rounded(number, scale)
    # abs() would round to the 28 digits that Python works with.
    return None if rounded.copy_abs() >= Decimal(10) ** (precision - scale) else f"{rounded:f}"


def double(x: Value) -> float | None:
    """Return a finite floating point number, or NULL."""
    if isinstance(x, bytes) or x is None or (isinstance(x, str) and not _DOUBLE.fullmatch(x)):
        return None
    number = float(x)
    return number if math.isfinite(number) or isinstance(x, float) else None


def compare(x: Value, other: str) -> int | None:
    """Return whether a number is less (-1), equal (0) or greater (1) than the one that a text spells; NULL for no number."""
    if isinstance(x, float):
        return (x > float(other)) - (x < float(other))
    number = as_decimal(x)
    return None if number is None else (number > Decimal(other)) - (number < Decimal(other))


def rounded(x: Value, scale: int) -> Value:
    """Return a number rounded half away from zero, in the form it came in."""
    if isinstance(x, int):
        return x
    number = as_decimal(x)
    if number is None:
        return None
    return float(_rounded(number, scale)) if isinstance(x, float) else f"{_rounded(number, scale):f}"


def timestamp(x: str | None) -> str | None:
    """Return a checked ISO text in fixed width."""
    return None if x is None else _format_timestamp(datetime.fromisoformat(x))


def day(x: str | None) -> str | None:
    """Return the calendar day of a checked ISO text."""
    return None if x is None else date.fromisoformat(x[:10]).isoformat()


def earlier(x: str | None, minutes: int) -> str | None:
    """Return the time some minutes before."""
    return None if x is None else _format_timestamp(datetime.fromisoformat(x) - timedelta(minutes=minutes))


def truncated(x: str | None, precision: str) -> str | None:
    """Return the start of the second, day, week, ... that the time is in; a zone at the end stays."""
    if x is None:
        return None
    value = datetime.fromisoformat(x)
    match precision:
        case "second" | "minute" | "hour" | "day":
            start = _zeroed(value, precision)
        case "week":
            start = _zeroed(value, "day") - timedelta(days=value.weekday())
        case "month":
            start = _zeroed(value, "day").replace(day=1)
        case "quarter":
            start = _zeroed(value, "day").replace(month=value.month - (value.month - 1) % 3, day=1)
        case _:
            start = _zeroed(value, "day").replace(month=1, day=1)
    return _format_timestamp(start) + x[26:]


def wall(x: str | None, zone: str) -> str | None:
    """Return the wall time of a zone for a UTC time."""
    return (
        None
        if x is None
        else _format_timestamp(datetime.fromisoformat(x[:26]).replace(tzinfo=UTC).astimezone(ZoneInfo(zone)))
    )


def sha256(x: Value) -> bytes | None:
    """Return the digest of a text or of bytes."""
    return None if x is None else hashlib.sha256(x if isinstance(x, bytes) else str(x).encode()).digest()


def float_bits(x: float | None) -> str | None:
    """Return the hexadecimal bits of a double, big end first."""
    return None if x is None else struct.pack(">d", x).hex()


def numeric_text(x: Value, scale: int) -> str | None:
    """Return a number with exactly `scale` decimals."""
    return None if x is None else f"{Decimal(str(x)):.{scale}f}"


def as_decimal(x: Value) -> Decimal | None:
    """Return the number that a value is or spells."""
    if isinstance(x, str):
        return Decimal(x) if _NUMBER.fullmatch(x) else None
    if isinstance(x, int):
        return Decimal(x)
    return Decimal(repr(x)) if isinstance(x, float) and math.isfinite(x) else None


def _rounded(number: Decimal, scale: int) -> Decimal:
    with localcontext() as context:
        context.prec = _DIGITS + len(number.as_tuple().digits)
        try:
            return number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP) + 0
        except InvalidOperation:
            return number


def _zeroed(value: datetime, precision: str) -> datetime:
    last = ("day", "hour", "minute", "second").index(precision)
    hour, minute, second = (
        part if at < last else 0 for at, part in enumerate((value.hour, value.minute, value.second))
    )
    return value.replace(hour=hour, minute=minute, second=second, microsecond=0)


def _format_timestamp(value: datetime) -> str:
    return value.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")


def _expand(match: re.Match[str], replacement: str) -> str:
    def group(reference: re.Match[str]) -> str:
        name = reference.group(1)
        if name == "\\":
            return name
        return match.group(0 if name == "&" else int(name)) or ""

    return re.sub(r"\\([0-9&\\])", group, replacement)


@lru_cache(maxsize=256)
def _compiled(pattern: str, flags: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII | (re.IGNORECASE if "i" in flags else re.NOFLAG))


FUNCTIONS: dict[str, tuple[int, Callable[..., Value]]] = {
    "flow_lower": (1, lower),
    "flow_upper": (1, upper),
    "flow_matches": (2, matches),
    "flow_replace": (4, replace),
    "flow_integer": (1, integer),
    "flow_decimal": (3, decimal),
    "flow_double": (1, double),
    "flow_compare": (2, compare),
    "flow_round": (2, rounded),
    "flow_timestamp": (1, timestamp),
    "flow_date": (1, day),
    "flow_earlier": (2, earlier),
    "flow_trunc": (2, truncated),
    "flow_wall": (2, wall),
    "flow_sha256": (1, sha256),
    "flow_float_bits": (1, float_bits),
    "flow_numeric_text": (2, numeric_text),
    "flow_json": (1, json_value),
    "flow_random": (0, random.random),
}
"""Name -> number of arguments and function."""

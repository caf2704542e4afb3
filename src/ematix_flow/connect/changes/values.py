"""Values of change events as text that the shape reads: what connectors encode is decoded, and nothing is guessed.

A schema says what a number means. Without one, a number in a column of points in time is read as `time_unit=` says, or
by its size where only one unit puts it between 1973 and 5138.
"""

from __future__ import annotations

import base64
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from ematix_flow.connect.changes.change import ChangeError, Semantic
from ematix_flow.connect.formats.json_lines import Number
from ematix_flow.connect.formats.values import UnfitError, text_of

PER_MICRO = {"ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}
"""Unit -> by what a number is multiplied and then divided, to count microseconds."""

UNITS = {
    "io.debezium.time.Timestamp": "ms",
    "io.debezium.time.MicroTimestamp": "us",
    "io.debezium.time.NanoTimestamp": "ns",
    "org.apache.kafka.connect.data.Timestamp": "ms",
}
CLOCKS = {
    "io.debezium.time.Time": "ms",
    "io.debezium.time.MicroTime": "us",
    "io.debezium.time.NanoTime": "ns",
    "org.apache.kafka.connect.data.Time": "ms",
}
DATES = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
DECIMAL, VARIABLE = "org.apache.kafka.connect.data.Decimal", "io.debezium.data.VariableScaleDecimal"
BITS = "io.debezium.data.Bits"
_COUNT = re.compile(r"-?\d{1,5}", re.ASCII)
_LAST_HOUR = 838
"""The last one of MySQL's TIME."""

_SIZES = ((10**11, ""), (10**14, "ms"), (10**17, "us"), (10**20, "ns"))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BYTES = "bytes"
FLOATS = ("float", "double")
"""Types of a schema without a name of their own: bytes, which JSON has as base64, and numbers that are not exact."""
_TEXTS = ("text", "string")
TIME_KINDS = ("timestamp", "timestamp_tz")
_NONE = Semantic()


def converted(
    value: Any, kind: str, semantic: Semantic | None = None, time_unit: str | None = None
) -> str | bytes | None:
    """Return a value as its column takes it; what cannot be read is a `ChangeError`."""
    if value is None:
        return None
    try:
        return _converted(value, kind, semantic or _NONE, time_unit)
    except (UnfitError, OverflowError, ValueError, ArithmeticError) as error:
        raise ChangeError(str(error) or f"{str(value)[:80]!r} cannot be read") from None
    except RecursionError:
        raise ChangeError("nested too deeply") from None


def _converted(value: Any, kind: str, semantic: Semantic, time_unit: str | None) -> str | bytes:
    name, number = semantic.name, _whole(value)
    encoded = _encoded(value, kind, semantic)
    if encoded is not None:
        return encoded
    if number is None:
        return text_of(value, kind)
    if name in DATES or (kind == "date" and name not in UNITS):
        return (date(1970, 1, 1) + timedelta(days=number)).isoformat()
    if name in CLOCKS:
        return _clock(number, CLOCKS[name])
    if name in UNITS or kind in TIME_KINDS:
        at = _instant(number, UNITS.get(name) or time_unit or unit_of(number))
        return (
            at.date().isoformat() if kind == "date" else f"{at.replace(tzinfo=None).isoformat(timespec='microseconds')}"
        )
    return text_of(value, kind)


def _encoded(value: Any, kind: str, semantic: Semantic) -> str | bytes | None:
    """Return a value that connectors write as bytes; None for any other."""
    if kind == "bytes":
        return _bytes(value)
    if semantic.name == DECIMAL:
        return _decimal(value, semantic.scale)
    if semantic.name == BITS:
        return _bits(value, kind, semantic.length)
    is_variable = semantic.name == VARIABLE or kind == "numeric"
    if is_variable and isinstance(value, dict) and {"scale", "value"} <= set(value):
        return _decimal(value["value"], count_of(value["scale"]))
    return None


def count_of(value: Any) -> int | None:
    """Return a number of digits or bits that a schema or a value tells; None for what cannot be one."""
    return int(value) if not isinstance(value, bool) and _COUNT.fullmatch(str(value)) else None


def _whole(value: Any) -> int | None:
    """Return the whole number that a value is; None for anything else, a text of digits included."""
    if isinstance(value, bool) or not isinstance(value, int | Number):
        return None
    try:
        return int(value)
    except ValueError:
        return None


def unit_of(number: int) -> str:
    """Return what a number counts, by its size; one that may count several things is a `ChangeError`."""
    unit = next((unit for limit, unit in _SIZES if abs(number) < limit), "")
    if not unit and number:
        message = f"{number} may count seconds, milli- or microseconds: say time_unit= of CDC(...)"
        raise ChangeError(message)
    return unit or "ms"


def _instant(number: int, unit: str) -> datetime:
    times, parts = PER_MICRO[unit]
    return _EPOCH + timedelta(microseconds=number * times // parts)


def _clock(number: int, unit: str) -> str:
    """Return a time of day, or MySQL's TIME, which may be negative and longer than a day."""
    times, parts = PER_MICRO[unit]
    seconds, micros = divmod(abs(number) * times // parts, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    if hour > _LAST_HOUR:
        raise ChangeError(f"{number} is longer than any TIME")
    return f"{'-' if number < 0 else ''}{hour:02d}:{minute:02d}:{second:02d}.{micros:06d}"


def _decimal(value: Any, scale: int | None) -> str:
    """Return the number that a connector writes as bytes, or as text where it is configured so."""
    if isinstance(value, Decimal | Number | int | float):
        return text_of(value, "numeric")
    if scale is None:
        message = "nobody tells how many digits of this decimal are behind its point (scale)"
        raise ChangeError(message)
    number = int.from_bytes(_bytes(value), "big", signed=True)
    # Put together from its digits, because arithmetic would round them.
    return format(Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale)), "f")


def _bits(value: Any, kind: str, length: int) -> str:
    """Return bits, which a connector writes with the least ones first, as their number, a boolean or digits."""
    raw = _bytes(value)
    number = int.from_bytes(raw, "little")
    if kind == "boolean":
        return "true" if number else "false"
    return format(number, f"0{min(length or 8 * len(raw), 8 * len(raw))}b") if kind in _TEXTS else str(number)


def _bytes(value: Any) -> bytes:
    """Return bytes, which JSON has as base64."""
    if isinstance(value, bytes):
        return value
    text = value if isinstance(value, str) and not isinstance(value, Number) else ""
    try:
        if text == value:
            return base64.b64decode(text, validate=True)
    except ValueError:
        pass
    message = f"{str(value)[:80]!r} is not base64, as connectors write bytes"
    raise ChangeError(message)

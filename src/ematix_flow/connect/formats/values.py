"""Values of messages that have a schema, put into the columns of declared tables; a value is never altered.

Most columns take texts, which the shape converts as it converts those of JSON. Bytes and broken numbers stay what they
are, because text cannot hold all of them.
"""

from __future__ import annotations

import base64
import math
import re
from datetime import UTC, date, datetime
from datetime import time as clock_time
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ematix_flow.connect.formats.json_lines import Number, written

if TYPE_CHECKING:
    import pyarrow as pa

UUID_BYTES = 16

_BROKEN = ("float", "double")
WHOLE = ("small_int", "integer", "big_int")
_JSON = ("json", "jsonb")
_DIGITS = re.compile(r"[+-]?(\d+([.]\d*)?|[.]\d+)([eE][+-]?\d+)?")


class UnfitError(ValueError):
    """A value does not fit its column; the message is for people."""


def arrow_field(name: str, kind: str) -> pa.Field:
    """Return the column that carries values of messages to a declared kind of column."""
    import pyarrow as pa

    types = {"bytes": pa.binary(), "float": pa.float64(), "double": pa.float64()}
    return pa.field(name, types.get(kind, pa.string()))


def fitted(value: Any, kind: str) -> str | bytes | float | None:
    """Return a value as its column takes it; one that cannot be taken is an `UnfitError`."""
    if value is None:
        return None
    if kind == "bytes":
        return _bytes(value)
    return _to_float(value) if kind in _BROKEN else text_of(value, kind)


def text_of(value: Any, kind: str = "text") -> str:
    """Return a value as text that the shape can read as a declared kind."""
    if isinstance(value, str):
        return value
    if kind in _JSON or isinstance(value, dict | list):
        return str(written(tree(value)))
    if isinstance(value, bool | int | float | Decimal):
        return _digits(value, kind)
    if isinstance(value, datetime):
        return _to_utc(value).date().isoformat() if kind == "date" else _instant(value)
    if isinstance(value, date | clock_time):
        return value.isoformat()
    if isinstance(value, bytes):
        if kind != "uuid" or len(value) != UUID_BYTES:
            raise UnfitError("bytes cannot become text")
        return str(UUID(bytes=value))
    return str(value)


def plain(value: Any) -> Any:
    """Return a value in the types that frames know: a UUID and a time of day become text."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, UUID):
        return str(value)
    return value.isoformat() if isinstance(value, clock_time) else value


def tree(value: Any) -> Any:
    """Return a value as what JSON can write without losing a digit; what JSON has no word for is text."""
    if isinstance(value, dict):
        return {str(key): tree(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [tree(one) for one in value]
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, int | float | Decimal):
        return Number(_digits(value, "")) if _is_finite(value) else _NON_FINITE[str(value).lower()]
    return text_of(value)


_NON_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity", "infinity": "Infinity", "-infinity": "-Infinity"}


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, UUID):
        return value.bytes
    raise UnfitError(f"{type(value).__name__} cannot become bytes")


def _to_float(value: Any) -> float:
    if isinstance(value, bool | int | float | Decimal) or (isinstance(value, str) and _DIGITS.fullmatch(value)):
        try:
            return float(value)
        except OverflowError:
            raise UnfitError("is too large for a number with a point") from None
    raise UnfitError(f"{text_of(value)[:80]!r} is not a number")


def _is_finite(value: float | Decimal) -> bool:
    """Return whether a number has digits, of which one that is exact may have more than a float has room for."""
    return isinstance(value, int) or (value.is_finite() if isinstance(value, Decimal) else math.isfinite(value))


def _digits(value: bool | float | Decimal, kind: str) -> str:  # noqa: FBT001 - a value, no switch
    """Return a number as people write it; a whole one has no point where the column has none."""
    if isinstance(value, bool):
        literals = ("0", "1") if kind in (*WHOLE, "numeric") else ("false", "true")
        return literals[value]
    if isinstance(value, int) or not _is_finite(value):
        return str(value)
    if kind in (*WHOLE, "boolean") and value == int(value):
        return str(int(value))
    if isinstance(value, Decimal):
        return format(value, "f")
    return format(Decimal(repr(value)), "f") if kind == "numeric" else repr(value)


def _to_utc(value: datetime) -> datetime:
    return value if value.tzinfo is None else value.astimezone(UTC)


def _instant(value: datetime) -> str:
    at = _to_utc(value).replace(tzinfo=None).isoformat(timespec="microseconds")
    return at if value.tzinfo is None else f"{at}Z"

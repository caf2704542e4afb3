"""Messages of Protobuf as plain values; a field that was not set is None, as far as Protobuf records that."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.formats.protobuf_schema import DECIMAL

if TYPE_CHECKING:
    from collections.abc import Callable

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NANOS = 10**9

MOST_DIGITS = 4_000
"""Digits on a side of the point that no database has room for; to write out more could fill the memory."""


def values_of(message: Any) -> dict[str, Any]:
    """Return the fields of a message by name."""
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def _field(message: Any, field: Any) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    content = getattr(message, field.name)
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        of = inner.fields_by_name["value"]
        return {_key(key): _value(one, of) for key, one in content.items()}
    if field.is_repeated:
        return [_value(one, field) for one in content]
    return _value(content, field)


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _value(value: Any, field: Any) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if field.message_type is None:
        return value
    means: Callable[[Any], Any] = _KNOWN.get(field.message_type.full_name, values_of)
    return means(value)


def _timestamp(value: Any) -> datetime:
    return _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)


def _duration(value: Any) -> str:
    return f"{format((Decimal(value.seconds) + Decimal(value.nanos) / _NANOS).normalize(), 'f')}s"


def _decimal(value: Any) -> Decimal:
    if abs(value.scale) > MOST_DIGITS:
        raise ValueError(f"a decimal has a scale of {value.scale}")
    unscaled = int.from_bytes(value.value, "big", signed=True)
    # Arithmetic of decimals, scaleb too, rounds to 28 digits.
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -value.scale))


def _wrapped(value: Any) -> Any:
    return value.value


def _struct(value: Any) -> dict[str, Any]:
    return {key: _any_value(one) for key, one in value.fields.items()}


def _list(value: Any) -> list[Any]:
    return [_any_value(one) for one in value.values]


def _any_value(value: Any) -> Any:
    chosen = value.WhichOneof("kind")
    if chosen in (None, "null_value"):
        return None
    content = getattr(value, chosen)
    return {"struct_value": _struct, "list_value": _list}.get(chosen, lambda one: one)(content)


_WRAPPERS = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
_KNOWN: dict[str, Callable[[Any], Any]] = {
    "google.protobuf.Timestamp": _timestamp,
    "google.protobuf.Duration": _duration,
    "google.protobuf.Struct": _struct,
    "google.protobuf.ListValue": _list,
    "google.protobuf.Value": _any_value,
    "google.type.Date": lambda value: date(value.year, value.month, value.day),
    DECIMAL: _decimal,
    **{f"google.protobuf.{name}Value": _wrapped for name in _WRAPPERS},
}
"""Messages that mean one value."""

"""Values of features between Python and databases: keys and instants in, values of the declared types out."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ematix_flow.errors import DeclareError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.declare.table.schema import Column

_NO_KEYS = ("bytes", "json", "jsonb")


def instant_of(value: Any, where: str) -> datetime:
    """Return an instant in UTC; one without a zone is taken as UTC, as everywhere."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            value = None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    # A missing value of pandas is a datetime too, and equals nothing.
    if not isinstance(value, datetime) or value != value:  # noqa: PLR0124
        message = f"{where} has no instant in as_of"
        raise DeclareError(message, hint="as_of is a datetime; one without a zone is taken as UTC.")
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def instant_text(value: datetime, dialect: str) -> str:
    """Return an instant as the dialect's databases store or read it; parts of a microsecond are dropped."""
    return _local_text(value) + ("" if dialect == "mysql" else "+00:00")


def _local_text(value: datetime) -> str:
    """Return date and time of day in microseconds; unlike `strftime`, with four digits of every year."""
    return value.replace(tzinfo=None).isoformat(" ", "microseconds")


def check_key(column: Column, view: str) -> None:
    """Refuse keys of types by which no row can be looked up on every system."""
    if column.type.kind in _NO_KEYS:
        message = f"entity key {column.name!r} of {view} is {column.type.kind}, by which values cannot be looked up"
        raise UnsupportedError(message, hint="use a number, a text, a UUID or a date as the key.")


def key_value(value: Any, kind: str, dialect: str) -> Any:  # noqa: PLR0911 - one line per type
    """Return the value of a key, which has its declared type, as JSON and as a parameter; None never matches."""
    if value is None:
        return None
    match kind:
        case "boolean":
            return int(value) if dialect in ("mysql", "sqlite") else bool(value)
        case "timestamp_tz":
            return instant_text(value, dialect)
        case "timestamp":
            return _local_text(value)
        case "date":
            return value.isoformat()
        case "numeric":
            return format(value, "f")
        case "uuid":
            return value.lower()
        case "text" | "string":
            # PostgreSQL has no text with this character, so that no row has such a key.
            return None if dialect == "postgres" and "\0" in value else value
        case _:
            return value


def feature_value(value: Any, kind: str) -> Any:
    """Return the value of a feature as Python knows its declared type, whatever the driver made of it."""
    read = _READ.get(kind)
    return value if value is None or read is None else read(value)


_READ: dict[str, Callable[[Any], Any]] = {
    "boolean": bool,
    "small_int": int,
    "integer": int,
    "big_int": int,
    "float": float,
    "double": float,
    "numeric": lambda value: value if isinstance(value, Decimal) else Decimal(str(value)),
    "timestamp_tz": lambda value: instant_of(value, "the database"),
    "timestamp": lambda value: datetime.fromisoformat(value) if isinstance(value, str) else value,
    "date": lambda value: date.fromisoformat(value) if isinstance(value, str) else value,
    "json": lambda value: json.loads(value) if isinstance(value, str | bytes) else value,
    "jsonb": lambda value: json.loads(value) if isinstance(value, str | bytes) else value,
    "bytes": bytes,
    "uuid": str,
}
"""How a value of a declared type is read from what drivers return."""

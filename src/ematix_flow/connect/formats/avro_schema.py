"""Schemas of Avro for rows that have none: derived from the types of their columns, every field optional."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from ematix_flow.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MOST_DIGITS = 38


def derived(columns: Iterable[pa.Field], subject: str) -> str:
    """Return the schema of a record with these columns."""
    return json.dumps({"type": "record", "name": record_name(subject), "fields": [_field(one) for one in columns]})


def added(text: str, columns: Iterable[pa.Field]) -> str:
    """Return a schema with more optional fields, which readers of the old one can do without."""
    schema = json.loads(text)
    schema["fields"] = [*schema["fields"], *(_field(one) for one in columns)]
    return json.dumps(schema)


def record_name(subject: str) -> str:
    """Return the name of the record of a subject."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", subject.removesuffix("-value"))
    return name if _NAME.fullmatch(name) else f"_{name}"


def field_name(name: str) -> str:
    """Return the name of a column that a schema takes as it is; others are refused."""
    if not _NAME.fullmatch(name):
        message = f"a schema cannot have a field {name!r}"
        raise RunError(message, hint="give the column a name of letters, digits and _ in the SQL of the stream.")
    return name


def types_of(parsed: Any) -> dict[str, tuple[str, ...]]:
    """Return the fields of a record, with the names of the types that each may have."""
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        message = "rows can only be written with the schema of a record"
        raise RunError(message, hint="register the schema of a record.")
    return {field["name"]: _types(field["type"]) for field in parsed["fields"]}


def _types(declared: Any) -> tuple[str, ...]:
    if isinstance(declared, list):
        return tuple(name for one in declared for name in _types(one))
    if isinstance(declared, dict):
        # A text with a meaning of its own, as a UUID, does not take any text.
        return (str(declared.get("logicalType", declared["type"])),)
    return (str(declared),)


def _field(column: pa.Field) -> dict[str, Any]:
    return {"name": field_name(column.name), "type": ["null", _avro_type(column.type)], "default": None}


def _avro_type(kind: pa.DataType) -> Any:
    """Return the type for an Arrow type; lists, structs and what Avro lacks are text."""
    import pyarrow as pa

    types = pa.types
    if types.is_boolean(kind):
        return "boolean"
    if types.is_uint64(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 0}
    if types.is_integer(kind):
        return "int" if kind.bit_width < 32 or types.is_int32(kind) else "long"  # noqa: PLR2004
    if types.is_floating(kind):
        return "double" if types.is_float64(kind) else "float"
    if types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": MOST_DIGITS, "scale": kind.scale}
    if types.is_date(kind):
        return {"type": "int", "logicalType": "date"}
    if types.is_timestamp(kind):
        return {"type": "long", "logicalType": "timestamp-micros" if kind.tz else "local-timestamp-micros"}
    return "bytes" if types.is_binary(kind) or types.is_large_binary(kind) else "string"

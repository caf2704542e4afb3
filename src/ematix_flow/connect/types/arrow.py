"""Declared types as Arrow types, which carry rows between systems; it moves no rows itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ematix_flow.connect.types.digits import digits_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ematix_flow.connect.base.stage import StageColumn
    from ematix_flow.declare.table.types import ColumnType

REJECTS = pa.schema(
    [
        pa.field("reason", pa.string()),
        pa.field("column_name", pa.string()),
        pa.field("source_position", pa.string()),
        pa.field("row_json", pa.string()),
    ]
)
"""How rejected rows are staged, whatever the target."""

_PLAIN: dict[str, pa.DataType] = {
    "small_int": pa.int16(),
    "integer": pa.int32(),
    "big_int": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "text": pa.string(),
    "string": pa.string(),
    "json": pa.string(),
    "jsonb": pa.string(),
    "uuid": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamp_tz": pa.timestamp("us", tz="UTC"),
    "bytes": pa.binary(),
}


def arrow_type(column_type: ColumnType) -> pa.DataType:
    """Return the Arrow type that carries a declared type exactly."""
    if column_type.kind == "numeric":
        return pa.decimal128(*digits_of(column_type))
    return _PLAIN[column_type.kind]


def staged_schema(columns: Iterable[StageColumn]) -> pa.Schema:
    """Return the schema of the rows that a load stages."""
    return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in columns])


def family_of(data_type: pa.DataType) -> str:  # noqa: PLR0911 - one line per family
    """Return the type family that the shape of a load reasons about; lists, structs and maps are read as JSON."""
    types = pa.types
    if types.is_nested(data_type):
        return "json"
    if types.is_string(data_type) or types.is_large_string(data_type) or types.is_string_view(data_type):
        return "text"
    if types.is_integer(data_type):
        return "integer"
    if types.is_decimal(data_type):
        return "decimal"
    if types.is_floating(data_type):
        return "float"
    if types.is_boolean(data_type):
        return "boolean"
    if types.is_date(data_type):
        return "date"
    if types.is_timestamp(data_type):
        return "timestamp_tz" if data_type.tz else "timestamp"
    if types.is_binary(data_type) or types.is_large_binary(data_type) or types.is_fixed_size_binary(data_type):
        return "binary"
    return "other"


def with_exact_text(array: pa.Array) -> pa.Array:
    """Return decimals as their texts, of which Arrow makes the nearest float, and any other array as it is.

    Of the decimals themselves it divides the digits: every eighth sum of money is off by one in the last place.
    """
    return array.cast(pa.string()) if pa.types.is_decimal(array.type) else array

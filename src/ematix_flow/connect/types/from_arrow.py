"""Declared types for Arrow types, where a table is created from rows without a declaration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ematix_flow.connect.types.arrow import family_of
from ematix_flow.declare.table import types

if TYPE_CHECKING:
    from ematix_flow.declare.table.types import ColumnType

_DIGITS = 38


def declared_type(data_type: pa.DataType) -> ColumnType:
    """Return the declared type that holds every value of an Arrow type."""
    if pa.types.is_decimal(data_type):
        return types.Numeric(min(data_type.precision, _DIGITS), max(data_type.scale, 0))
    if pa.types.is_uint64(data_type):
        return types.Numeric(20, 0)
    return _FAMILIES.get(family_of(data_type), types.Text())


def narrow_type(data_type: pa.DataType) -> ColumnType:
    """Return the declared type of a new column for a frame: as narrow as its own; each timestamp is an instant."""
    if pa.types.is_timestamp(data_type):
        return types.TimestampTZ()
    return _NARROW.get(str(data_type)) or declared_type(data_type)


_NARROW: dict[str, ColumnType] = {
    **dict.fromkeys(("int8", "uint8", "int16"), types.SmallInt()),
    **dict.fromkeys(("uint16", "int32"), types.Integer()),
    **dict.fromkeys(("halffloat", "float"), types.Float()),
}

_FAMILIES: dict[str, ColumnType] = {
    "integer": types.BigInt(),
    "float": types.Double(),
    "boolean": types.Boolean(),
    "date": types.Date(),
    "timestamp": types.Timestamp(),
    "timestamp_tz": types.TimestampTZ(),
    "binary": types.Bytes(),
    "json": types.JSONB(),
}

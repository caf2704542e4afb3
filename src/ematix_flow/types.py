"""Public names of the column types; nothing else is defined here."""

from ematix_flow.declare.table.types import (
    JSON,
    JSONB,
    UUID,
    BigInt,
    Boolean,
    Bytes,
    ColumnType,
    Date,
    Double,
    Float,
    Integer,
    Numeric,
    SmallInt,
    String,
    Text,
    Timestamp,
    TimestampTZ,
)

__all__ = [
    "JSON", "JSONB", "UUID", "BigInt", "Boolean", "Bytes", "ColumnType", "Date", "Double", "Float", "Integer", "Numeric",
    "SmallInt", "String", "Text", "Timestamp", "TimestampTZ",
]  # fmt: skip

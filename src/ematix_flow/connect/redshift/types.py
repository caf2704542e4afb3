"""Types of Redshift for rows in common types, and Arrow's for what a query returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ematix_flow.connect.types.identifiers import quoted
from ematix_flow.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg import Column

LONGEST_TEXT = 65535
"""Bytes of the longest VARCHAR."""

_TYPES = {
    pa.bool_(): "BOOLEAN",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE PRECISION",
    pa.string(): f"VARCHAR({LONGEST_TEXT})",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP",
    pa.timestamp("us", "UTC"): "TIMESTAMPTZ",
}
_READ = {
    16: pa.bool_(),
    20: pa.int64(),
    21: pa.int64(),
    23: pa.int64(),
    700: pa.float64(),
    701: pa.float64(),
    18: pa.string(),
    19: pa.string(),
    25: pa.string(),
    1042: pa.string(),
    1043: pa.string(),
    1082: pa.date32(),
    1114: pa.timestamp("us"),
    1184: pa.timestamp("us", "UTC"),
}
_NUMERIC, _UNKNOWN = 1700, 705
_WIDEST = pa.decimal128(38, 10)


def column_type(kind: pa.DataType) -> str:
    """Return the type of a column."""
    return f"DECIMAL({kind.precision}, {kind.scale})" if pa.types.is_decimal(kind) else _TYPES[kind]


def columns_sql(schema: pa.Schema) -> str:
    """Return the columns of CREATE TABLE."""
    return ", ".join(f"{quoted(field.name)} {column_type(field.type)}" for field in schema)


def result_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the types of the columns of a query, or refuse one that has no type in Arrow here."""
    return pa.schema([pa.field(column.name, _result_type(column)) for column in columns])


def _result_type(column: Column) -> pa.DataType:
    if column.type_code == _NUMERIC:
        return _WIDEST if column.precision is None else pa.decimal128(column.precision, column.scale or 0)
    if column.type_code in (*_READ, _UNKNOWN):
        return _READ.get(column.type_code, pa.string())
    message = f"column {column.name!r} of the query is of a type (number {column.type_code}) that cannot be read"
    raise PlanError(message, hint="cast it in the query, for example CAST(... AS VARCHAR).")

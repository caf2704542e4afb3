"""Types of Snowflake for rows in common types, and Arrow's for what a query returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from ematix_flow.connect.warehouse.names import name_sql
from ematix_flow.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Sequence

KIND = "snowflake"

_TYPES = {
    pa.bool_(): "BOOLEAN",
    pa.int64(): "NUMBER(38, 0)",
    pa.float64(): "FLOAT",
    pa.string(): "VARCHAR",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
    pa.timestamp("us", "UTC"): "TIMESTAMP_TZ",
}
_FIXED = 0
_LONGEST_INT64 = 18
_READ = {
    1: pa.float64(),
    2: pa.string(),
    3: pa.date32(),
    5: pa.string(),
    6: pa.timestamp("us", "UTC"),
    7: pa.timestamp("us", "UTC"),
    8: pa.timestamp("us"),
    9: pa.string(),
    10: pa.string(),
    13: pa.bool_(),
}
"""By the numbers that the connector gives types: REAL, TEXT, DATE, VARIANT, three timestamps, OBJECT, ARRAY and BOOLEAN."""


class ResultColumn(Protocol):
    """What the connector tells about a column of a result."""

    name: str
    type_code: int
    precision: int | None
    scale: int | None


def columns_sql(schema: pa.Schema) -> str:
    """Return the columns of CREATE TABLE."""
    return ", ".join(f"{name_sql(field.name, KIND)} {column_type(field.type)}" for field in schema)


def column_type(kind: pa.DataType) -> str:
    """Return the type of a column."""
    return f"NUMBER({kind.precision}, {kind.scale})" if pa.types.is_decimal(kind) else _TYPES[kind]


def result_schema(columns: Sequence[ResultColumn]) -> pa.Schema:
    """Return the types of a result; its chunks have narrower ones, each as its values allow."""
    return pa.schema([pa.field(column.name, _result_type(column)) for column in columns])


def _result_type(column: ResultColumn) -> pa.DataType:
    if column.type_code == _FIXED:
        precision, scale = column.precision or 38, column.scale or 0
        return pa.int64() if not scale and precision <= _LONGEST_INT64 else pa.decimal128(precision, scale)
    if column.type_code in _READ:
        return _READ[column.type_code]
    message = f"column {column.name!r} of the query is of a type (number {column.type_code}) that cannot be read"
    raise PlanError(message, hint="cast it in the query, for example CAST(... AS VARCHAR).")

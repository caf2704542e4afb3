"""Types of BigQuery for rows in common types, and Arrow's for what a query returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from ematix_flow.connect.types.identifiers import backticked
from ematix_flow.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Sequence

_LOCAL, _INSTANT = pa.timestamp("us"), pa.timestamp("us", "UTC")
_TYPES = {
    pa.bool_(): "BOOL",
    pa.int64(): "INT64",
    pa.float64(): "FLOAT64",
    pa.string(): "STRING",
    pa.date32(): "DATE",
    _LOCAL: "DATETIME",
    _INSTANT: "TIMESTAMP",
}
_NUMERIC_DIGITS, _NUMERIC_SCALE = 29, 9
_READ = {
    "BOOL": pa.bool_(),
    "BOOLEAN": pa.bool_(),
    "INT64": pa.int64(),
    "INTEGER": pa.int64(),
    "FLOAT64": pa.float64(),
    "FLOAT": pa.float64(),
    "STRING": pa.string(),
    "DATE": pa.date32(),
    "DATETIME": _LOCAL,
    "TIMESTAMP": _INSTANT,
    "NUMERIC": pa.decimal128(38, 9),
}


class ResultField(Protocol):
    """What the client library tells about a column of a result."""

    name: str
    field_type: str
    mode: str


def columns_sql(schema: pa.Schema) -> str:
    """Return the columns of CREATE TABLE."""
    return ", ".join(f"{backticked(field.name)} {column_type(field.type)}" for field in schema)


def column_type(kind: pa.DataType) -> str:
    """Return the type of a column."""
    if not pa.types.is_decimal(kind):
        return _TYPES[kind]
    fits = kind.scale <= _NUMERIC_SCALE and kind.precision - kind.scale <= _NUMERIC_DIGITS
    return f"{'NUMERIC' if fits else 'BIGNUMERIC'}({kind.precision}, {kind.scale})"


def staged_schema(schema: pa.Schema) -> pa.Schema:
    """Return the types that rows are staged in: local times as instants, which Parquet and BigQuery agree about."""
    return pa.schema([pa.field(f.name, _INSTANT if f.type == _LOCAL else f.type) for f in schema])


def staged_query(relation: str, schema: pa.Schema) -> str:
    """Return the staged rows in the types of the target."""
    names = {field.name: backticked(field.name) for field in schema}
    read = [
        f"DATETIME({names[f.name]}, 'UTC') AS {names[f.name]}" if f.type == _LOCAL else names[f.name] for f in schema
    ]
    return f"(SELECT {', '.join(read)} FROM {relation})"


def result_schema(fields: Sequence[ResultField]) -> pa.Schema:
    """Return the types of a result, or refuse a column that cannot be read."""
    for field in fields:
        if field.field_type not in _READ or field.mode == "REPEATED":
            message = f"column {field.name!r} of the query is {field.mode} {field.field_type}, which cannot be read"
            raise PlanError(message, hint="turn it into another type in the query, for example TO_JSON_STRING(...).")
    return pa.schema([pa.field(field.name, _READ[field.field_type]) for field in fields])

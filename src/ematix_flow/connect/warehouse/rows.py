"""Rows in the types that every warehouse has, and as Parquet parts."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from ematix_flow.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PART_BYTES = 64 * 1024 * 1024
"""How much of Arrow's memory goes into one part."""

_MOST_DIGITS = 38


def common_schema(schema: pa.Schema) -> pa.Schema:
    """Return the types in which rows are staged; a column that no warehouse takes is refused by its name."""
    return pa.schema([pa.field(field.name, _common_type(field.name, field.type)) for field in schema])


def _common_type(name: str, kind: pa.DataType) -> pa.DataType:
    if pa.types.is_boolean(kind) or pa.types.is_date32(kind):
        return kind
    if pa.types.is_uint64(kind):
        return pa.decimal128(20, 0)
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_decimal(kind) and kind.precision <= _MOST_DIGITS and kind.scale >= 0:
        return pa.decimal128(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind):
        return pa.string()
    message = f"column {name!r} is {kind}, which warehouse pipelines cannot write"
    raise PlanError(message, hint="turn it into text in the SQL of the pipeline, for example to_json(...) or hex(...).")


def in_common_types(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Return batches in the types of a schema; a value that does not fit is an error."""
    for batch in batches:
        if batch.num_rows:
            yield from pa.Table.from_batches([batch]).cast(schema).combine_chunks().to_batches()


def parquet_parts(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[tuple[bytes, int]]:
    """Return rows as Parquet files with their numbers of rows."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(one.nbytes for one in waiting) >= PART_BYTES:
            yield _part(waiting, schema)
            waiting = []
    if waiting:
        yield _part(waiting, schema)


def _part(batches: list[pa.RecordBatch], schema: pa.Schema) -> tuple[bytes, int]:
    table, out = pa.Table.from_batches(batches, schema), io.BytesIO()
    pq.write_table(table, out, coerce_timestamps="us", compression="snappy")
    return out.getvalue(), table.num_rows

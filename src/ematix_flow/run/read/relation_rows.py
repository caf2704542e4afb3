"""Rows of a database in the types that SQL of Spark computes with: numbers are numbers, and a value that does not fit is an error."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ematix_flow.errors import RunError
from ematix_flow.run.read.frames import declared_schema, refuse_unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from ematix_flow.connect.base.columns import SourceColumn
    from ematix_flow.connect.base.source import SqlSource

MOST_DIGITS = 38
_SIZE = re.compile(r"\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_UNSIZED = (MOST_DIGITS, 18)
"""Digits, and those after the point, of numbers whose type names none; the same as Spark's own readers of databases take."""
_WIDE = {"HUGEINT": (MOST_DIGITS, 0), "UHUGEINT": (MOST_DIGITS, 0), "UBIGINT": (20, 0)}
"""Digits of whole numbers of DuckDB that are wider than any of Arrow with a sign, sums among them; loads read them as text."""


def relation_schema(columns: Sequence[SourceColumn]) -> pa.Schema:
    """Return the layout in which Spark sees the columns of a database."""
    import pyarrow as pa

    schema = declared_schema(columns)
    for number, column in enumerate(columns):
        digits = _digits(column.native) if column.family == "decimal" else _WIDE.get(column.native)
        if digits is not None:
            schema = schema.set(number, pa.field(column.name, pa.decimal128(*digits)))
    return schema


def _digits(native: str) -> tuple[int, int]:
    """Return precision and scale of a type as its database spells it."""
    size = _SIZE.search(native)
    if size is None:
        return _UNSIZED
    precision, scale = int(size[1]), int(size[2] or 0)
    return (precision, scale) if precision <= MOST_DIGITS and scale <= precision else _UNSIZED


def query_rows(source: SqlSource, sql: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Read a query in one state of the database and in its order; what that requires is held open for as long as it lasts."""
    from contextlib import closing

    with closing(source.session()) as session:
        for batch in source.read_in_order(session, sql):
            yield relation_batch(batch, schema)


def relation_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of a database in the layout of `relation_schema`; what the reader could not carry is an error."""
    import pyarrow as pa

    for name in batch.schema.names:
        if name not in schema.names:
            refuse_unreadable(batch.column(name))
    return pa.RecordBatch.from_arrays([_as(batch.column(field.name), field) for field in schema], schema=schema)


def _as(array: pa.Array, field: pa.Field) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if array.type == field.type:
        return array
    if pa.types.is_timestamp(array.type) and array.type.unit == "ns":
        array = pc.floor_temporal(array, unit="microsecond")
    try:
        if pa.types.is_temporal(field.type) and not (
            pa.types.is_temporal(array.type) or pa.types.is_string(array.type)
        ):
            # A number may count seconds, days or anything else.
            array = pc.cast(array, pa.string())
        if pa.types.is_decimal(field.type) and (pa.types.is_floating(array.type) or pa.types.is_integer(array.type)):
            # Through its shortest text, which is what the system shows; digits that do not fit are an error, not rounded.
            # Of whole numbers, which SQLite makes of decimals without a fraction, Arrow would go by the type and not the value.
            array = pc.cast(array, pa.string())
        return pc.cast(array, field.type)
    except pa.ArrowInvalid as error:
        message = f"column {field.name!r} has a value that is no {field.type}: {error}"
        raise RunError(message, hint="convert the column in a view of its database, or leave such rows out.") from None

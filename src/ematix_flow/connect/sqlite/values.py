"""Values between Arrow and SQLite's five storage classes; exact in both directions, or an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ematix_flow.errors import CommitError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ematix_flow.connect.base.stage import StageColumn

Stored = str | int | float | bytes | None
PLAIN_SCALE = 6
"""Decimals up to this scale are written out by Arrow; beyond it may use an exponent."""


def rows_of(batch: pa.RecordBatch, columns: Sequence[StageColumn]) -> Iterator[tuple[Stored, ...]]:
    """Return the rows of a staged batch as SQLite stores them."""
    stored = [_stored(batch.column(column.name), column) for column in columns]
    return zip(*stored, strict=True)


def _stored(array: pa.Array, column: StageColumn) -> list[Stored]:
    types, kind = pa.types, array.type
    if column.type.kind == "uuid":
        array = pc.ascii_lower(array)
    elif types.is_floating(kind):
        array = _numbers(array, column)
    elif types.is_decimal(kind):
        return _decimals(array)
    elif types.is_date(kind):
        array = pc.cast(array, pa.string())
    elif types.is_timestamp(kind):
        array = _timestamps(array)
    return array.to_pylist()  # type: ignore[no-any-return]


def _numbers(array: pa.Array, column: StageColumn) -> pa.Array:
    if pc.any(pc.is_nan(array)).as_py():
        message = f"column {column.name!r} has NaN, which SQLite would store as NULL"
        raise CommitError(message, hint="nothing was changed; give NULL or a number instead.")
    return pc.cast(array, pa.float64())


def _decimals(array: pa.Array) -> list[Stored]:
    if array.type.scale <= PLAIN_SCALE:
        return pc.cast(array, pa.string()).to_pylist()  # type: ignore[no-any-return]
    return [None if value is None else f"{value:f}" for value in array.to_pylist()]


def _timestamps(array: pa.Array) -> pa.Array:
    text = pc.cast(pc.cast(array, pa.timestamp("us")), pa.string())
    return pc.binary_join_element_wise(text, "+00:00", "") if array.type.tz else text


def batch_of(names: Sequence[str], rows: Sequence[tuple[Stored, ...]]) -> pa.RecordBatch:
    """Return fetched rows as a batch, each column in the type that holds all of its values."""
    arrays = [_array(values) for values in zip(*rows, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


def _array(values: Sequence[Stored]) -> pa.Array:
    try:
        array = pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([_text_value(value) for value in values], pa.string())
    return pc.cast(array, pa.string()) if pa.types.is_null(array.type) else array


def _text_value(value: Stored) -> str | None:
    """Return a value of a column with mixed types as text; bytes that are no text as SQLite writes them."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return f"X'{value.hex().upper()}'"
    return repr(value)

"""Calls a declared Python function of SQL on one Arrow batch, as the SQL of a stream does; it needs no Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ematix_flow.errors import DeclareError, RunError, UnknownNameError, did_you_mean
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.declare.stream.udf import PythonAggregateUdfHandle, PythonScalarUdfHandle

ARROW_TYPES = {
    "Int8": pa.int8(),
    "Int16": pa.int16(),
    "Int32": pa.int32(),
    "Int64": pa.int64(),
    "UInt8": pa.uint8(),
    "UInt16": pa.uint16(),
    "UInt32": pa.uint32(),
    "UInt64": pa.uint64(),
    "Float32": pa.float32(),
    "Float64": pa.float64(),
    "Boolean": pa.bool_(),
    "Utf8": pa.string(),
    "Binary": pa.binary(),
}
"""The name of a type in `@udf` and `@udaf` -> the type of Arrow."""


def apply_udf_to_batch(
    handle: PythonScalarUdfHandle, batch: Any, arg_columns: Sequence[str], *, output_column: str = "result"
) -> Any:
    """Return the array that a function makes of these columns; `output_column` only names it in errors."""
    result = handle.function(*_arguments(handle, batch, arg_columns))
    return checked(result, handle.returns, batch.num_rows, f"{handle.name}() for {output_column!r}")


def apply_udaf_to_batch(
    handle: PythonAggregateUdfHandle, batch: Any, arg_columns: Sequence[str], *, output_column: str = "result"
) -> Any:
    """Return the array of one value that an aggregate makes of these columns; `output_column` only names it in errors."""
    instance = handle()
    instance.update_batch(*_arguments(handle, batch, arg_columns))
    return checked(instance.evaluate(), handle.returns, 1, f"{handle.name}.evaluate() for {output_column!r}")


def checked(result: Any, returns: str, rows: int, what: str) -> Any:
    """Return what a function returned, or refuse another type or number of values than was declared."""
    if isinstance(result, pa.ChunkedArray):
        result = result.combine_chunks()
    if not isinstance(result, pa.Array):
        raise RunError(f"{what} gave {type(result).__name__}", hint="return a pyarrow Array.")
    if result.type != ARROW_TYPES[returns]:
        raise RunError(f"{what} gave {result.type}", hint=f"{returns} was declared.")
    if len(result) != rows:
        raise RunError(f"{what} gave {quantity(len(result), 'value')}", hint=f"{rows} were expected.")
    return result


def _arguments(
    handle: PythonScalarUdfHandle | PythonAggregateUdfHandle, batch: Any, columns: Sequence[str]
) -> list[Any]:
    """Return the columns as arrays of the declared types."""
    if len(columns) != len(handle.args):
        raise DeclareError(f"{handle.name}() takes {quantity(len(handle.args), 'column')}, not {len(columns)}")
    known = batch.schema.names
    for name in columns:
        if name not in known:
            raise UnknownNameError(f"the batch has no column {name!r}", hint=did_you_mean(name, known))
    pairs = zip(columns, handle.args, strict=True)
    return [_as_type(batch.column(name), ARROW_TYPES[type_name], name) for name, type_name in pairs]


def _as_type(array: Any, target_type: Any, name: str) -> Any:
    try:
        return array.cast(target_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise RunError(f"column {name!r} of type {array.type} cannot be {target_type}: {error}") from None

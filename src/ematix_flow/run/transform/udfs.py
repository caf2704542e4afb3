"""Functions and aggregates of the user as Spark's: Arrow arrays in, Arrow arrays out, once per batch of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ematix_flow.errors import RunError
from ematix_flow.run.transform.udf_batch import ARROW_TYPES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from ematix_flow.declare.stream.udf import PythonAggregateUdfHandle, PythonScalarUdfHandle

_SPARK = {
    "Int8": "tinyint",
    "Int16": "smallint",
    "Int32": "int",
    "Int64": "bigint",
    "UInt8": "smallint",
    "UInt16": "int",
    "UInt32": "bigint",
    "UInt64": "decimal(20,0)",
    "Float32": "float",
    "Float64": "double",
    "Boolean": "boolean",
    "Utf8": "string",
    "Binary": "binary",
}
"""What Spark calls the types; numbers without a sign need the next larger one."""

_CARRIED = {"UInt8": pa.int16(), "UInt16": pa.int32(), "UInt32": pa.int64(), "UInt64": pa.decimal128(20, 0)}


def register(
    spark: SparkSession, udfs: Sequence[PythonScalarUdfHandle], aggregates: Sequence[PythonAggregateUdfHandle]
) -> None:
    """Make functions and aggregates known to a session under their names."""
    from pyspark.sql.pandas import functions

    # Spark reads off annotations what takes and returns arrays, and warns where it is passed; its stubs know only that.
    arrow_udf: Any = functions.arrow_udf
    for handle in udfs:
        spark.udf.register(handle.name, arrow_udf(_scalar(handle), _SPARK[handle.returns]))
    for group in aggregates:
        spark.udf.register(group.name, arrow_udf(_aggregate(group), _SPARK[group.returns]))


def register_trying(spark: SparkSession, udfs: Sequence[PythonScalarUdfHandle], prefix: str) -> None:
    """Make functions known under longer names that return a value and, where there is none, the error of its row."""
    from pyspark.sql.pandas import functions

    arrow_udf: Any = functions.arrow_udf
    for handle in udfs:
        kind = f"struct<value:{_SPARK[handle.returns]},error:string>"
        spark.udf.register(f"{prefix}{handle.name}", arrow_udf(_trying(handle), kind))


def call(handle: PythonScalarUdfHandle, arrays: Sequence[pa.Array]) -> pa.Array:
    """Return what a function makes of arrays, in the type that it declares."""
    arguments = [_cast(array, ARROW_TYPES[name]) for array, name in zip(arrays, handle.args, strict=True)]
    result = handle.function(*arguments)
    if not isinstance(result, pa.Array | pa.ChunkedArray) or len(result) != len(arguments[0]):
        message = f"function {handle.name}() must give one pyarrow array as long as its arguments"
        raise RunError(message)
    return _cast(result, ARROW_TYPES[handle.returns])


def evaluate(handle: PythonAggregateUdfHandle, arrays: Sequence[pa.Array]) -> pa.Array:
    """Return what an aggregate makes of the rows of one group, as an array of one value."""
    group = handle.accumulator()
    group.update_batch(*(_cast(array, ARROW_TYPES[name]) for array, name in zip(arrays, handle.args, strict=True)))
    result = group.evaluate()
    if not isinstance(result, pa.Array | pa.ChunkedArray) or len(result) != 1:
        message = f"evaluate() of aggregate {handle.name} must give a pyarrow array of one value"
        raise RunError(message)
    return _cast(result, ARROW_TYPES[handle.returns])


def _scalar(handle: PythonScalarUdfHandle) -> Any:
    def function(*arrays: pa.Array) -> pa.Array:
        return _cast(call(handle, arrays), _CARRIED.get(handle.returns, ARROW_TYPES[handle.returns]))

    return function


def _trying(handle: PythonScalarUdfHandle) -> Any:
    function = _scalar(handle)

    def trying(*arrays: pa.Array) -> pa.Array:
        try:
            values, errors = function(*arrays), pa.nulls(len(arrays[0]), pa.string())
        except Exception:  # noqa: BLE001 - code of the user: which row it fails at is found below
            values, errors = _one_by_one(function, arrays)
        return pa.StructArray.from_arrays([values, errors], names=["value", "error"])

    return trying


def _one_by_one(function: Any, arrays: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array]:
    """Return values and errors of a function that is called for one row after the other."""
    values: list[Any] = []
    errors: list[str | None] = []
    kind = pa.null()
    for number in range(len(arrays[0])):
        try:
            result = function(*(array.slice(number, 1) for array in arrays))
        except Exception as error:  # noqa: BLE001 - as above
            values.append(None)
            errors.append(f"{type(error).__name__}: {error}"[:500])
        else:
            values.append(result[0].as_py())
            errors.append(None)
            kind = result.type
    return pa.array(values, kind), pa.array(errors, pa.string())


def _aggregate(handle: PythonAggregateUdfHandle) -> Any:
    carried = _CARRIED.get(handle.returns, ARROW_TYPES[handle.returns])

    def function(groups: pa.Array) -> pa.Array:
        """Take the lists of the rows of many groups."""
        rows = groups.values
        results = []
        for number in range(len(groups)):
            begin, end = (groups.offsets[index].as_py() for index in (number, number + 1))
            results.append(_cast(evaluate(handle, rows.slice(begin, end - begin).flatten()), carried))
        return pa.concat_arrays(results) if results else pa.array([], carried)

    return function


def _cast(array: Any, target_type: pa.DataType) -> pa.Array:
    whole = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    return whole if whole.type == target_type else pc.cast(whole, target_type)

"""Frames of any library as Arrow tables, in types that every system knows; it loads and stores nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ematix_flow.errors import RunError

if TYPE_CHECKING:
    import pyarrow as pa


def is_spark_frame(frame: Any) -> bool:
    """Return whether a frame lives in Spark, not in this process."""
    return _library(frame) == "pyspark" and hasattr(type(frame), "schema")


def is_frame(value: Any) -> bool:
    """Return whether a value has rows that loads can take: a frame of Spark, or one that `arrow_table` knows."""
    if isinstance(value, type):
        return False
    known = _library(value) in ("pandas", "polars", "pyarrow") or hasattr(value, "__arrow_c_stream__")
    return known or is_spark_frame(value) or _narwhals_frame(value) is not None


def arrow_table(frame: Any) -> pa.Table:
    """Return a frame as a table of pyarrow; a frame of Spark and whatever is no frame come back as they are.

    pandas, polars (lazy ones are collected) and pyarrow are known by themselves, others by Arrow's stream protocol or
    through Narwhals.
    """
    import pyarrow as pa

    if isinstance(frame, pa.Table):
        return _plain_table(frame)
    converted = frame if is_spark_frame(frame) else _converted(frame)
    return _plain_table(converted) if isinstance(converted, pa.Table) else frame


def _converted(frame: Any) -> Any:
    import pyarrow as pa

    library = _library(frame)
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    if isinstance(frame, pa.RecordBatchReader):
        return frame.read_all()
    if library == "pandas":
        return _from_pandas(frame)
    if library == "polars":
        return (frame.collect() if hasattr(frame, "collect") else frame).to_arrow()
    if hasattr(frame, "__arrow_c_stream__"):
        return pa.table(frame)
    wrapped = _narwhals_frame(frame)
    if wrapped is None:
        return frame
    return (wrapped.collect("pyarrow") if hasattr(wrapped, "collect") else wrapped).to_arrow()


def _library(frame: Any) -> str:
    return type(frame).__module__.partition(".")[0]


def _from_pandas(frame: Any) -> pa.Table:
    import pyarrow as pa

    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        fact = "; ".join(str(part) for part in error.args)
        message = f"a column of the frame has values of several types: {fact}"
        raise RunError(message, hint="convert it to one type, for example with astype(str).") from None


def _narwhals_frame(value: Any) -> Any:
    """Return the value as Narwhals sees it; None where it is not installed, or knows no such frame."""
    if value is None or isinstance(value, str | bytes | int | float | list | tuple | dict):
        return None
    try:
        import narwhals
    except ModuleNotFoundError:
        return None
    wrapped = narwhals.from_native(value, pass_through=True)
    return wrapped if isinstance(wrapped, narwhals.DataFrame | narwhals.LazyFrame) else None


def _plain_table(table: pa.Table) -> pa.Table:
    """Return the table without dictionaries and extension types, whose values other systems do not know."""
    for number, field in enumerate(table.schema):
        column = _plain_column(table.column(number))
        if column.type != field.type:
            table = table.set_column(number, field.name, column)
    return table


def _plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_dictionary(kind):
        return _plain_column(pc.cast(column, kind.value_type))
    if not isinstance(kind, pa.BaseExtensionType):
        return column
    if kind.extension_name == "arrow.uuid":
        return pa.chunked_array(
            [[None if value is None else str(value) for value in chunk.to_pylist()] for chunk in column.chunks],
            pa.string(),
        )
    return pa.chunked_array([chunk.storage for chunk in column.chunks], kind.storage_type)

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

    from ematix_flow.connect.types.plain_arrow import decoded_table

    if isinstance(frame, pa.Table):
        return decoded_table(frame)
    converted = frame if is_spark_frame(frame) else _converted(frame)
    return decoded_table(converted) if isinstance(converted, pa.Table) else frame


def loaded_table(frame: Any) -> pa.Table:
    """Return a frame of this process as a load takes it, in types that both engines know."""
    from ematix_flow.connect.types.plain_arrow import plain_table

    return plain_table(arrow_table(frame))


def loaded_schema(frame: Any) -> pa.Schema:
    """Return the columns of `loaded_table`; no value is brought into the types of engines for it."""
    from ematix_flow.connect.types.plain_arrow import plain_table

    return plain_table(arrow_table(frame).schema.empty_table()).schema


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
        return _from_polars(frame.collect() if hasattr(frame, "collect") else frame)
    if hasattr(frame, "__arrow_c_stream__"):
        return pa.table(frame)
    wrapped = _narwhals_frame(frame)
    if wrapped is None:
        return frame
    return (wrapped.collect("pyarrow") if hasattr(wrapped, "collect") else wrapped).to_arrow()


def _library(frame: Any) -> str:
    return type(frame).__module__.partition(".")[0]


def _from_polars(frame: Any) -> Any:
    import polars as pl

    if not isinstance(frame, pl.DataFrame):
        return frame.to_arrow()
    objects = [name for name, kind in frame.schema.items() if kind == pl.Object]
    if objects:
        message = f"column {objects[0]!r} of the frame has objects of Python, which are no values"
        raise RunError(message, hint="convert it to a type of polars, or drop it.")
    # Whole numbers of 128 bits are polars' own: Arrow has none.
    wide = [name for name, kind in frame.schema.items() if str(kind) in ("Int128", "UInt128")]
    return frame.with_columns(pl.col(wide).cast(pl.String)).to_arrow() if wide else frame.to_arrow()


def _from_pandas(frame: Any) -> Any:
    import pyarrow as pa

    names = list(getattr(frame, "columns", ()))
    repeated = [name for number, name in enumerate(names) if name in names[:number]]
    if repeated:
        message = f"the frame has several columns with the name {str(repeated[0])!r}"
        raise RunError(message, hint="give each a name of its own.")
    # Arrow would count periods from 1970, without their unit.
    periods = [name for name in names if str(frame.dtypes[name]).startswith("period[")]
    frame = frame.astype(dict.fromkeys(periods, "string")) if periods else frame
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

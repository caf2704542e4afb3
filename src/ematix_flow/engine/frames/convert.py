"""Arrow tables as frames of the library that a caller prefers; a library is imported when it is first used."""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.types.frames import arrow_table, is_frame, is_spark_frame
from ematix_flow.errors import DeclareError, DeclareTypeError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from ematix_flow.engine.frames.read import Rows

AUTO = "auto"
LIBRARIES = ("polars", "pandas", "pyarrow", "duckdb", "modin", "cudf")
"""What `prefer` may name; `arrow` is another name of pyarrow, and the last two come through Narwhals."""


def frame_of(table: pa.Table, prefer: str = AUTO) -> Any:
    """Return a table as a frame of the preferred library; with `auto` of polars if it is installed, else of pandas."""
    library = chosen_library(prefer)
    match library:
        case "pyarrow":
            return table
        case "polars":
            return _imported("polars", "df").from_arrow(table)
        case "pandas":
            return _pandas_frame(table)
        case "duckdb":
            return _imported("duckdb", "").from_arrow(table)
    narwhals = _imported("narwhals", "df")
    _imported(library, "")
    return narwhals.from_arrow(table, backend=library).to_native()


def chosen_library(prefer: Any) -> str:
    """Return the library that a caller prefers; nothing is imported."""
    if prefer == AUTO:
        return "polars" if importlib.util.find_spec("polars") is not None else "pandas"
    library = "pyarrow" if prefer == "arrow" else prefer
    if library not in LIBRARIES:
        message = f"prefer={prefer!r} is no library of frames"
        raise DeclareError(message, hint=f"one of: {', '.join((AUTO, 'arrow', *LIBRARIES))}.")
    return str(library)


def table_from(frame: Any) -> pa.Table:
    """Return any frame, one of Spark too, as an Arrow table."""
    if is_spark_frame(frame):
        from ematix_flow.run.read.frames import collected

        return collected(frame)
    if not is_frame(frame):
        message = f"{type(frame).__name__} is no frame"
        raise DeclareTypeError(
            message, hint="use a frame of polars, pandas, pyarrow, DuckDB, Spark or any other library."
        )
    return arrow_table(frame)


def lazy_polars(schema: pa.Schema, rows: Callable[[list[str] | None], Rows]) -> Any:
    """Return a lazy frame of polars that reads when it is collected: only the columns and as many rows as it uses."""
    polars = _imported("polars", "df")
    plugins = importlib.import_module("polars.io.plugins")

    def read(columns: list[str] | None, predicate: Any, limit: int | None, batch_size: int | None) -> Iterator[Any]:
        del batch_size
        left = limit
        for batch in rows(columns).batches():
            frame = polars.from_arrow(batch)
            if columns is not None:
                frame = frame.select(columns)
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            yield frame if predicate is None else frame.filter(predicate)
            if left == 0:
                return

    return plugins.register_io_source(read, schema=polars.from_arrow(schema.empty_table()).schema)


def _pandas_frame(table: pa.Table) -> Any:
    """Return the frame of pandas: whole numbers and truth values with NULLs get the types of pandas that hold both."""
    pandas = _imported("pandas", "")
    frame = table.to_pandas()
    for field, column in zip(table.schema, table.columns, strict=True):
        nullable = _NULLABLE.get(str(field.type))
        if nullable is not None and column.null_count:
            dtype = getattr(pandas, nullable)()
            frame[field.name] = column.to_pandas(types_mapper=lambda _, dtype=dtype: dtype)
    return frame


_NULLABLE = {
    "bool": "BooleanDtype",
    **{f"int{bits}": f"Int{bits}Dtype" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"UInt{bits}Dtype" for bits in (8, 16, 32, 64)},
}
"""By Arrow type: NumPy has no NULL, and a float would round large numbers."""


def _imported(package: str, extra: str) -> Any:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError:
        message = f"a frame of {package} needs the package {package!r}, which is not installed"
        install = f'"ematix-flow-spark[{extra}]"' if extra else package
        raise MissingExtraError(message, hint=f"pip install {install}") from None

"""What connections and `ematix_flow.df` call to read and write frames; each takes the connection first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ematix_flow.connect.types.frames import is_spark_frame
from ematix_flow.engine.frames.convert import AUTO, chosen_library, frame_of, lazy_polars, table_from
from ematix_flow.engine.frames.on_spark import frame_on_spark, read_on_spark
from ematix_flow.engine.frames.read import query_value, rows_of
from ematix_flow.engine.frames.write import write_frame
from ematix_flow.errors import DeclareTypeError

if TYPE_CHECKING:
    import pyarrow as pa


def read_df(connection: Any, sql: str, *, prefer: str = AUTO) -> Any:
    """Return the rows of a query as a frame: of polars if it is installed, else of pandas, or of the preferred library."""
    library = chosen_library(prefer)
    return frame_of(read_arrow(connection, sql), library)


def read_arrow(connection: Any, sql: str) -> pa.Table:
    """Return the rows of a query as an Arrow table."""
    return rows_of(query_value(connection, sql)).table()


def read_batches(connection: Any, sql: str) -> pa.RecordBatchReader:
    """Return the rows of a query as they come, for results that are larger than memory."""
    return rows_of(query_value(connection, sql)).reader()


def scan_df(connection: Any, sql: str) -> Any:
    """Return a lazy frame of polars over a query, which is run when the frame is collected."""
    rows = rows_of(query_value(connection, sql))
    return lazy_polars(rows.schema, lambda _: rows)


def write_df(connection: Any, df: Any, table: str, *, mode: str = "append", **keywords: Any) -> dict[str, Any]:
    """Load a frame into a table and return the result."""
    return write_frame(connection, df, table, mode=mode, **keywords)


def read_spark_df(connection: Any, spark: Any, sql: str) -> Any:
    """Return a query as a frame of Spark, which reads it whenever the frame is evaluated."""
    return read_on_spark(connection, spark, sql)


def write_spark_df(connection: Any, df: Any, table: str, *, mode: str = "append", **keywords: Any) -> dict[str, Any]:
    """Load a frame of Spark into a table, by tasks of its own session, and return the result."""
    if not is_spark_frame(df):
        message = f"{type(df).__name__} is no frame of Spark"
        raise DeclareTypeError(message, hint="write_df() takes frames of every library.")
    return write_frame(connection, df, table, mode=mode, **keywords)


def to_arrow(frame: Any) -> pa.Table:
    """Return a frame of any library as an Arrow table."""
    return table_from(frame)


def to_polars(frame: Any) -> Any:
    """Return a frame of any library as one of polars."""
    return frame_of(table_from(frame), "polars")


def to_pandas(frame: Any) -> Any:
    """Return a frame of any library as one of pandas."""
    return frame_of(table_from(frame), "pandas")


def to_pyspark(frame: Any, spark: Any = None) -> Any:
    """Return a frame of any library as one of Spark, on the caller's session or on the one of this process."""
    return frame_on_spark(frame, spark)

"""What every connection offers for frames: methods that load the engine at their call, and no library of frames before."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

INTEROP = "ematix_flow.engine.frames.interop"
"""Looked up at the call, so that declaring never loads what running needs."""


def _interop() -> ModuleType:
    return importlib.import_module(INTEROP)


class FrameMethods:
    """Reads and writes frames of any library on one connection."""

    __slots__ = ()

    def read_df(self, sql: str, *, prefer: str = "auto") -> Any:
        """Return the rows of a query as a frame: of polars if it is installed, else of pandas, or of the preferred library."""
        return _interop().read_df(self, sql, prefer=prefer)

    def scan_df(self, sql: str) -> Any:
        """Return a lazy frame of polars over a query, which is run when the frame is collected."""
        return _interop().scan_df(self, sql)

    def read_batches(self, sql: str) -> Any:
        """Return the rows of a query as a reader of Arrow batches, for results that are larger than memory."""
        return _interop().read_batches(self, sql)

    def write_df(  # noqa: PLR0913 - the public keywords
        self,
        df: Any,
        table: str,
        *,
        mode: str = "append",
        target: Any = None,
        keys: Any = None,
        update_columns: Any = None,
        compare_columns: Any = None,
        event_timestamp_column: str | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        """Load a frame into a table and return the result; without `target` the table is built from the frame's types.

        `more` is what pipelines take too, such as `on_bad_row` and `on_drift`.
        """
        keywords = {
            "target": target,
            "keys": keys,
            "update_columns": update_columns,
            "compare_columns": compare_columns,
            "event_timestamp_column": event_timestamp_column,
        }
        result: dict[str, Any] = _interop().write_df(self, df, table, mode=mode, **keywords, **more)
        return result

    def read_spark_df(self, spark: Any, sql: str) -> Any:
        """Return a query as a frame of Spark, which reads it whenever the frame is evaluated; no JDBC driver is needed."""
        return _interop().read_spark_df(self, spark, sql)

    def write_spark_df(self, df: Any, table: str, *, mode: str = "append", **keywords: Any) -> dict[str, Any]:
        """Load a frame of Spark into a table as `write_df` does, by tasks of its own session."""
        result: dict[str, Any] = _interop().write_spark_df(self, df, table, mode=mode, **keywords)
        return result

    def to_polars(self, sql: str) -> Any:
        """Return the rows of a query as a frame of polars."""
        return self.read_df(sql, prefer="polars")

    def to_pandas(self, sql: str) -> Any:
        """Return the rows of a query as a frame of pandas."""
        return self.read_df(sql, prefer="pandas")

    def to_arrow(self, sql: str) -> Any:
        """Return the rows of a query as an Arrow table."""
        return self.read_df(sql, prefer="arrow")

    def to_pyspark(self, sql: str, spark: Any = None) -> Any:
        """Return a query as a frame of Spark, on the caller's session or on the one of this process."""
        return self.read_spark_df(spark, sql)

    from_polars = write_df
    from_pandas = write_df
    from_arrow = write_df
    from_pyspark = write_spark_df

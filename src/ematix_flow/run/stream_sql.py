"""Runs the SQL of a stream on Spark: rows in, rows out, with lookups and functions of the user; it knows no source and no target."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ematix_flow.connect.arrow import REJECTS
from ematix_flow.connect.stream import SQL_FAILED
from ematix_flow.plan.sql.stream_sql import SOURCE
from ematix_flow.run.raw_json import json_rows
from ematix_flow.run.udfs import register

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from ematix_flow.run.typed_messages import TypedRows


_turn = threading.Lock()
_taught: tuple[SparkSession, SqlStage] | None = None
"""The session and the stage whose functions and lookups it knows."""


@dataclass
class SqlStage:
    """One query, and what it may use."""

    spark: Callable[..., SparkSession]
    sql: str
    mentioned: frozenset[str]
    """Columns that a batch may lack; they are NULL then."""
    separable: bool
    """Whether a bad row can be told from its neighbours."""
    udfs: Sequence[Any] = ()
    aggregates: Sequence[Any] = ()
    lookups: Mapping[str, Callable[[], pa.Table]] = field(default_factory=dict)
    _shown: dict[str, pa.Table] = field(default_factory=dict)
    """The rows of lookups that the session has."""

    def rows(self, given: TypedRows, *, lenient: bool) -> TypedRows:
        """Give what the query makes of rows; where that is wanted, rows that make it fail are told apart."""
        table = _with_missing(given.rows, self.mentioned)
        try:
            return replace(given, rows=self._answer(table))
        except Exception as error:
            if not lenient or not table.num_rows or not _is_about_rows(error):
                raise
            made, bad = self._apart(table, error)
        rejects = [*([given.rejects] if given.rejects is not None else []), *bad]
        return replace(given, rows=made, rejects=pa.concat_tables(rejects))

    def _apart(self, table: pa.Table, error: Exception) -> tuple[pa.Table, list[pa.Table]]:
        """Halve the rows until the bad ones stand alone; where rows depend on each other, all of them are bad."""
        if table.num_rows == 1 or not self.separable:
            return self._answer(table.slice(0, 0)), [_rejected(table, error)]
        half = table.num_rows // 2
        made, bad = [], []
        for part in (table.slice(0, half), table.slice(half)):
            try:
                made.append(self._answer(part))
            except Exception as again:
                if not _is_about_rows(again):
                    raise
                rows, rejects = self._apart(part, again)
                made.append(rows)
                bad += rejects
        return pa.concat_tables(made, promote_options="permissive"), bad

    def _answer(self, table: pa.Table) -> pa.Table:
        # Names of views and functions belong to the session, which the streams of a process share.
        with _turn:
            spark = self.spark()
            self._teach(spark)
            frame_of(spark, table).createOrReplaceTempView(SOURCE)
            return spark.sql(self.sql).toArrow()

    def _teach(self, spark: SparkSession) -> None:
        """Let the session know functions and lookups, as far as it does not."""
        global _taught  # noqa: PLW0603 - one session per process, so one stage that it knows
        if _taught is None or _taught[0] is not spark or _taught[1] is not self:
            register(spark, self.udfs, self.aggregates)
            self._shown.clear()
            _taught = (spark, self)
        for name, read in self.lookups.items():
            rows = read()
            if self._shown.get(name) is not rows:
                frame_of(spark, rows).createOrReplaceTempView(name)
                self._shown[name] = rows


def frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Give rows as a frame; instants without a zone stay without one."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return spark.createDataFrame(table, schema=from_arrow_schema(table.schema, prefer_timestamp_ntz=True))


def _with_missing(table: pa.Table, mentioned: frozenset[str]) -> pa.Table:
    for name in sorted(mentioned - set(table.column_names)):
        table = table.append_column(name, pa.nulls(table.num_rows, pa.string()))
    return table


def _is_about_rows(error: BaseException) -> bool:
    """Say whether a query failed at a value, and not because it cannot work at all."""
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    return isinstance(error, PySparkException) and not isinstance(error, AnalysisException | ParseException)


def _rejected(table: pa.Table, error: Exception) -> pa.Table:
    reason = str(error).strip().splitlines()[0][:500]
    rows = [
        {"reason": f"{SQL_FAILED}{reason}", "column_name": None, "source_position": None, "row_json": row}
        for row in json_rows(table, table.column_names)
    ]
    return pa.Table.from_pylist(rows, schema=REJECTS)

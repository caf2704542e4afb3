"""Runs the SQL of a stream over a frame of typed messages: a frame of rows and a frame of rejects; no row comes to the driver.

The rows are cached by Spark once they are computed, so that what fails is known before anything is staged and every
target reads the same ones. Their last user releases them.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ematix_flow.connect.base.stream_source import SQL_FAILED
from ematix_flow.connect.types.arrow import REJECTS
from ematix_flow.connect.types.identifiers import backticked
from ematix_flow.plan.columns import ORDER, ORDER_AT, OURS, POSITION
from ematix_flow.plan.sql.user.batch_path import carrying_query
from ematix_flow.plan.sql.user.row_errors import ERROR, ROW
from ematix_flow.run.spark.map_batches import map_batches
from ematix_flow.run.stage.raw_json import json_rows
from ematix_flow.run.transform.row_errors import first_line, is_about_rows
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from ematix_flow.run.transform.stream_sql import SqlStage


MOST_QUERIES = 64
"""How many queries may search for bad rows that no query could identify by itself."""


@dataclass
class FrameRows:
    """The rows of some messages and the messages that are none, as frames."""

    rows: DataFrame
    rejects: DataFrame | None = None
    cached: list[DataFrame] = field(default_factory=list)
    """What Spark keeps for them."""

    def release(self) -> None:
        """Let Spark forget what it keeps."""
        for frame in self.cached:
            # Spark may be gone, with everything it cached.
            with suppress(Exception):
                frame.unpersist()
        self.cached.clear()


@dataclass(frozen=True, slots=True)
class Typed:
    """Messages or lines that Spark keeps, and what they are as rows."""

    retained: DataFrame
    """As they came, or as rows already; the transform that reads them releases them."""
    rows: DataFrame
    types: Mapping[str, pa.DataType]
    """The types of the fields, NULL where no value shows one."""
    order: tuple[str, ...]
    """Columns that define the order of the rows."""
    empty: bool = False
    unreadable: DataFrame | None = None
    """Those that are no rows, as rejects."""


def transformed(typed: Typed, stage: SqlStage, *, lenient: bool) -> FrameRows:
    """Return what a query makes of rows, and those that are none or that it fails at as rejects."""
    try:
        rows = completed_frame(typed.rows, stage.missing(typed.types, empty=typed.empty))
        # Where rows are put together, those of a stream come in its order.
        ordered = rows if stage.separable else rows.orderBy(*typed.order)
        with stage.one_state():
            result = FrameQuery(stage, ordered, typed.order).rows(lenient=lenient)
    except BaseException:
        typed.retained.unpersist()
        raise
    result.rejects = together([one for one in (typed.unreadable, result.rejects) if one is not None])
    if result.rejects is None:
        typed.retained.unpersist()
    else:
        result.cached.append(typed.retained)
    return result


def without_guesses(typed: Typed) -> Typed:
    """Return messages with fields that have no value as NULL without a type, instead of text."""
    import pyarrow as pa
    from pyspark.sql import functions as sf

    untyped = [name for name, kind in typed.types.items() if pa.types.is_null(kind)]
    return replace(typed, rows=typed.rows.withColumns({name: sf.lit(None) for name in untyped})) if untyped else typed


@dataclass(frozen=True, slots=True)
class FrameQuery:
    """One query over one frame of messages, which has columns that number its rows and may have more for our own use."""

    stage: SqlStage
    messages: DataFrame
    carried: tuple[str, ...] = ()
    """Columns of our own that are requested behind those of the query, as far as they can be followed through it."""

    def rows(self, *, lenient: bool) -> FrameRows:
        """Return what the query makes of the messages; where that is requested, those that make it fail are rejects."""
        result = FrameRows(self.messages)
        try:
            result.rows = self._cached_answer(result, self.messages)
        except Exception as error:
            result.release()
            if not lenient or not is_about_rows(error):
                raise
            return self.without_bad(error)
        return result

    def without_bad(self, error: Exception) -> FrameRows:
        """Return what the query makes of the messages that it does not fail at, after it has failed."""
        result = FrameRows(self.messages)
        try:
            self._apart(result, error)
        except BaseException:
            result.release()
            raise
        return result

    def _apart(self, result: FrameRows, error: Exception) -> None:
        """Separate rows that the query fails at from the others; where rows depend on each other, all are bad."""
        from pyspark.sql import functions as sf

        if not self.stage.separable:
            result.rows = self._cached_answer(result, self.messages.limit(0))
            result.rejects = self._rejects(self.messages.withColumn(ERROR, sf.lit(first_line(error))))
            return
        bad = self._errors(result)
        good, rejects = self.messages, []
        if bad is not None:
            # A sample of all rows: Spark moves no condition of the query in front of it, where the bad rows are.
            good = self.messages.join(sf.broadcast(bad), ROW, "left_anti").sample(1.0)
            rejects = [self._rejects(self.messages.join(sf.broadcast(bad), ROW))]
        try:
            result.rows = self._cached_answer(result, good)
        except Exception as again:
            if not is_about_rows(again):
                raise
            result.rows, more = self._halved(result, good, again)
            rejects += more
        result.rejects = together(rejects)

    def _errors(self, result: FrameRows) -> DataFrame | None:
        """Return the errors of rows by their number, as far as one query can find them."""
        from pyspark.errors import PySparkException

        try:
            errors = self.stage.errors_of(self.messages, self._fields)
            if errors is None:
                return None
            cached = errors.dropDuplicates([ROW]).persist()
            result.cached.append(cached)
            return cached if cached.count() else None
        except PySparkException:
            # The query of the user fails in a way that no row shows, or in a step that cannot be queried.
            return None

    def _halved(self, result: FrameRows, good: DataFrame, error: Exception) -> tuple[DataFrame, list[DataFrame]]:
        """Halve rows until the bad ones are alone, with so many queries at most.

        Then a half that may be bad counts as bad.
        """
        from pyspark.sql import functions as sf

        numbers = sorted(row[0] for row in good.select(ROW).collect())
        bad: list[tuple[list[int], str]] = []
        failed = deque([(numbers, error)])
        queries = MOST_QUERIES
        while failed:
            group, reason = failed.popleft()
            if len(group) == 1 or queries < 2:  # noqa: PLR2004 - one query for each half
                note = "" if len(group) == 1 else f" (in one of {quantity(len(group), 'row')})"
                bad.append((group, first_line(reason) + note))
                continue
            for half in (group[: len(group) // 2], group[len(group) // 2 :]):
                queries -= 1
                try:
                    self._answer(good.where(_among(half))).write.format("noop").mode("overwrite").save()
                except Exception as again:
                    if not is_about_rows(again):
                        raise
                    failed.append((half, again))
        left = good
        for group, _ in bad:
            left = left.where(~_among(group))
        rejects = [self._rejects(good.where(_among(group)).withColumn(ERROR, sf.lit(text))) for group, text in bad]
        return self._cached_answer(result, left), rejects

    def _cached_answer(self, result: FrameRows, messages: DataFrame) -> DataFrame:
        """Return the answer for messages, which Spark has worked out and keeps."""
        rows = self._answer(messages).persist()
        result.cached.append(rows)
        rows.count()
        return rows

    def _answer(self, messages: DataFrame) -> DataFrame:
        """Return the query over messages, with the columns of our own that are requested."""
        from pyspark.sql import functions as sf

        stage, carrying = self.stage, None
        if self.carried and stage.separable:
            carrying = carrying_query(stage.typed_sql(messages), self._fields, stage.lookup_types(), self.carried)
        rows, more = stage.answers(messages, self._fields, carrying)
        if more is not None and _fits(rows, more, len(self.carried)):
            return more.toDF(*rows.columns, *self.carried)
        return rows.withColumn(ORDER, sf.monotonically_increasing_id()) if ORDER in self.carried else rows

    @property
    def _fields(self) -> list[str]:
        return [name for name in self.messages.columns if name not in (*OURS, ROW)]

    def _rejects(self, wrong: DataFrame) -> DataFrame:
        """Return messages with their errors as rejects."""
        from pyspark.sql.pandas.types import from_arrow_schema

        names = self._fields

        def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                if batch.num_rows:
                    yield _reject_batch(batch, names)

        return map_batches(wrong, task, from_arrow_schema(REJECTS))


def together(frames: Sequence[DataFrame]) -> DataFrame | None:
    """Return the rows of frames of the same columns as one; None where there is no frame."""
    union = None
    for frame in frames:
        union = frame if union is None else union.union(frame)
    return union


def completed_frame(frame: DataFrame, missing: Mapping[str, pa.DataType]) -> DataFrame:
    """Return a frame with further columns of NULL."""
    from pyspark.sql import functions as sf
    from pyspark.sql.pandas.types import from_arrow_type

    nulls = {
        name: sf.lit(None).cast(from_arrow_type(kind, prefer_timestamp_ntz=True)) for name, kind in missing.items()
    }
    return frame.withColumns(nulls) if nulls else frame


def typed_by_spark(frame: DataFrame) -> Typed:
    """Return the rows of a frame that has types of its own, with numbers, which Spark keeps so that they stay the same."""
    from pyspark.sql import functions as sf

    numbered = frame.withColumn(ROW, sf.monotonically_increasing_id()).withColumn(ORDER, sf.col(ROW)).persist()
    return Typed(numbered, numbered, {field.name: field.type for field in arrow_schema(frame)}, (ORDER,))


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """Return the columns of a frame that are not of our own, in the types of Arrow."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    return to_arrow_schema(StructType([one for one in frame.schema.fields if one.name not in OURS]))


def fitted_frame(frame: DataFrame, names: Sequence[str], *, ordered: bool) -> DataFrame:
    """Return the columns of a frame with these names, NULL for those that it lacks, and its order on request."""
    import pyarrow as pa

    missing = {name: pa.string() for name in names if name not in frame.columns}
    order = [name for name in (ORDER_AT, ORDER) if ordered and name in frame.columns]
    return completed_frame(frame, missing).select([backticked(name) for name in (*names, *order)])


def _fits(rows: DataFrame, more: DataFrame, further: int) -> bool:
    """Return whether a frame has the columns of another one, and so many further ones behind them."""
    pairs = list(zip(rows.schema.fields, more.schema.fields, strict=False))
    return len(more.columns) == len(rows.columns) + further and all(
        a.name.lower() == b.name.lower() and a.dataType == b.dataType for a, b in pairs
    )


def _among(numbers: Sequence[int]) -> Column:
    """Return the condition of rows between the first and the last number."""
    from pyspark.sql import functions as sf

    return sf.col(backticked(ROW)).between(numbers[0], numbers[-1])


def _reject_batch(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    import pyarrow as pa

    table = pa.Table.from_batches([batch])
    positions = table.column(POSITION) if POSITION in table.column_names else pa.nulls(table.num_rows, pa.string())
    columns = {
        "reason": pa.array([f"{SQL_FAILED}{text}" for text in table.column(ERROR).to_pylist()], pa.string()),
        "column_name": pa.nulls(table.num_rows, pa.string()),
        "source_position": pa.array(positions.to_pylist(), pa.string()),
        # A field that is NULL here is one that this row alone would lack when it is replayed.
        "row_json": pa.array(json_rows(table, names, nulls=True), pa.string()),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=REJECTS)

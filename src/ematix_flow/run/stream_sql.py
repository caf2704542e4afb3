"""Runs the SQL of a stream on Spark: rows in, rows out, with lookups and functions of the user; it knows no source and no target."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ematix_flow.connect.arrow import REJECTS
from ematix_flow.connect.stream import SQL_FAILED
from ematix_flow.errors import PlanError, did_you_mean
from ematix_flow.plan.sql.row_errors import ERROR, ROW, TRYING, errors_query
from ematix_flow.plan.sql.stream_columns import lacking
from ematix_flow.plan.sql.stream_sql import SOURCE
from ematix_flow.run.raw_json import json_rows
from ematix_flow.run.row_errors import can_tell, errors_frame
from ematix_flow.run.typed_messages import TypedRows
from ematix_flow.run.udfs import register, register_trying

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession


MOST_QUERIES = 64
"""How many queries may look for bad rows that no query could tell by itself."""

_turn = threading.Lock()
_taught: tuple[SparkSession, SqlStage] | None = None
"""The session and the stage whose functions and lookups it knows."""


@dataclass
class SqlStage:
    """One query, and what it may use."""

    spark: Callable[..., SparkSession]
    sql: str
    separable: bool
    """Whether a bad row can be told from its neighbours."""
    udfs: Sequence[Any] = ()
    aggregates: Sequence[Any] = ()
    lookups: Mapping[str, Callable[[], pa.Table]] = field(default_factory=dict)
    optional: Mapping[str, str] = field(default_factory=dict)
    """Fields that messages may lack, with their types; they are NULL then."""
    known: Callable[[], Iterable[Collection[str]]] = tuple
    """Gives the names of further columns that a batch may lack, some at a time."""
    _shown: dict[str, pa.Table] = field(default_factory=dict)
    """The rows of lookups that the session has."""
    _seen: dict[str, pa.DataType] = field(default_factory=dict)
    """The fields of all batches so far, in small letters, with the types that they had."""

    def rows(self, given: TypedRows, *, lenient: bool) -> TypedRows:
        """Give what the query makes of rows; where that is wanted, rows that make it fail are told apart."""
        table = self._completed(given.rows)
        try:
            return TypedRows(self._answer(table), given.rejects)
        except Exception as error:
            if not lenient or not table.num_rows or not _is_about_rows(error):
                raise
            made, bad = self._apart(table, error)
        failed = _rejected(table, bad, given.places)
        return TypedRows(made, failed if given.rejects is None else pa.concat_tables([given.rejects, failed]))

    def _completed(self, table: pa.Table) -> pa.Table:
        """Give rows with the columns that the query takes from them and that are known and not there, as NULL."""
        columns = {name: rows().column_names for name, rows in self.lookups.items()}
        missing = sorted(lacking(self.sql, table.column_names, columns))
        self._seen |= {
            name.lower(): column.type
            for name, column in zip(table.column_names, table.columns, strict=True)
            if column.null_count < len(column)
        }
        for name in missing:
            kind = self._type_of(name, empty=not table.num_rows)
            if kind is not None:
                table = table.append_column(name, pa.nulls(table.num_rows, kind))
        return table

    def _type_of(self, name: str, *, empty: bool) -> pa.DataType | None:
        """Give the type of a column that a batch lacks; None for one that nobody knows, unless there is no row to lack it."""
        declared = {one.lower(): kind for one, kind in self.optional.items()}
        if name in declared:
            return _spark_type(self.spark(), declared[name])
        if name in self._seen:
            return self._seen[name]
        # Text is read as anything by Spark, so the types of a target are not needed.
        return pa.string() if empty or any(name in {one.lower() for one in some} for some in self.known()) else None

    def _apart(self, table: pa.Table, error: Exception) -> tuple[pa.Table, dict[int, str]]:
        """Return what the query makes of the good rows, and the errors of the others by their number.

        Where rows depend on each other, all of them are bad.
        """
        if not self.separable:
            return self._answer(table.slice(0, 0)), dict.fromkeys(range(table.num_rows), _first_line(error))
        bad = self._errors(table)
        if bad:
            good = pa.array(number for number in range(table.num_rows) if number not in bad)
            try:
                return self._answer(table.take(good)), bad
            except Exception as again:
                if not _is_about_rows(again):
                    raise
                error = again
        made, more = self._halved(table, [number for number in range(table.num_rows) if number not in bad], error)
        return made, bad | more

    def _errors(self, table: pa.Table) -> dict[int, str]:
        """Return the errors of rows by their number, as far as one query can tell them."""
        from pyspark.errors import PySparkException

        with _turn:
            spark = self.spark()
            sql = errors_query(self.sql, table.column_names, self._lookup_types(), [one.name for one in self.udfs])
            if sql is None or not can_tell(spark):
                return {}
            self._teach(spark)
            register_trying(spark, self.udfs, TRYING)
            numbered = table.append_column(ROW, pa.array(range(table.num_rows), pa.int64()))
            frame_of(spark, numbered).createOrReplaceTempView(SOURCE)
            try:
                found = errors_frame(spark, sql).toArrow().to_pydict()
            except PySparkException:
                # The query of the user fails in a way that no row tells, or in a place that cannot be asked.
                return {}
        return dict(zip(reversed(found[ROW]), reversed(found[ERROR]), strict=True))

    def _lookup_types(self) -> dict[str, dict[str, str]]:
        from pyspark.sql.pandas.types import from_arrow_schema

        schemas = {
            name: from_arrow_schema(read().schema, prefer_timestamp_ntz=True) for name, read in self.lookups.items()
        }
        return {name: {f.name: f.dataType.simpleString() for f in schema.fields} for name, schema in schemas.items()}

    def _halved(self, table: pa.Table, rows: list[int], error: Exception) -> tuple[pa.Table, dict[int, str]]:
        """Halve rows until the bad ones stand alone, with so many queries at most; then a half that may be bad counts as bad."""
        made = [self._answer(table.slice(0, 0))]
        bad: dict[int, str] = {}
        failed = deque([(rows, error)])
        queries = MOST_QUERIES
        while failed:
            group, reason = failed.popleft()
            if len(group) == 1 or queries < 2:  # noqa: PLR2004 - one query for each half
                note = "" if len(group) == 1 else f" (in one of {len(group)} rows)"
                bad |= dict.fromkeys(group, _first_line(reason) + note)
                continue
            for half in (group[: len(group) // 2], group[len(group) // 2 :]):
                queries -= 1
                try:
                    made.append(self._answer(table.take(pa.array(half))))
                except Exception as again:
                    if not _is_about_rows(again):
                        raise
                    failed.append((half, again))
        return pa.concat_tables(made, promote_options="permissive"), bad

    def _answer(self, table: pa.Table) -> pa.Table:
        # Names of views and functions belong to the session, which the streams of a process share.
        with _turn:
            spark = self.spark()
            self._teach(spark)
            frame_of(spark, table).createOrReplaceTempView(SOURCE)
            with self._named(table.column_names):
                return spark.sql(self.sql).toArrow()

    @contextmanager
    def _named(self, fields: Sequence[str]) -> Iterator[None]:
        """Report a column that is nowhere by its name, with the nearest one that is somewhere."""
        from pyspark.errors import AnalysisException

        try:
            yield
        except AnalysisException as error:
            if not (error.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
                raise
            found = dict(error.getMessageParameters() or {})
            name = _plain(found.get("objectName", ""))
            near = [_plain(one).rpartition(".")[2] for one in found.get("proposal", "").split(", ") if one]
            others = [one for some in self.known() for one in some]
            names = dict.fromkeys([*fields, *self._seen, *self.optional, *others, *near])
            message = f"the SQL reads {name!r}, which neither the messages nor the target have"
            raise PlanError(message, hint=_hint(name.rpartition(".")[2], tuple(names))) from None

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


def _spark_type(spark: SparkSession, text: str) -> pa.DataType:
    """Give a type that is written in the SQL of Spark."""
    from pyspark.sql.pandas.types import to_arrow_type

    field = spark.sql(f"SELECT CAST(NULL AS {text}) AS c").schema.fields[0]
    return to_arrow_type(field.dataType)


def _plain(name: str) -> str:
    """Give a name without the quotes of Spark."""
    return name.strip().replace("`", "")


def _hint(name: str, known: Sequence[str]) -> str:
    return f"{did_you_mean(name, known)} A field that messages may lack is declared with optional_fields=."


def _is_about_rows(error: BaseException) -> bool:
    """Say whether a query failed at a value, and not because it cannot work at all."""
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    return isinstance(error, PySparkException) and not isinstance(error, AnalysisException | ParseException)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:500]


def _rejected(table: pa.Table, bad: Mapping[int, str], places: pa.ChunkedArray | None) -> pa.Table:
    """Return bad rows as rejects, in the order of the batch."""
    numbers = sorted(bad)
    chosen = table.take(pa.array(numbers, pa.int64()))
    # A field that is NULL here is one that this row alone would lack when it is replayed.
    documents = json_rows(chosen, chosen.column_names, nulls=True)
    rows = [
        {
            "reason": f"{SQL_FAILED}{bad[number]}",
            "column_name": None,
            "source_position": None if places is None else places[number].as_py(),
            "row_json": row,
        }
        for number, row in zip(numbers, documents, strict=True)
    ]
    return pa.Table.from_pylist(rows, schema=REJECTS)

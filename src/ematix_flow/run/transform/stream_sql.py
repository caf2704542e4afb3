"""Runs the SQL of a stream on Spark: rows in, rows out, with lookups and functions of the user; it knows no source and no target."""

from __future__ import annotations

import threading
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ematix_flow.connect.types.arrow import REJECTS
from ematix_flow.connect.types.identifiers import backticked
from ematix_flow.errors import PlanError, did_you_mean
from ematix_flow.plan.columns import POSITION
from ematix_flow.plan.sql.dialect.typed import requires_types, with_types
from ematix_flow.plan.sql.user.as_of import is_as_of
from ematix_flow.plan.sql.user.row_errors import ROW, TRYING, errors_query
from ematix_flow.plan.sql.user.stream import SOURCE
from ematix_flow.plan.sql.user.stream_columns import lacking
from ematix_flow.run.read.infer_messages import TypedRows
from ematix_flow.run.transform.frame_sql import FrameQuery
from ematix_flow.run.transform.row_errors import can_report_errors, errors_frame, is_about_rows
from ematix_flow.run.transform.udfs import register, register_trying

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


_turn = threading.Lock()
_taught: tuple[SparkSession, SqlStage] | None = None
"""The session and the stage whose functions and lookups it knows."""


@dataclass
class SqlStage:
    """One query, and what it may use."""

    spark: Callable[..., SparkSession]
    sql: str
    separable: bool
    """Whether a bad row can be identified among its neighbours."""
    udfs: Sequence[Any] = ()
    aggregates: Sequence[Any] = ()
    lookups: Mapping[str, Callable[[], pa.Table | DataFrame]] = field(default_factory=dict)
    optional: Mapping[str, str] = field(default_factory=dict)
    """Fields that messages may lack, with their types; they are NULL then."""
    known: Callable[[], Iterable[Collection[str]]] = tuple
    """Returns the names of further columns that a batch may lack, some at a time."""
    times: Mapping[str, str] = field(default_factory=dict)
    """Lookups of versions, each with the column at whose time it is joined."""
    one_state: Callable[[], AbstractContextManager[None]] = nullcontext
    """Lets a block see one state of the lookups, however many queries it makes of them."""
    _registered: dict[str, pa.Table | DataFrame] = field(default_factory=dict)
    """The rows of lookups that the session has."""
    _known_types: dict[str, pa.DataType] = field(default_factory=dict)
    """The fields of all batches so far, in lower case, with the types that they had."""

    def rows(self, typed_rows: TypedRows, *, lenient: bool) -> TypedRows:
        """Return what the query makes of rows of this process; on request, rows that make it fail are separated."""
        with self.one_state():
            return self._rows(typed_rows, lenient=lenient)

    def _rows(self, typed_rows: TypedRows, *, lenient: bool) -> TypedRows:
        table = self._completed(typed_rows.rows)
        try:
            return TypedRows(self._whole(table).toArrow(), typed_rows.rejects)
        except Exception as error:
            if not lenient or not table.num_rows or not is_about_rows(error):
                raise
            result, bad = self._apart(table, typed_rows.positions, error)
        return TypedRows(result, bad if typed_rows.rejects is None else pa.concat_tables([typed_rows.rejects, bad]))

    def _whole(self, table: pa.Table) -> DataFrame:
        return self.answers(frame_of(self.spark(), table), table.column_names)[0]

    def _apart(self, table: pa.Table, positions: pa.ChunkedArray | None, error: Exception) -> tuple[pa.Table, pa.Table]:
        """Return what the query makes of the good rows, and the others as rejects."""
        numbers = pa.array(range(table.num_rows), pa.int64())
        position_column = pa.nulls(table.num_rows, pa.string()) if positions is None else positions
        numbered = table.append_column(POSITION, position_column).append_column(ROW, numbers)
        result = FrameQuery(self, frame_of(self.spark(), numbered)).without_bad(error)
        try:
            rejects = REJECTS.empty_table() if result.rejects is None else result.rejects.toArrow()
            return result.rows.toArrow(), rejects.cast(REJECTS)
        finally:
            result.release()

    def _completed(self, table: pa.Table) -> pa.Table:
        """Return rows with the columns that the query takes from them and that are known and not there, as NULL."""
        types = {
            name: column.type if column.null_count < len(column) else pa.null()
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
        for name, kind in self.missing(types, empty=not table.num_rows).items():
            table = table.append_column(name, pa.nulls(table.num_rows, kind))
        return table

    def missing(self, types: Mapping[str, pa.DataType], *, empty: bool) -> dict[str, pa.DataType]:
        """Return the columns that the query takes from a batch, that are known and that the batch lacks, with their types.

        The types of the batch are NULL where it has no value.
        """
        columns = {name: tuple(known) for name, known in self.lookup_types().items()}
        inner = {name for kind in types.values() for name in _names_in(kind)}
        lacked = sorted(lacking(self.sql, list(types), columns, inner))
        self._known_types |= {name.lower(): kind for name, kind in types.items() if not pa.types.is_null(kind)}
        missing_types = {name: self._type_of(name, empty=empty) for name in lacked}
        return {name: kind for name, kind in missing_types.items() if kind is not None}

    def _type_of(self, name: str, *, empty: bool) -> pa.DataType | None:
        """Return the type of a column that a batch lacks; None for an unknown one, unless there is no row."""
        declared = {one.lower(): kind for one, kind in self.optional.items()}
        if name in declared:
            return _spark_type(self.spark(), declared[name])
        if name in self._known_types:
            return self._known_types[name]
        # Text is read as anything by Spark, so the types of a target are not needed.
        return pa.string() if empty or any(name in {one.lower() for one in some} for some in self.known()) else None

    def answers(
        self, frame: DataFrame, fields: Sequence[str], more: str | None = None
    ) -> tuple[DataFrame, DataFrame | None]:
        """Return what the query makes of some columns of a frame, and what another query makes of all of them."""
        # Names of views and functions belong to the session, which the streams of a process share.
        with _turn:
            spark = self.spark()
            self._teach(spark)
            frame.select([backticked(name) for name in fields]).createOrReplaceTempView(SOURCE)
            with self._named(fields):
                rows = spark.sql(self.typed_sql(frame))
            if more is None:
                return rows, None
            frame.createOrReplaceTempView(SOURCE)
            return rows, spark.sql(more)

    def errors_of(self, frame: DataFrame, fields: Sequence[str]) -> DataFrame | None:
        """Return the errors of rows by their number; None where no query can find them."""
        sql = errors_query(self.typed_sql(frame), fields, self.lookup_types(), [one.name for one in self.udfs])
        with _turn:
            spark = self.spark()
            if sql is None or not can_report_errors(spark):
                return None
            self._teach(spark)
            register_trying(spark, self.udfs, TRYING)
            frame.createOrReplaceTempView(SOURCE)
            return errors_frame(spark, sql)

    def lookup_types(self) -> dict[str, dict[str, str]]:
        """Return the columns of each lookup with their types in Spark SQL."""
        schemas = {name: _spark_schema(read()) for name, read in self.lookups.items()}
        return {name: {f.name: f.dataType.simpleString() for f in schema.fields} for name, schema in schemas.items()}

    def typed_sql(self, frame: DataFrame) -> str:
        """Return the query for the types of a batch and of the lookups."""
        if not requires_types(self.sql):
            return self.sql
        types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
        returned = {one.name: one.returns for one in (*self.udfs, *self.aggregates)}
        return with_types(self.sql, {**self.lookup_types(), SOURCE: types}, returned)

    @contextmanager
    def _named(self, fields: Sequence[str]) -> Iterator[None]:
        """Report a column that is nowhere by its name, with the nearest one that is somewhere."""
        from pyspark.errors import AnalysisException

        try:
            yield
        except AnalysisException as error:
            parameters = dict(error.getMessageParameters() or {})
            self._refuse_time(parameters.get("sqlExpr", ""))
            if not (error.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
                raise
            name = _unquoted(parameters.get("objectName", ""))
            near = [_unquoted(one).rpartition(".")[2] for one in parameters.get("proposal", "").split(", ") if one]
            others = [one for some in self.known() for one in some]
            names = dict.fromkeys([*fields, *self._known_types, *self.optional, *others, *near])
            message = f"the SQL reads {name!r}, which neither the messages nor the target have"
            lookup = next((one for one, time in self.times.items() if time == name.rpartition(".")[2]), None)
            if lookup is not None:
                message = f"lookup {lookup!r} is joined as of {name!r}, which the rows that it is joined to do not have"
            raise PlanError(message, hint=_hint(name.rpartition(".")[2], tuple(names))) from None

    def _refuse_time(self, expression: str) -> None:
        """Refuse a column as the time of rows that Spark cannot read as one, by the expression that Spark reports."""
        for lookup, column in self.times.items():
            if is_as_of(_unquoted(expression), column):
                message = f"lookup {lookup!r} is joined as of {column!r}, which is no timestamp"
                hint = f"make it one in a subquery of transform_sql=, as in timestamp_millis({column}) AS {column}."
                raise PlanError(message, hint=hint)

    def _teach(self, spark: SparkSession) -> None:
        """Let the session know functions and lookups, as far as it does not."""
        global _taught  # noqa: PLW0603 - one session per process, so one stage that it knows
        if _taught is None or _taught[0] is not spark or _taught[1] is not self:
            register(spark, self.udfs, self.aggregates)
            self._registered.clear()
            _taught = (spark, self)
        for name, read in self.lookups.items():
            rows = read()
            if self._registered.get(name) is not rows:
                frame_of(spark, rows).createOrReplaceTempView(name)
                self._registered[name] = rows


def frame_of(spark: SparkSession, rows: pa.Table | DataFrame) -> DataFrame:
    """Return rows as a frame; instants without a zone stay without one."""
    return spark.createDataFrame(rows, schema=_spark_schema(rows)) if isinstance(rows, pa.Table) else rows


def _spark_type(spark: SparkSession, text: str) -> pa.DataType:
    """Return a type that is written in the SQL of Spark."""
    from pyspark.sql.pandas.types import to_arrow_type

    field = spark.sql(f"SELECT CAST(NULL AS {text}) AS c").schema.fields[0]
    return to_arrow_type(field.dataType)


def _names_in(kind: pa.DataType) -> Iterator[str]:
    """Return the names of all fields inside of a type."""
    for part in kind if isinstance(kind, pa.StructType) else ():
        yield part.name
        yield from _names_in(part.type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _names_in(kind.value_type)
    elif pa.types.is_map(kind):
        yield from _names_in(kind.item_type)


def _unquoted(name: str) -> str:
    """Return a name without the quotes of Spark."""
    return name.strip().replace("`", "")


def _hint(name: str, known: Sequence[str]) -> str:
    return f"{did_you_mean(name, known)} A field that messages may lack is declared with optional_fields=."


def _spark_schema(rows: pa.Table | DataFrame) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(rows.schema, prefer_timestamp_ntz=True) if isinstance(rows, pa.Table) else rows.schema

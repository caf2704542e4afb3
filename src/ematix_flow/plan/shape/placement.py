"""Where the shape of a load is evaluated and as which query: in the source, in the target, on Spark or while staging."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from ematix_flow.connect.base.stream_source import PAYLOAD
from ematix_flow.errors import OWN_PREFIX, PlanError, did_you_mean
from ematix_flow.plan.bounds import bounded_sql, range_condition, watermark_column
from ematix_flow.plan.columns import (
    CHANGE_COLUMNS,
    CORRUPT,
    EVENT,
    FAILED,
    LINES,
    ORDER,
    ORDER_AT,
    POSITION,
    RAW,
    SOURCE_VIEW,
)
from ematix_flow.plan.shape.spark_reasons import TASK_DIALECT, spark_reason
from ematix_flow.plan.sql.render import native_column
from ematix_flow.plan.sql.shape.query import RawRow, read_columns, shape_query, unsupported_on
from ematix_flow.plan.sql.shape.transforms import column_of, wraps
from ematix_flow.plan.sql.user.query import read_query
from ematix_flow.plan.steps import SPARK, TASK, Choice, Shape

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ematix_flow.connect.base.source import SqlSource
    from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
    from ematix_flow.plan.batch import Inspection
    from ematix_flow.plan.sql.shape.query import Reading

CHANGE_FAMILIES = ("text", "text", "timestamp_tz", "integer", "text")
"""The families of the columns that changes have besides those of their table."""

_OVER_ROWS = (SPARK, TASK)
"""Where the shape is evaluated over rows that another component has read."""


@dataclass(frozen=True, slots=True)
class Shaping:
    """The query that returns the rows of a load, and the engine that evaluates it."""

    place: Choice
    dialect: str
    sql: str
    read_sql: str = ""
    """What is read from a source database when Spark evaluates the shape."""
    marked: bool = False
    """True when rows can fail to parse, so that the query also returns the column that names the failure."""
    reads_twice: bool = False
    """True when the query reads its rows twice: for SQL of the user, and for the rows that go round it."""
    alters: bool = True
    """True when the declaration makes other rows of those of the source than their types alone do."""
    given: bool = False
    """True when the rows were shaped before, and are only read."""

    @property
    def step(self) -> Shape:
        """Return the step of a plan."""
        return Shape(self.place, self.dialect, self.sql, self.marked, self.reads_twice, self.alters, self.given)


def plan_shape(  # noqa: PLR0913 - a load and its two sides
    pipeline: Pipeline,
    target: TargetDeclaration,
    inspection: Inspection,
    path: str,
    source: SqlSource | None,
    required: tuple[str, ...] = (),
    *,
    given: bool = False,
) -> Shaping:
    """Return the query of the load in the dialect of the engine that evaluates it; rows that are `given` in shape are read.

    Where bad rows are kept, one that lacks a `required` column comes with its source row, as one that cannot be read does;
    so does one with a text that is too long.
    """
    normalizes = any(column.normalizers for column in target.table.columns)
    alters = bool(normalizes or target.column_map or pipeline.transforms_pre)
    if given:
        plain = tuple(replace(column, normalizers=()) for column in target.table.columns)
        target = replace(target, table=replace(target.table, columns=plain), column_map=None)
        pipeline = replace(pipeline, transforms_pre=())
    keeps = alters and not given and "reject" in (target.write.on_bad_row, target.write.null_watermark)
    shaping = _shape(pipeline, target, inspection, path, source, required if keeps else None)
    return replace(shaping, alters=alters, given=given)


def _shape(
    pipeline: Pipeline,
    target: TargetDeclaration,
    inspection: Inspection,
    path: str,
    source: SqlSource | None,
    required: tuple[str, ...] | None,
) -> Shaping:
    evaluator = _choose_evaluator(pipeline, target, inspection, path)
    user = inspection.user_dialect or inspection.source_dialect
    over_rows = evaluator.value in _OVER_ROWS
    dialect = {SPARK: "spark", TASK: TASK_DIALECT}.get(evaluator.value, inspection.source_dialect)
    columns = _known_columns(inspection, over_rows=over_rows)
    _check_event(target, columns)
    if not over_rows:
        # A family without a rule is passed on as it is: no conversion, and nothing that could fail.
        columns |= dict.fromkeys(_fitting(target, inspection, source), "other")
    if over_rows:
        from_database = inspection.source_dialect != "spark"
        read = _bounded(inspection.source_sql, target, inspection) if from_database else inspection.source_sql
        event, transforms = target.write.event_timestamp_column, pipeline.transforms_pre
        rows = _Rows(repr(target.table), event, tuple(columns.items()), dialect, user, required, target, transforms)
        alone = not target.column_map and not transforms
        final, marked = _known_rows(rows) if alone else _over_rows(rows)
        twice = marked and wraps(transforms)
        return Shaping(evaluator, dialect, _bounded_after(final, target, inspection, dialect), read, marked, twice)
    reading = read_columns(target.table, dialect, columns, column_map=target.column_map, user_dialect=user)
    marked = reading.can_fail or CORRUPT in columns
    families = {column.name: column.family for column in inspection.source_columns}
    raw = RawRow(RAW, families, required) if marked or required is not None else None
    bounded = _bounded(inspection.source_sql, target, inspection)
    shaped = _shaped(bounded, pipeline.transforms_pre, target, columns, reading, user, marked=marked, raw=raw)
    read_as = _interchanged(inspection, source, dialect) if source is not None and evaluator.value == "source" else {}
    reject_columns = [
        native_column(name, dialect) for name, is_there in ((FAILED, marked), (RAW, raw is not None)) if is_there
    ]
    final = _final(shaped, target, columns, dialect, read_as, reject_columns)
    return Shaping(evaluator, dialect, final, "", marked)


@dataclass(frozen=True, slots=True)
class _Rows:
    """A shape over rows that another component has read: two are the same where all of it is written alike."""

    table: str
    """The table as its repr: values that are equal and not the same, such as 1 and True, look different there."""
    event: str | None
    columns: tuple[tuple[str, str], ...]
    """The columns of the rows with their families."""
    dialect: str
    user_dialect: str
    required: tuple[str, ...] | None
    target: TargetDeclaration = field(compare=False)
    transforms_pre: Sequence[object] = field(compare=False)


def _over_rows(rows: _Rows) -> tuple[str, bool]:
    """Return the query over the rows, and whether it marks some of them."""
    columns, target, user = dict(rows.columns), rows.target, rows.user_dialect
    reading = read_columns(target.table, rows.dialect, columns, column_map=target.column_map, user_dialect=user)
    marked = reading.can_fail or CORRUPT in columns
    everything = f"SELECT * FROM {SOURCE_VIEW}"
    shaped = _shaped(everything, rows.transforms_pre, target, columns, reading, user, marked=marked)
    failed = native_column(FAILED, rows.dialect)
    reject_columns = [failed] if marked else []
    suspect = [f"{failed} IS NOT NULL"] if marked else []
    if rows.required is not None:
        conditions = reading.suspicious(rows.required, [column_of(name) for name in target.table.column_names])
        suspect += [condition.sql(dialect=rows.dialect) for condition in conditions]
    if suspect:
        reject_columns.append(f"CASE WHEN {' OR '.join(suspect)} THEN {RAW} END AS {RAW}")
    return _final(shaped, target, columns, rows.dialect, {}, reject_columns), marked


_known_rows = lru_cache(maxsize=64)(_over_rows)
"""A stream requests the same query with every batch, and to write it takes longer than to load a few rows."""


def _check_event(target: TargetDeclaration, columns: dict[str, str]) -> None:
    """Refuse a time of events that neither the source has nor the table declares."""
    event = target.write.event_timestamp_column
    declared = [column.name for column in target.table.columns]
    if event is not None and event not in columns and event not in declared:
        message = f"the source has no column {event!r} with the time of an event"
        raise PlanError(message, hint=did_you_mean(event, [*columns, *declared]))


def _fitting(target: TargetDeclaration, inspection: Inspection, source: SqlSource | None) -> frozenset[str]:
    """Return the columns that cannot fail because the source's own type is the declared one, or a narrower one.

    SQLite is left out: its columns may hold values of any type.
    """
    if source is None or not source.capabilities.enforces_types or target.column_map:
        return frozenset()
    native = {column.name: column.native for column in inspection.source_columns}
    fitting = set()
    for column in target.table.columns:
        declared_type, source_type = source.ddl_type(column.type), native.get(column.name, "")
        if (
            source_type
            and not column.normalizers
            and (source.same_type(source_type, declared_type) or source.widening(source_type, declared_type))
        ):
            fitting.add(column.name)
    return frozenset(fitting)


def _known_columns(inspection: Inspection, *, over_rows: bool) -> dict[str, str]:
    """Return the families of the source's columns, with those that the reading of rows and of files adds."""
    columns = {column.name: column.family for column in inspection.source_columns}
    if over_rows:
        _refuse_own(columns)
        columns[RAW] = "text"
    columns |= dict.fromkeys(inspection.order, "integer")
    if inspection.payloads:
        columns[PAYLOAD] = "text"
    if inspection.changes:
        columns |= dict(zip(CHANGE_COLUMNS, CHANGE_FAMILIES, strict=True))
    plain_read = bool(inspection.source_format) and not inspection.source_sql
    if plain_read or inspection.positioned:
        columns[POSITION] = "text"
    if plain_read and inspection.source_format in LINES:
        columns[CORRUPT] = "text"
    return columns


def _refuse_own(columns: Iterable[str]) -> None:
    """Refuse rows with a column that would be taken for one of those that travel with them."""
    for name in columns:
        if name.lower().startswith(OWN_PREFIX):
            message = (
                f"the source has a column {name!r}, and loads keep names that begin with {OWN_PREFIX!r} for their own"
            )
            raise PlanError(message, hint="rename it with a query over the source: SELECT ... AS another_name.")


def _choose_evaluator(pipeline: Pipeline, target: TargetDeclaration, inspection: Inspection, path: str) -> Choice:
    if inspection.source_dialect == "spark":
        reason = spark_reason(pipeline, target, inspection)
        return Choice(SPARK, reason) if reason else Choice(TASK, "every row is shaped by itself")
    missing = unsupported_on(target.table, inspection.source_dialect, pipeline.transforms_pre)
    if missing:
        return Choice(SPARK, f"{inspection.source_dialect} cannot express {missing}")
    return Choice("target", "one statement does it all") if path == "same_db" else Choice("source", "it is SQL there")


def _bounded(sql: str, target: TargetDeclaration, inspection: Inspection) -> str:
    if inspection.bounds is None:
        return sql
    column = watermark_column(target.write, inspection.source_columns)
    return bounded_sql(sql, inspection.bounds, column, target.write, inspection.source_dialect)


def _bounded_after(sql: str, target: TargetDeclaration, inspection: Inspection, dialect: str) -> str:
    """Restrict the shaped rows: only for files and frames, whose bounds were taken over the shaped rows."""
    if inspection.bounds is None or inspection.source_dialect != "spark":
        return sql
    declared = {column.name: column.type.kind for column in target.table.columns}
    condition = range_condition(inspection.bounds, declared[inspection.bounds.column], target.write, dialect)
    return f"SELECT * FROM ({sql}) AS _bounded WHERE {condition}"


def _shaped(  # noqa: PLR0913 - the parts of a shape
    sql: str,
    transforms_pre: Sequence[object],
    target: TargetDeclaration,
    columns: dict[str, str],
    reading: Reading,
    user_dialect: str,
    *,
    marked: bool,
    raw: RawRow | None = None,
) -> str:
    dialect = reading.inputs.dialects.dialect
    event = target.write.event_timestamp_column
    declared = {column.name for column in target.table.columns}
    given = event is not None and event in columns and event not in (*declared, *CHANGE_COLUMNS)
    carry = [event] if given and event is not None else []
    query = shape_query(
        # Around the user's own query is SQL of ours, in the evaluating dialect.
        sql if user_dialect == dialect else read_query(sql, dialect, dialect),
        columns,
        target.table,
        dialect,
        column_map=target.column_map,
        transforms_pre=transforms_pre,
        carry=carry,
        own=[name for name in (*CHANGE_COLUMNS, PAYLOAD, ORDER_AT, ORDER, POSITION, RAW) if name in columns],
        corrupt=CORRUPT if CORRUPT in columns else None,
        user_dialect=user_dialect,
        failure_column=FAILED if marked else None,
        raw=raw,
        reading=reading,
    )
    return query.sql(dialect=dialect)


def _final(
    shaped: str,
    target: TargetDeclaration,
    columns: dict[str, str],
    dialect: str,
    read_as: dict[str, str],
    reject_columns: Sequence[str],
) -> str:
    """Return the outermost projection: exactly the staged columns, and the marks of rows that do not parse."""
    natives = {column.name: native_column(column.name, dialect) for column in target.table.columns}
    parts = [f"{read_as[name]} AS {native}" if name in read_as else native for name, native in natives.items()]
    event = target.write.event_timestamp_column
    if event is not None:
        parts.append(f"{native_column(event, dialect)} AS {native_column(EVENT, dialect)}")
    own = (*CHANGE_COLUMNS, PAYLOAD, ORDER_AT, ORDER, POSITION)
    parts += [native_column(name, dialect) for name in own if name in columns]
    return f"SELECT {', '.join([*parts, *reject_columns])} FROM ({shaped}) AS _shaped"


def _interchanged(inspection: Inspection, source: SqlSource, dialect: str) -> dict[str, str]:
    """Return the columns that a source database reads in another form than its own."""
    natives = {column.name: native_column(column.name, dialect) for column in inspection.source_columns}
    forms = {column.name: source.interchange(column, natives[column.name]) for column in inspection.source_columns}
    return {name: form for name, form in forms.items() if form != natives[name]}

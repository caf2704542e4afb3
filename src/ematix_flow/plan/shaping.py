"""Where the shape of a load is evaluated and as which query: in the source, in the target or on Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.plan.bounds import bounded_sql, watermark_column
from ematix_flow.plan.sql.render import native_column
from ematix_flow.plan.sql.shape import shape_query, unsupported_on
from ematix_flow.plan.steps import Choice

if TYPE_CHECKING:
    from ematix_flow.connect.base import Database, SourceColumn
    from ematix_flow.declare.pipeline import Pipeline, TargetDeclaration
    from ematix_flow.plan.batch import Observed

SOURCE_VIEW = "_src_raw"
"""Name under which Spark sees the rows of a source that is not evaluated by a database."""

EVENT = "_flow_event"
"""Staged column with the event time of scd2."""


@dataclass(frozen=True, slots=True)
class Shaping:
    """The query that gives the rows of a load, and who evaluates it."""

    place: Choice
    dialect: str
    sql: str
    read_sql: str = ""
    """What is read from a source database when Spark evaluates the shape."""


def plan_shape(
    pipeline: Pipeline, target: TargetDeclaration, observed: Observed, path: str, source: Database | None
) -> Shaping:
    """Give the query of the load in the dialect of whoever evaluates it."""
    place = _place(pipeline, target, observed, path)
    if place.value == "spark":
        raw = observed.source_sql if observed.source_dialect != "spark" else ""
        read = _bounded(raw, target, observed) if raw else observed.source_sql
        shaped = _shaped(f"SELECT * FROM {SOURCE_VIEW}", pipeline, target, observed, "spark")
        return Shaping(place, "spark", _final(shaped, target, observed, "spark", None), read)
    bounded = _bounded(observed.source_sql, target, observed)
    shaped = _shaped(bounded, pipeline, target, observed, observed.source_dialect)
    interchange = source if place.value == "source" else None
    return Shaping(place, observed.source_dialect, _final(shaped, target, observed, observed.source_dialect, interchange))


def _place(pipeline: Pipeline, target: TargetDeclaration, observed: Observed, path: str) -> Choice:
    if observed.source_dialect == "spark":
        return Choice("spark", "the source is not a database")
    missing = unsupported_on(target.table, observed.source_dialect, pipeline.transforms_pre)
    if missing:
        return Choice("spark", f"{observed.source_dialect} cannot express {missing}")
    return Choice("target", "one statement does it all") if path == "same_db" else Choice("source", "it is SQL there")


def _bounded(sql: str, target: TargetDeclaration, observed: Observed) -> str:
    if observed.bounds is None:
        return sql
    column = watermark_column(target.write, observed.source_columns)
    return bounded_sql(sql, observed.bounds, column, target.write, observed.source_dialect)


def _shaped(sql: str, pipeline: Pipeline, target: TargetDeclaration, observed: Observed, dialect: str) -> str:
    event = target.write.event_timestamp_column
    declared = {column.name for column in target.table.columns}
    keep = tuple(name for name in (event,) if name is not None and name not in declared)
    columns: dict[str, str] = {column.name: column.family for column in observed.source_columns}
    query = shape_query(
        sql,
        columns,
        target.table,
        dialect,
        column_map=target.column_map,
        transforms_pre=pipeline.transforms_pre,
        keep=keep,
        user_dialect=observed.source_dialect,
    )
    return query.sql(dialect=dialect)


def _final(
    shaped: str, target: TargetDeclaration, observed: Observed, dialect: str, interchange: Database | None
) -> str:
    """Give the outermost projection: exactly the staged columns."""
    known = {column.name: column for column in observed.source_columns}
    parts = [_column(column.name, known, dialect, interchange) for column in target.table.columns]
    event = target.write.event_timestamp_column
    if event is not None:
        parts.append(f"{native_column(event, dialect)} AS {native_column(EVENT, dialect)}")
    return f"SELECT {', '.join(parts)} FROM ({shaped}) AS _shaped"


def _column(name: str, known: dict[str, SourceColumn], dialect: str, interchange: Database | None) -> str:
    native = native_column(name, dialect)
    if interchange is None or name not in known:
        return native
    read = interchange.interchange(known[name], native)
    return native if read == native else f"{read} AS {native}"

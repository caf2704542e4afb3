"""Asks source and target what the planner needs to know; it changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ematix_flow.commit.ledger import Ledger
from ematix_flow.connect.base import SourceColumn
from ematix_flow.connect.redact import safe_text
from ematix_flow.errors import FlowError, RunError
from ematix_flow.plan.batch import Observed, history_name
from ematix_flow.plan.bounds import check_comparable, highest_sql, watermark_column
from ematix_flow.plan.source import table_query
from ematix_flow.plan.sql.ddl import wanted_table
from ematix_flow.plan.sql.render import render
from ematix_flow.plan.steps import Bounds

if TYPE_CHECKING:
    from ematix_flow.connect.base import Database
    from ematix_flow.connect.files import FileSet
    from ematix_flow.declare.pipeline import Pipeline, TargetDeclaration
    from ematix_flow.engine.sourcing import OpenSource
    from ematix_flow.records import Watermark


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen, and the files that were chosen."""

    observed: Observed
    files: FileSet | None = None


def look_at_source(source: OpenSource, target: TargetDeclaration) -> Look:
    """Describe the source: its SQL, its columns and its files."""
    value = source.value
    seen = Observed(
        source_name=source.name, target_name="", source_dialect=source.dialect, user_dialect=source.user_dialect
    )
    if value.frame is not None:
        return Look(replace(seen, source_columns=frame_columns(value.frame)))
    if source.files is not None:
        return _look_at_files(source, seen)
    if source.database is None:
        return Look(seen)
    sql = value.sql or render(table_query(value, target.table, target.column_map), source.dialect)
    return Look(replace(seen, source_sql=sql, source_columns=_describe(source.database, sql)))


def _look_at_files(source: OpenSource, seen: Observed) -> Look:
    files, value = source.files, source.value
    assert files is not None  # noqa: S101 - the caller checked
    chosen = files.file_set("" if value.sql else value.path, value.options)
    return Look(
        replace(
            seen,
            source_sql=value.sql,
            source_columns=() if value.sql else chosen.columns,
            source_path=value.path or str(files.root),
            source_format=chosen.format,
        ),
        chosen,
    )


def _describe(database: Database, sql: str) -> tuple[SourceColumn, ...]:
    session = database.session()
    try:
        return database.describe(session, sql)
    except database.errors as error:
        message = f"the source query cannot be run: {safe_text(error)}"
        raise RunError(message) from None
    finally:
        session.close()


def frame_columns(frame: Any) -> tuple[SourceColumn, ...]:
    """Give the columns of a frame of any kind."""
    module = type(frame).__module__.split(".")[0]
    if module == "pyspark":
        return tuple(SourceColumn(f.name, _spark_family(f.dataType.simpleString())) for f in frame.schema.fields)
    if module == "polars":
        frame = frame.to_arrow()
    if module == "pandas":
        import pyarrow as pa

        frame = pa.Table.from_pandas(frame, preserve_index=False)
    from ematix_flow.connect.arrow import family_of

    return tuple(SourceColumn(f.name, family_of(f.type), str(f.type)) for f in frame.schema)


def _spark_family(name: str) -> str:
    families = {
        "string": "text",
        "boolean": "boolean",
        "date": "date",
        "timestamp": "timestamp_tz",
        "timestamp_ntz": "timestamp",
        "binary": "binary",
        "float": "float",
        "double": "float",
    }
    if name.startswith("decimal"):
        return "decimal"
    return "integer" if name in ("tinyint", "smallint", "int", "bigint") else families.get(name, "other")


def look_at_target(pipeline: Pipeline, target: TargetDeclaration, database: Database, seen: Observed) -> Observed:
    """Describe the target: its table, and how far the last load came."""
    wanted = wanted_table(target.table, target.write.mode, database)
    ledger = Ledger(database)
    session = database.session()
    try:
        found = database.find_table(session, wanted.place)
        mark = ledger.watermark(session, history_name(pipeline, target.table)) if ledger.exists(session) else None
    finally:
        session.close()
    return replace(seen, target_known=True, found=found, watermark=_usable(mark, target))


def _usable(mark: Watermark | None, target: TargetDeclaration) -> Watermark | None:
    """A watermark of another column says nothing about this one."""
    column = target.write.incremental_column
    return mark if mark is not None and mark.column == column else None


def fix_bounds(source: OpenSource, target: TargetDeclaration, seen: Observed) -> Observed:
    """Fix the range of an incremental load of a database source, once, before anything is read."""
    write = target.write
    if write.incremental_column is None or source.database is None:
        return seen
    column = watermark_column(write, seen.source_columns)
    check_comparable(column, source.dialect)
    lo = seen.watermark.value if seen.watermark else None
    session = source.database.session()
    try:
        rows = session.query(highest_sql(seen.source_sql, lo, column, write, source.dialect))
    finally:
        session.close()
    return with_bounds(target, seen, lo, rows[0][0], int(rows[0][1] or 0))


def with_bounds(target: TargetDeclaration, seen: Observed, lo: str | None, hi: Any, nulls: int) -> Observed:
    """Give the observation with its bounds; NULLs in the watermark column follow the declared policy."""
    column = str(target.write.incremental_column)
    if nulls and target.write.null_watermark == "fail":
        message = f"{nulls} rows have NULL in {column!r}, so an incremental load would never see them"
        hint = "mend the source, or declare null_watermark='load' (with merge) or null_watermark='reject'."
        raise RunError(message, hint=hint)
    return replace(seen, bounds=Bounds(column, lo, None if hi is None else str(hi), nulls))


def try_look(pipeline: Pipeline, target: TargetDeclaration, database: Database, seen: Observed) -> Observed:
    """Describe the target if it can be reached; a preview goes on without it."""
    try:
        return look_at_target(pipeline, target, database, seen)
    except FlowError as error:
        note = f"target {seen.target_name!r} could not be asked: {error.what}"
    except database.failures as error:
        note = f"target {seen.target_name!r} could not be asked: {safe_text(error)}"
    return replace(seen, notes=(*seen.notes, note))

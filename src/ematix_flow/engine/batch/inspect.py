"""Inspects source and target for the planner; it changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from ematix_flow.commit.ledger import Ledger, parse_instant
from ematix_flow.commit.redeclared import find_watermark
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.connect.files.source import ALL_FILES
from ematix_flow.connect.types.frames import is_spark_frame
from ematix_flow.engine.batch.joins import inspect_join
from ematix_flow.engine.batch.new_files import new_files
from ematix_flow.engine.frames.columns import frame_columns
from ematix_flow.errors import FlowError, PlanError, RunError
from ematix_flow.plan.assumed_columns import optional_keys
from ematix_flow.plan.batch import Inspection
from ematix_flow.plan.bounds import check_comparable, highest_sql, lower_bound, lower_sql, watermark_column
from ematix_flow.plan.columns import ORDER, ORDER_AT, POSITION
from ematix_flow.plan.source import table_query
from ematix_flow.plan.sql.ddl import table_definition
from ematix_flow.plan.sql.render import native_name, render
from ematix_flow.plan.sql.user.named_tables import tables_named
from ematix_flow.plan.sql.user.query import statements_in
from ematix_flow.plan.sql.watermark_values import stored_value
from ematix_flow.plan.steps import Bounds
from ematix_flow.plan.timezones import zoned
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from ematix_flow.connect.base.catalog import Catalog
    from ematix_flow.connect.base.columns import SourceColumn, TableName
    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.source import SqlSource
    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.connect.files.source import Files, FileSet
    from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
    from ematix_flow.engine.batch.joins import InspectedJoin
    from ematix_flow.engine.batch.new_files import LoadedFiles
    from ematix_flow.engine.batch.source import OpenSource
    from ematix_flow.plan.source import SourceValue
    from ematix_flow.run.read.message_ranges import MessageRange


Opener: TypeAlias = "Callable[[Catalog], Session]"


@dataclass(frozen=True, slots=True)
class LoadInspection:
    """What was inspected, and the files that were chosen."""

    inspection: Inspection
    files: FileSet | None = None
    tables: Mapping[str, FileSet] = field(default_factory=dict)
    """The files of each table that a query over files reads."""
    join: InspectedJoin | None = None
    """A query over several connections with what is read for it."""
    without_lines: bool = False
    """Whether the chosen files were found to have no line, so that there is nothing to read."""


def with_optional_keys(target: TargetDeclaration, load_inspection: LoadInspection) -> LoadInspection:
    """Return the inspection of JSON lines with the declared columns that no line was found to have; further lines may."""
    files, inspection = load_inspection.files, load_inspection.inspection
    if files is None or files.format != "json_lines" or not files.columns or inspection.source_sql:
        return load_inspection
    columns = (*files.columns, *optional_keys(target, files.columns))
    return replace(
        load_inspection, files=replace(files, columns=columns), inspection=replace(inspection, source_columns=columns)
    )


def wait_for(database: Catalog) -> Session:
    """Open a session as a load does, waiting while another process holds the database."""
    return database.session()


def inspect_now(database: Catalog) -> Session:
    """Open a session as a preview does, without waiting."""
    return database.read_only_session()


def inspect_source(source: OpenSource, opened: Opener = wait_for, loaded: LoadedFiles | None = None) -> LoadInspection:
    """Describe the source: its SQL, its columns and its files; of these only the new ones where `loaded` is given."""
    value = source.value
    inspection = Inspection(
        source_name=source.name,
        target_name="",
        source_dialect=source.dialect,
        user_dialect=source.user_dialect,
        span=source.span,
    )
    if value.frame is not None:
        columns = frame_columns(value.frame)
        in_spark = is_spark_frame(value.frame)
        if source.ordered:
            order_columns = tuple(name for name in (ORDER_AT, ORDER) if any(column.name == name for column in columns))
            columns = tuple(column for column in columns if column.name not in order_columns)
            inspection = replace(inspection, order=order_columns)
        if source.positioned:
            columns = tuple(column for column in columns if column.name != POSITION)
            inspection = replace(inspection, positioned=True)
        return LoadInspection(replace(inspection, source_columns=columns, rows_in_spark=in_spark, files=source.chosen))
    if source.sides:
        return _inspect_sides(source, inspection, opened)
    if source.files is not None:
        return _inspect_files(source, source.files, inspection, loaded)
    if source.lake is not None:
        return LoadInspection(replace(inspection, source_sql=source_query(source)))
    if source.stream is not None:
        return LoadInspection(_inspect_range(source.stream, inspection))
    if source.database is None:
        return LoadInspection(inspection)
    sql = source_query(source)
    described = _describe(source.database, sql, opened)
    sql, columns = zoned(sql, described, source.database.timezone, source.dialect)
    return LoadInspection(replace(inspection, source_sql=sql, source_columns=columns))


def _inspect_sides(source: OpenSource, inspection: Inspection, opened: Opener) -> LoadInspection:
    join = inspect_join(source.value.sql, source.sides, opened)
    aliases = tuple(side.alias for side in source.sides)
    return LoadInspection(
        replace(inspection, source_sql=source.value.sql, connections=aliases, tables=join.reads), join=join
    )


def _inspect_range(message_range: MessageRange, inspection: Inspection) -> Inspection:
    return replace(
        inspection,
        source_columns=message_range.columns,
        source_path=message_range.source.source_id,
        source_format=message_range.decoder.format,
        order=message_range.order,
        changes=message_range.decoder.changes,
        payloads=message_range.decoder.replays_messages,
    )


def source_query(source: OpenSource) -> str:
    """Return the source as a query of its dialect; empty for files and frames without one."""
    value = source.value
    if source.lake is not None:
        return value.sql or f"SELECT * FROM {'.'.join(part for part in value.table or () if part)}"
    if value.sql and source.database is not None and len(statements_in(value.sql, source.dialect)) != 1:
        # Describing the first statement would run the second one.
        message = f"the source is not one query: {value.sql}"
        raise PlanError(message, hint="return one SELECT statement.")
    if value.sql or source.database is None:
        return value.sql
    table_name = source.database.table_name(*(value.table or ("", "")))
    return render(table_query(table_name, value.columns), source.dialect)


def _inspect_files(
    source: OpenSource, files: Files, inspection: Inspection, loaded: LoadedFiles | None
) -> LoadInspection:
    value, choice = source.value, None
    tables = _queried(files, value) if value.sql else {}
    if tables:
        chosen = _joined(list(tables.values()))
    elif loaded is None:
        chosen = files.file_set(value.path, value.options, for_sql=False)
    else:
        choice, chosen = new_files(files, value, loaded)
    return LoadInspection(
        replace(
            inspection,
            source_sql=value.sql,
            source_columns=() if value.sql else chosen.columns,
            source_path=value.path or files.display_address,
            source_format=chosen.format,
            files=choice,
            order=(ORDER,) if source.ordered else (),
        ),
        chosen,
        tables,
    )


def _queried(files: Files, value: SourceValue) -> dict[str, FileSet]:
    """Return the files of each table that a query over files reads: folders, and `source` for all files.

    A query that names none of them is not refused here: Spark raises for what it does not know.
    """
    named = tables_named(value.sql, (ALL_FILES, *files.folders())) or (ALL_FILES,)
    return {name: files.file_set("" if name == ALL_FILES else name, value.options) for name in named}


def _joined(sets: Sequence[FileSet]) -> FileSet:
    """Return the files of several tables as one set, which is only for inspection."""
    paths = dict.fromkeys(path for one in sets for path in one.paths)
    return replace(sets[0], paths=tuple(paths), columns=(), groups=())


def _describe(database: SqlSource, sql: str, opened: Opener) -> tuple[SourceColumn, ...]:
    if not database.exists():
        message = f"the source database {database.info()['dbname']} does not exist"
        raise RunError(message)
    session = opened(database)
    try:
        return database.describe(session, sql)
    except database.errors as error:
        message = f"the source query cannot be run: {safe_text(error)}"
        raise RunError(message) from None
    finally:
        session.close()


def inspect_target(
    pipeline: Pipeline,
    target: TargetDeclaration,
    database: TargetSystem,
    inspection: Inspection,
    opened: Opener = wait_for,
) -> Inspection:
    """Describe the target: its table, and how far the last load came."""
    if not database.exists():
        return replace(inspection, target_known=True)
    definition = table_definition(target.table, target.write.mode, database)
    ledger = Ledger(database)
    session = opened(database)
    try:
        existing = database.find_table(session, definition.place)
        versioned = existing is not None and {"valid_from", "is_current"} <= {
            column.name for column in existing.columns
        }
        latest = _latest_version(session, target, database, definition.place) if versioned else None
        watermark, stored_as = (
            find_watermark(ledger, session, pipeline, target) if ledger.exists(session) else (None, "")
        )
    finally:
        session.close()
    note = f"goes on from the watermark of {stored_as}: as that this target was loaded before" if stored_as else ""
    return replace(
        inspection,
        target_known=True,
        existing=existing,
        watermark=watermark,
        watermark_from=stored_as,
        latest_version=latest,
        notes=(*inspection.notes, *([note] if note else [])),
    )


def _latest_version(
    session: Session, target: TargetDeclaration, database: TargetSystem, table_name: TableName
) -> datetime | None:
    """Return the newest `valid_from` of current versions, where a load's own instant begins the new ones."""
    if target.write.mode != "scd2" or target.write.event_timestamp_column is not None:
        return None
    as_text = {"mysql": "CHAR", "spark": "STRING"}.get(database.dialect, "VARCHAR")
    sql = f"SELECT CAST(MAX(valid_from) AS {as_text}) FROM {native_name(table_name, database.dialect)} WHERE is_current"
    rows = database.data(session).query(sql)
    return parse_instant(rows[0][0]) if rows and rows[0][0] is not None else None


def fix_bounds(source: OpenSource, target: TargetDeclaration, inspection: Inspection) -> Inspection:
    """Fix the range of an incremental load of a database source, once, before anything is read."""
    write = target.write
    if write.incremental_column is None or source.database is None:
        return inspection
    column = watermark_column(write, inspection.source_columns)
    check_comparable(column, source.dialect)
    lo = lower_bound(inspection.watermark, write)
    session = source.database.session()
    try:
        rows = session.query(highest_sql(inspection.source_sql, lo, column, write, source.dialect))
    finally:
        session.close()
    hi = stored_value(rows[0][0], column, source.dialect)
    if hi is not None:
        # Refused before the first load, and not when the second one finds that it cannot go back.
        lower_sql(hi, column, source.dialect, write.lookback)
    return with_bounds(target, inspection, lo, hi, int(rows[0][1] or 0))


def with_bounds(
    target: TargetDeclaration, inspection: Inspection, lo: str | None, hi: str | None, nulls: int
) -> Inspection:
    """Return the inspection with its bounds; NULLs in the watermark column follow the declared policy."""
    column = str(target.write.incremental_column)
    if nulls and target.write.null_watermark == "fail":
        message = f"{quantity(nulls, 'row')} with NULL in {column!r} would never be seen by an incremental load"
        hint = "fix the source, or declare null_watermark='load' (with merge) or null_watermark='reject'."
        raise RunError(message, hint=hint)
    return replace(inspection, bounds=Bounds(column, lo, hi, nulls))


def try_inspect_target(
    pipeline: Pipeline, target: TargetDeclaration, database: TargetSystem, inspection: Inspection
) -> Inspection:
    """Describe the target if it can be reached; a preview goes on without it."""
    try:
        return inspect_target(pipeline, target, database, inspection, inspect_now)
    except FlowError as error:
        note = f"target {inspection.target_name!r} could not be queried: {error.what}"
    except database.failures as error:
        note = f"target {inspection.target_name!r} could not be queried: {safe_text(error)}"
    return replace(inspection, notes=(*inspection.notes, note))

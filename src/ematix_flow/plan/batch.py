"""Turns a pipeline and what was inspected of its systems into a plan; pure, it queries nothing."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from ematix_flow.connect.base.stage import StageColumn
from ematix_flow.connect.registry import kinds_with
from ematix_flow.connect.types.digits import digits_of
from ematix_flow.declare.pipeline.pipeline import TransformRef
from ematix_flow.declare.pipeline.write import CHANGES
from ematix_flow.declare.table.types import BigInt, TimestampTZ
from ematix_flow.errors import PlanError, UnsupportedError
from ematix_flow.plan.changes import change_columns, change_rules, points_table, remembers_keys
from ematix_flow.plan.columns import EVENT
from ematix_flow.plan.existing_tables import ensure_step, over_existing
from ematix_flow.plan.keys import compare_columns, merge_keys, order_columns, update_columns
from ematix_flow.plan.metadata_tables import history_name
from ematix_flow.plan.partitions import never_empty, partition_notes
from ematix_flow.plan.programs import lake_append, program_of
from ematix_flow.plan.quality import plan_audit
from ematix_flow.plan.remote_tasks import carried, refuse_unseen
from ematix_flow.plan.shape.placement import plan_shape
from ematix_flow.plan.sql.ddl import table_definition
from ematix_flow.plan.sql.modes import lake as lake_modes
from ematix_flow.plan.sql.program import Load
from ematix_flow.plan.sql.shape.query import unsupported_on
from ematix_flow.plan.steps import (
    IN_DATABASE,
    IN_PROCESS,
    NO_ENGINE,
    SPARK,
    Check,
    Choice,
    Commit,
    Read,
    Stage,
    TargetPlan,
)

if TYPE_CHECKING:
    from datetime import datetime

    from ematix_flow.connect.base.catalog import Catalog
    from ematix_flow.connect.base.columns import SourceColumn, TableSchema
    from ematix_flow.connect.base.source import SqlSource
    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
    from ematix_flow.declare.pipeline.write import Write
    from ematix_flow.declare.table.schema import Table
    from ematix_flow.plan.remote_tasks import Away
    from ematix_flow.plan.shape.placement import Shaping
    from ematix_flow.plan.source import SourceValue
    from ematix_flow.plan.sql.ddl import TableDefinition
    from ematix_flow.plan.steps import Bounds, FileChoice, OffsetRange, TableRead
    from ematix_flow.records import SourceWatermark, Token


@dataclass(frozen=True, slots=True)
class Inspection:
    """What the planner knows of the systems, each part None or empty when it could not be inspected."""

    source_name: str
    target_name: str
    source_dialect: str
    """The source database's dialect, or `spark` for files and frames."""
    user_dialect: str = ""
    """What the user's expressions are written in, where that is not the source's dialect: a stand-in for tests."""
    source_columns: tuple[SourceColumn, ...] = ()
    source_sql: str = ""
    """The source as SQL of its dialect; empty for files and frames without SQL."""
    source_path: str = ""
    source_format: str = ""
    connections: tuple[str, ...] = ()
    """The words for connections, where the source is a query over several."""
    tables: tuple[TableRead, ...] = ()
    """What such a query reads, as far as it is known."""
    rows_in_spark: bool = False
    """The source is a frame of Spark."""
    same_database: bool = False
    local_reason: str = ""
    """Why this process moves the rows between systems; empty where Spark does."""
    away: Away | None = None
    """Where tasks run, if not on this machine."""
    read_paths: tuple[str, ...] = ()
    """What of this machine tasks that read the source must see."""
    target_known: bool = False
    existing: TableSchema | None = None
    watermark: SourceWatermark | None = None
    """Where the last load ended, by whichever column it went."""
    watermark_from: str = ""
    """The name under which that is stored, where the target was declared another way then."""
    bounds: Bounds | None = None
    files: FileChoice | None = None
    """The files that are new, where only those are requested."""
    span: OffsetRange | None = None
    """The range of a stream that is requested."""
    order: tuple[str, ...] = ()
    """Columns of the source with the position of each row, where a stream has one."""
    positioned: bool = False
    """Rows in memory have the text of where each was read, which a reject of it keeps."""
    changes: bool = False
    """The rows are changes, with the columns that say what they do."""
    payloads: bool = False
    """Every row has the message that it came in, which a reject of it keeps."""
    latest_version: datetime | None = None
    """The newest `valid_from` in an scd2 target that is loaded by load time."""
    notes: tuple[str, ...] = ()

    @property
    def local_join(self) -> bool:
        """Return whether the source is a query over several connections, and Spark is not to be used."""
        return bool(self.connections and self.local_reason)


WAITING = Choice("cross_db", "the rows are staged and wait for flow apply")


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """The load that a plan is requested for."""

    pipeline: Pipeline
    target: TargetDeclaration
    source: SourceValue
    database: TargetSystem
    token: Token
    now: datetime
    source_database: SqlSource | None = None
    waits: bool = False
    """The rows wait in staging until they are approved, whatever the shortest path would be."""
    skip_quality: bool = False
    """Expectations are left out, which the result reports."""


def plan_target(request: PlanRequest, inspection: Inspection) -> TargetPlan:
    """Return the plan of one target."""
    table = over_existing(request.target.table, inspection.existing, request.database, request.target.write.on_drift)
    request = replace(request, target=replace(request.target, table=table))
    pipeline, target, database = request.pipeline, request.target, request.database
    write = target.write
    _check_supported(pipeline, table, write, database)
    _check_joined(pipeline, inspection)
    database.check_files(target.files.specified())
    keys = merge_keys(table, write)
    compare = compare_columns(table, write, keys.value)
    definition = table_definition(table, write.mode, database, target.partition_by)
    ensure = ensure_step(table, write, definition, database, inspection)
    path = WAITING if request.waits else choose_path(pipeline, target, request.source, inspection)
    _check_carried(table, path)
    load = _load(request, inspection, keys.value, compare.value)
    columns = (*load.columns, *load.extra)
    required = () if load.changes is not None else _required(table, keys.value, load, write)
    given = request.source.shaped
    shaping = plan_shape(pipeline, target, inspection, path.value, request.source_database, required, given=given)
    read = _read(inspection, shaping, request.source)
    audit = plan_audit(request, load, exists=bool(ensure.exists))
    by = _staged_by(path, shaping, inspection, read)
    program = program_of(load, write, database)
    if write.mode == "append" and load.dialect == lake_modes.DIALECT:
        program = (
            lake_modes.append(load, "expectations are measured first")
            if audit.measures
            else lake_append(database, ensure, inspection.existing, load, required)
        )
    lake = bool(database.spark_requirements.packages) and not program.adds
    refuse_unseen(inspection.away, by, inspection.read_paths, database.write_paths, lake=lake)
    return TargetPlan(
        pipeline=pipeline.name,
        table_name=table.qualified_name,
        connection=inspection.target_name,
        token=request.token,
        history_name=history_name(pipeline, table),
        path=path,
        ensure=ensure,
        read=read,
        shape=shaping.step,
        check=Check(
            required,
            write.on_bad_row,
            _may_lack(table, write),
            never_empty(definition, inspection.existing, database),
        ),
        stage=Stage(columns, by, tuple(target.files.specified().items()), carried(inspection.away, by, database)),
        commit=Commit(write, load, program, keys, compare),
        now=request.now,
        connection_info=dict(database.info()),
        notes=(*inspection.notes, *partition_notes(target, database), *_view_notes(table)),
        watermark=inspection.watermark,
        watermark_from=inspection.watermark_from,
        audit=audit,
        features=table.features,
    )


def _view_notes(table: Table) -> tuple[str, ...]:
    """Return what the commit of a feature view does besides loading it."""
    view = table.features
    if view is None:
        return ()
    online = " and brings its online store up to date" if view.online else ""
    return (f"the commit registers the load of feature view {view.name}{online}",)


def _staged_by(path: Choice, shaping: Shaping, inspection: Inspection, read: Read) -> Choice:
    """Choose who moves the rows: the database that has both sides, else Spark, unless the settings have `local`."""
    if path.value == "same_db":
        return Choice(IN_DATABASE, "the target reads the source query itself")
    if read.is_empty:
        return Choice(NO_ENGINE, "there is nothing new")
    if shaping.place.value == SPARK:
        return Choice(SPARK, "it evaluates the shape")
    if not inspection.local_reason:
        return Choice(SPARK, "rows move from one system to another")
    return Choice(IN_PROCESS, inspection.local_reason)


def after(now: datetime, latest: datetime | None) -> datetime:
    """Return the instant of a load, later than every version that is there, also when a clock went backwards."""
    return now if latest is None or latest < now else latest + timedelta(microseconds=1)


def schema_hash(definition: TableDefinition) -> str:
    """Return a fingerprint of the columns a load writes."""
    text = "\n".join(f"{c.column.name} {c.column.type} {c.nullable}" for c in definition.columns)
    return hashlib.sha256(text.encode()).hexdigest()


def _check_supported(pipeline: Pipeline, table: Table, write: Write, database: Catalog) -> None:
    if write.mode not in database.capabilities.modes:
        message = f"pipeline {pipeline.name!r} uses mode {write.spelled!r}, which {database.kind} cannot do"
        can = ", ".join(database.capabilities.modes) or "nothing"
        others = ", ".join(kinds_with(write.mode)) or "no system that is installed"
        raise UnsupportedError(message, hint=f"{database.kind} can: {can}. {write.spelled} can be done by: {others}.")
    if pipeline.transforms_post and not database.capabilities.answers_sql:
        steps = [step for step in pipeline.transforms_post if not isinstance(step, TransformRef)]
        if steps:
            message = f"pipeline {pipeline.name!r} has post steps, and {database.kind} answers no SQL"
            hint = "name a transform that has a target_connection= of its own: ematix.transform_ref(name)."
            raise UnsupportedError(message, hint=hint)
    check_keyed(table, write)
    if write.mode == "scd2" and not table.stamped:
        message = f"scd2 into {table.qualified_name} needs a declared table, because it adds columns"
        raise PlanError(message, hint="give target_table= a table class.", origin=pipeline.origin)


def _check_joined(pipeline: Pipeline, inspection: Inspection) -> None:
    """Refuse a query over several connections where Spark is not to be used: no other engine can evaluate it."""
    if inspection.local_join:
        message = f"joins across connections need Spark, and {inspection.local_reason}"
        hint = "run it with --engine spark, or load the tables into one database first."
        raise PlanError(message, hint=hint, origin=pipeline.origin)


def _check_carried(table: Table, path: Choice) -> None:
    """Refuse numbers with more digits than rows can carry between systems; inside one database they go nowhere."""
    for column in table.columns if path.value != "same_db" else ():
        if column.type.kind == "numeric":
            digits_of(column.type)


def check_keyed(table: Table, write: Write) -> None:
    """Refuse to merge into a declared table without a primary key: nothing would identify its rows."""
    if table.stamped and not table.primary_key and write.mode in ("merge", "scd2"):
        message = f"{write.spelled} into {table.qualified_name}: the table must declare at least one primary key column"
        raise PlanError(message, hint="mark it with pk(); only append and truncate need none.", origin=table.origin)


def choose_path(pipeline: Pipeline, target: TargetDeclaration, source: SourceValue, inspection: Inspection) -> Choice:
    """Choose between one statement inside the database and staging on Spark."""
    if source.frame is not None or not inspection.source_sql or inspection.source_dialect == "spark":
        return _forced(pipeline, "cross_db", "the source is not a query of the target's database")
    if not inspection.same_database:
        return _forced(pipeline, "cross_db", "source and target are different databases")
    if pipeline.force_path == "cross_db":
        return Choice("cross_db", "force_path= says so")
    if target.write.on_bad_row == "reject" or target.write.null_watermark == "reject":
        return _forced(pipeline, "cross_db", "rejects need every row checked before it is loaded")
    missing = unsupported_on(target.table, inspection.source_dialect, pipeline.transforms_pre)
    if missing:
        return _forced(pipeline, "cross_db", f"{inspection.source_dialect} cannot express {missing}")
    return Choice("same_db", "source and target are the same database")


def _forced(pipeline: Pipeline, path: str, reason: str) -> Choice:
    if pipeline.force_path == "same_db":
        message = f"force_path='same_db' is impossible for {pipeline.name!r}: {reason}"
        raise PlanError(message, origin=pipeline.origin)
    return Choice(path, reason)


def _load(request: PlanRequest, inspection: Inspection, keys: tuple[str, ...], compare: tuple[str, ...]) -> Load:
    table, write, database = request.target.table, request.target.write, request.database
    now = after(request.now, inspection.latest_version)
    in_key = {*table.primary_key, *keys}
    by_event = write.mode == "scd2" and write.event_timestamp_column is not None
    event = (StageColumn(EVENT, TimestampTZ()),) if by_event else ()
    return Load(
        dialect=database.dialect,
        target=database.table_name(table.schema, table.name),
        columns=tuple(StageColumn(c.name, c.type, c.name in in_key, c.native) for c in table.columns),
        loaded_at=now,
        batch_id=request.token.run_id,
        keys=keys,
        update=update_columns(table, write, keys),
        compare=compare,
        event=EVENT if by_event else "",
        points=points_table(table, database) if by_event or remembers_keys(write, database) else None,
        delete_absent=write.handle_deletes is not None,
        replaced=write.replaced,
        expire_before=now - write.ttl if write.ttl is not None else None,
        forget_before=now - write.late_horizon if by_event or write.mode == CHANGES else None,
        extra=(
            *event,
            *change_columns(changes=inspection.changes),
            *(StageColumn(name, BigInt()) for name in inspection.order),
        ),
        order=inspection.order,
        order_by=order_columns(table, write),
        stamped=table.stamped,
        folder=(request.target.files.prefix or database.table_name(table.schema, table.name).name).strip("/"),
        changes=change_rules(table, write, database, history_name(request.pipeline, table))
        if inspection.changes
        else None,
    )


def _required(table: Table, keys: tuple[str, ...], load: Load, write: Write) -> tuple[str, ...]:
    event = (load.event,) if load.event else ()
    needed = {*keys, _may_lack(table, write)}
    return (*(c.name for c in table.columns if not c.nullable or c.name in needed), *event)


def _may_lack(table: Table, write: Write) -> str:
    """Return the column whose NULLs are rejects whatever happens to other bad rows: the watermark's, on request."""
    if write.null_watermark != "reject" or write.incremental_column is None:
        return ""
    return table.column(write.incremental_column).name


def _read(inspection: Inspection, shaping: Shaping, source: SourceValue) -> Read:
    if source.frame is not None:
        kind = "frame"
    elif inspection.span is not None:
        kind = "stream"
    elif inspection.connections:
        kind = "join"
    elif inspection.source_dialect == "spark":
        kind = "files" if inspection.source_path or inspection.source_format else "lake"
    else:
        kind = "sql"
    return Read(
        kind=kind,
        connection=inspection.source_name,
        sql=_read_sql(kind, shaping, inspection),
        path=inspection.source_path,
        format=inspection.source_format,
        columns=inspection.source_columns,
        bounds=inspection.bounds,
        files=inspection.files,
        span=inspection.span,
        tables=inspection.tables,
    )


def _read_sql(kind: str, shaping: Shaping, inspection: Inspection) -> str:
    if kind != "sql":
        return inspection.source_sql
    return shaping.read_sql if shaping.place.value == SPARK else shaping.sql

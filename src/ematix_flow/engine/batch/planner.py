"""Builds the plan of one target: the one function behind run, dry run, preview and validate; it changes nothing."""

from __future__ import annotations

import os
import warnings
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ematix_flow.engine.batch.bounds import BoundsRequest, bound_rows
from ematix_flow.engine.batch.inspect import fix_bounds, inspect_source, inspect_target, wait_for, with_optional_keys
from ematix_flow.engine.batch.joins import bounded_join, joined_columns, with_versions
from ematix_flow.engine.batch.new_files import loaded_before
from ematix_flow.engine.batch.stager import raw_frame, translating_spark_errors, with_functions
from ematix_flow.engine.batch.target import engine_on
from ematix_flow.engine.frames.columns import frame_columns
from ematix_flow.engine.spark.session import local_reason, tasks_away
from ematix_flow.errors import PositionMovedError, TargetAwayError
from ematix_flow.plan.assumed_columns import assumed_columns
from ematix_flow.plan.batch import PlanRequest, plan_target
from ematix_flow.plan.bounds import lower_bound
from ematix_flow.plan.lake_query import lake_query
from ematix_flow.plan.new_files import check_source, refused, warning
from ematix_flow.records import SourceWatermark, Token

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
    from ematix_flow.engine.batch.inspect import LoadInspection
    from ematix_flow.engine.batch.options import Options
    from ematix_flow.engine.batch.source import OpenSource
    from ematix_flow.plan.batch import Inspection
    from ematix_flow.plan.remote_tasks import Away
    from ematix_flow.plan.steps import Bounds, TargetPlan


SKIP = "EMATIX_SKIP_QUALITY"
"""Environment variable: 1 leaves expectations out, which results show."""


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """The load that a plan is requested for."""

    pipeline: Pipeline
    target: TargetDeclaration
    source: OpenSource
    database: TargetSystem
    token: Token
    now: datetime
    local_reason: str = ""
    """Why this process moves the rows between systems; empty where Spark does."""
    away: Away | None = None
    """Where tasks run, if not on this machine."""
    waits: bool = False
    """The rows wait in staging until they are applied."""


def request_for(  # noqa: PLR0913 - everything that a plan is made from
    pipeline: Pipeline,
    target: TargetDeclaration,
    source: OpenSource,
    database: TargetSystem,
    token: Token,
    options: Options,
    *,
    now: datetime | None = None,
    waits: bool = False,
) -> LoadRequest:
    """Return the request for a plan, with the engine that the settings and the options of a run choose."""
    at, local, away = now or options.clock.now(), local_reason(options), tasks_away(options)
    return LoadRequest(pipeline, target, source, database, token, at, local, away, waits)


def plan_load(
    load_request: LoadRequest, inspect_load: Callable[[LoadRequest], LoadInspection]
) -> tuple[TargetPlan, LoadInspection]:
    """Return the plan for what `inspect_load` returns, and that inspection."""
    load_inspection = inspect_load(load_request)
    request = PlanRequest(
        load_request.pipeline,
        load_request.target,
        load_request.source.value,
        load_request.database,
        load_request.token,
        load_request.now,
        load_request.source.database,
        load_request.waits,
        skip_quality=os.environ.get(SKIP) == "1",
    )
    plan = plan_target(request, load_inspection.inspection)
    return plan, load_inspection


def token_for(pipeline: Pipeline, target: TargetDeclaration, slot: str) -> Token:
    """Return the token of a load."""
    return Token(pipeline.name, f"{target.connection_name}:{target.table.qualified_name}", slot)


def load_inspector(spark: Callable[[], Any], *, ahead: bool = False) -> Callable[[LoadRequest], LoadInspection]:
    """Return the inspector of a load: everything is inspected, by Spark what only Spark can read.

    With `ahead` the load before it has not committed, and the target is taken to be where this one begins.
    """

    def inspect_load(load_request: LoadRequest) -> LoadInspection:
        check_source(load_request.target.write, load_request.source.kind, load_request.source.value.sql)
        load_inspection = known_to_spark(load_request, _inspect_source(load_request), spark)
        inspection = inspect_target(
            load_request.pipeline, load_request.target, load_request.database, load_inspection.inspection
        )
        if ahead:
            inspection = replace(inspection, watermark=_expected_position(inspection))
        refuse_moved_position(inspection)
        refuse_missing_target(load_request, inspection)
        inspection = fix_bounds(load_request.source, load_request.target, inspection)
        if (
            load_request.target.write.incremental_column is not None
            and load_request.source.database is None
            and not inspection.local_join
        ):
            rows = BoundsRequest(
                load_request.pipeline,
                load_request.target,
                load_request.source,
                bounded_inspection(load_request, load_inspection, inspection, None),
            )
            inspection = bound_rows(rows, inspection, spark)
            load_inspection = bounded_inspection(load_request, load_inspection, inspection, inspection.bounds)
            inspection = replace(inspection, tables=load_inspection.inspection.tables)
        return replace(load_inspection, inspection=inspection)

    return inspect_load


def refuse_moved_position(inspection: Inspection) -> None:
    """Refuse the range of a stream that does not begin where the target's rows end."""
    offset_range = inspection.span
    if offset_range is not None and inspection.watermark != _expected_position(inspection):
        message = f"the position of {offset_range.source} in the target is not where this load begins"
        raise PositionMovedError(message, hint="another process runs this stream; nothing was changed.")


def _expected_position(inspection: Inspection) -> SourceWatermark | None:
    """Return the position that the target has where the range of a stream begins."""
    offset_range = inspection.span
    if offset_range is None or not offset_range.known:
        return None
    return SourceWatermark(offset_range.source, offset_range.begin)


def refuse_missing_target(load_request: LoadRequest, inspection: Inspection) -> None:
    """Refuse to create a table again that was loaded before: replacing it by another one renames it briefly."""
    if (
        load_request.source.previously_loaded
        and inspection.existing is None
        and load_request.database.capabilities.answers_sql
    ):
        raise away(load_request.target.table.qualified_name)


def away(table: str) -> TargetAwayError:
    """Return the error for a table that has rows of a stream and is missing."""
    message = f"table {table} is not there, though earlier batches of the stream are in it"
    hint = "give it back; or let the stream make it anew: flow stream rewind NAME --to earliest."
    return TargetAwayError(message, hint=hint)


def _inspect_source(load_request: LoadRequest) -> LoadInspection:
    """Describe the source; without new files none is read for its columns, and the declared ones are taken."""
    loaded = loaded_before(load_request.pipeline, load_request.target, load_request.database, wait_for)
    load_inspection = inspect_source(load_request.source, loaded=loaded)
    choice = load_inspection.inspection.files
    if choice is None:
        return _with_declared_columns(load_request, load_inspection)
    error, left_out = refused(choice), warning(choice)
    if error is not None:
        raise error
    if left_out:
        warnings.warn(left_out, UserWarning, stacklevel=2)
    if choice.chosen:
        return _with_declared_columns(load_request, load_inspection)
    return replace(
        load_inspection,
        inspection=replace(load_inspection.inspection, source_columns=assumed_columns(load_request.target)),
    )


def _with_declared_columns(load_request: LoadRequest, load_inspection: LoadInspection) -> LoadInspection:
    """Return the inspection with the declared columns that JSON files do not tell: all where no line is, else those left out."""
    files, inspection = load_inspection.files, load_inspection.inspection
    if files is None or not files.paths or files.columns or inspection.source_sql:
        return with_optional_keys(load_request.target, load_inspection)
    inspection = replace(inspection, source_columns=assumed_columns(load_request.target))
    return replace(load_inspection, inspection=inspection, without_lines=True)


def bounded_inspection(
    load_request: LoadRequest, load_inspection: LoadInspection, inspection: Inspection, bounds: Bounds | None
) -> LoadInspection:
    """Return the inspection of a join with the range of the load in its queries, as far as it is known."""
    if load_inspection.join is None:
        return load_inspection
    lo = lower_bound(inspection.watermark, load_request.target.write)
    join = bounded_join(
        load_inspection.join, load_request.pipeline, load_request.target, lo, bounds.hi if bounds is not None else None
    )
    return replace(load_inspection, join=join, inspection=replace(load_inspection.inspection, tables=join.reads))


def known_to_spark(
    load_request: LoadRequest, load_inspection: LoadInspection, spark: Callable[[], Any]
) -> LoadInspection:
    """Return the inspection with versions of lake tables and columns of queries, which Spark has without reading."""
    load_inspection = replace(
        load_inspection,
        inspection=between(load_request, at_versions(load_request.source, load_inspection.inspection, spark)),
    )
    if load_inspection.join is not None:
        return _known_join(load_request.source, load_inspection, spark)
    if (
        not load_inspection.inspection.source_columns
        and load_inspection.inspection.source_sql
        and load_request.source.database is None
    ):
        with translating_spark_errors(), ExitStack() as resources:
            raw = raw_frame(
                spark(),
                load_request.source,
                load_inspection,
                load_inspection.inspection.source_sql,
                resources,
                reads=False,
            )
            columns = frame_columns(raw)
        return replace(load_inspection, inspection=replace(load_inspection.inspection, source_columns=columns))
    return load_inspection


def _known_join(source: OpenSource, load_inspection: LoadInspection, spark: Callable[[], Any]) -> LoadInspection:
    """Return the inspection of a query over several connections with its versions and columns, which Spark knows."""
    assert load_inspection.join is not None  # noqa: S101 - asked for joins alone
    if load_inspection.inspection.local_join:
        return load_inspection  # the plan refuses it, without Spark
    join = with_versions(load_inspection.join, spark)
    with translating_spark_errors():
        columns = joined_columns(with_functions(spark(), source), join)
    return replace(load_inspection, join=join, inspection=replace(load_inspection.inspection, source_columns=columns))


def at_versions(source: OpenSource, inspection: Inspection, spark: Callable[[], Any]) -> Inspection:
    """Return the inspection with the versions of lake tables that this load reads, however long it takes."""
    if source.lake is None:
        return inspection
    lake, engine = source.lake, engine_on(spark)
    lake.prepare(engine)
    sql = lake_query(source.value, lake.relation, lambda schema, name: lake.newest(engine, schema, name))
    return replace(inspection, source_sql=sql)


def between(load_request: LoadRequest, inspection: Inspection) -> Inspection:
    """Return the inspection with what follows from source and target together."""
    source = load_request.source.database
    same = source is not None and source.identity() == load_request.database.identity()
    return replace(
        inspection,
        target_name=load_request.target.connection_name,
        same_database=same,
        local_reason=load_request.local_reason,
        away=load_request.away,
        read_paths=load_request.source.read_paths,
    )

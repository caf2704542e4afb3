"""Builds the plan of one target: the one function behind run, dry run, preview and validate; it changes nothing."""

from __future__ import annotations

import os
import warnings
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ematix_flow.engine.batch.bounds import Rows, bound_rows
from ematix_flow.engine.batch.frame_columns import frame_columns
from ematix_flow.engine.batch.inspect import fix_bounds, look_at_source, look_at_target, wait_for
from ematix_flow.engine.batch.joins import bounded_join, joined_columns, with_versions
from ematix_flow.engine.batch.new_files import loaded_before
from ematix_flow.engine.batch.stager import raw_frame, told, with_functions
from ematix_flow.engine.batch.target import engine_on
from ematix_flow.engine.spark.session import local_reason, tasks_away
from ematix_flow.errors import PositionMovedError, TargetAwayError
from ematix_flow.plan.assumed_columns import assumed_columns
from ematix_flow.plan.batch import PlanRequest, plan_target
from ematix_flow.plan.bounds import lower_bound
from ematix_flow.plan.lake_query import lake_query
from ematix_flow.plan.new_files import check_source, refused, warning
from ematix_flow.records import Token, Watermark

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from ematix_flow.connect.base.target import Target
    from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
    from ematix_flow.engine.batch.inspect import Look
    from ematix_flow.engine.batch.options import Options
    from ematix_flow.engine.batch.source import OpenSource
    from ematix_flow.plan.batch import Observed
    from ematix_flow.plan.remote_tasks import Away
    from ematix_flow.plan.steps import Bounds, TargetPlan


SKIP = "EMATIX_SKIP_QUALITY"
"""Environment variable: 1 leaves expectations out, which results tell."""


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """The load that a plan is wanted for."""

    pipeline: Pipeline
    target: TargetDeclaration
    source: OpenSource
    database: Target
    token: Token
    now: datetime
    local_reason: str = ""
    """Why this process moves the rows between systems; empty where Spark does."""
    away: Away | None = None
    """Where tasks run, if not on this machine."""
    waits: bool = False
    """The rows wait in staging until somebody applies them."""


def request_for(  # noqa: PLR0913 - everything that a plan is made from
    pipeline: Pipeline,
    target: TargetDeclaration,
    source: OpenSource,
    database: Target,
    token: Token,
    options: Options,
    *,
    now: datetime | None = None,
    waits: bool = False,
) -> LoadRequest:
    """Return the request for a plan, with the engine that the settings and the options of a run choose."""
    at, local, away = now or options.clock.now(), local_reason(options), tasks_away(options)
    return LoadRequest(pipeline, target, source, database, token, at, local, away, waits)


def plan_load(load_request: LoadRequest, observe: Callable[[LoadRequest], Look]) -> tuple[TargetPlan, Look]:
    """Return the plan for what `observe` sees, and what it saw."""
    look = observe(load_request)
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
    plan = plan_target(request, look.observed)
    return plan, look


def token_for(pipeline: Pipeline, target: TargetDeclaration, slot: str) -> Token:
    """Return the token of a load."""
    return Token(pipeline.name, f"{target.connection_name}:{target.table.qualified_name}", slot)


def observing(spark: Callable[[], Any]) -> Callable[[LoadRequest], Look]:
    """Return the way to observe that a load needs: everything is asked, and what only Spark can read, Spark is asked."""

    def observe(load_request: LoadRequest) -> Look:
        check_source(load_request.target.write, load_request.source.kind, load_request.source.value.sql)
        look = known_to_spark(load_request, _look(load_request), spark)
        seen = look_at_target(load_request.pipeline, load_request.target, load_request.database, look.observed)
        refuse_moved_on(seen)
        refuse_gone(load_request, seen)
        seen = fix_bounds(load_request.source, load_request.target, seen)
        if (
            load_request.target.write.incremental_column is not None
            and load_request.source.database is None
            and not seen.local_join
        ):
            rows = Rows(
                load_request.pipeline,
                load_request.target,
                load_request.source,
                bounded_look(load_request, look, seen, None),
            )
            seen = bound_rows(rows, seen, spark)
            look = bounded_look(load_request, look, seen, seen.bounds)
            seen = replace(seen, tables=look.observed.tables)
        return replace(look, observed=seen)

    return observe


def refuse_moved_on(seen: Observed) -> None:
    """Refuse the stretch of a stream that does not begin where the target's rows end."""
    span = seen.span
    if span is None:
        return
    wanted = Watermark(span.source, span.begin) if span.known else None
    if seen.watermark != wanted:
        message = f"the position of {span.source} in the target is not where this load begins"
        raise PositionMovedError(message, hint="another process runs this stream; nothing was changed.")


def refuse_gone(load_request: LoadRequest, seen: Observed) -> None:
    """Refuse to make a table anew that was loaded before: whoever replaces it by another one renames it for a moment."""
    if load_request.source.made and seen.found is None and load_request.database.capabilities.answers_sql:
        raise away(load_request.target.table.qualified_name)


def away(table: str) -> TargetAwayError:
    """Return the error for a table that has rows of a stream and is missing."""
    message = f"table {table} is not there, though earlier batches of the stream are in it"
    hint = "give it back; or let the stream make it anew: flow stream rewind NAME --to earliest."
    return TargetAwayError(message, hint=hint)


def _look(load_request: LoadRequest) -> Look:
    """Describe the source; without new files nobody is asked for their columns, and the declared ones are taken."""
    loaded = loaded_before(load_request.pipeline, load_request.target, load_request.database, wait_for)
    look = look_at_source(load_request.source, loaded=loaded)
    choice = look.observed.files
    if choice is None:
        return look
    error, left_out = refused(choice), warning(choice)
    if error is not None:
        raise error
    if left_out:
        warnings.warn(left_out, UserWarning, stacklevel=2)
    if choice.chosen:
        return look
    return replace(look, observed=replace(look.observed, source_columns=assumed_columns(load_request.target)))


def bounded_look(load_request: LoadRequest, look: Look, seen: Observed, bounds: Bounds | None) -> Look:
    """Return the look at a join with the range of the load asked of its tables: as far as it is known, from the last load on."""
    if look.join is None:
        return look
    lo = lower_bound(seen.watermark, load_request.target.write)
    join = bounded_join(
        look.join, load_request.pipeline, load_request.target, lo, bounds.hi if bounds is not None else None
    )
    return replace(look, join=join, observed=replace(look.observed, tables=join.reads))


def known_to_spark(load_request: LoadRequest, look: Look, spark: Callable[[], Any]) -> Look:
    """Return the look with versions of lake tables and columns of queries, which Spark knows without reading rows."""
    look = replace(look, observed=between(load_request, _pinned(load_request.source, look.observed, spark)))
    if look.join is not None:
        return _known_join(load_request.source, look, spark)
    if not look.observed.source_columns and look.observed.source_sql and load_request.source.database is None:
        with ExitStack() as kept:
            raw = raw_frame(spark(), load_request.source, look, look.observed.source_sql, kept, reads=False)
            columns = frame_columns(raw)
        return replace(look, observed=replace(look.observed, source_columns=columns))
    return look


def _known_join(source: OpenSource, look: Look, spark: Callable[[], Any]) -> Look:
    """Return the look at a query over several connections with its versions and columns, which Spark knows."""
    assert look.join is not None  # noqa: S101 - asked for joins alone
    if look.observed.local_join:
        return look  # the plan refuses it, without Spark
    join = with_versions(look.join, spark)
    try:
        columns = joined_columns(with_functions(spark(), source), join)
    except Exception as error:
        raise told(error) from error
    return replace(look, join=join, observed=replace(look.observed, source_columns=columns))


def _pinned(source: OpenSource, seen: Observed, spark: Callable[[], Any]) -> Observed:
    """Return the observation with the versions of lake tables that this load reads, however long it takes."""
    if source.lake is None:
        return seen
    lake, engine = source.lake, engine_on(spark)
    lake.prepare(engine)
    sql = lake_query(source.value, lake.relation, lambda schema, name: lake.newest(engine, schema, name))
    return replace(seen, source_sql=sql)


def between(load_request: LoadRequest, seen: Observed) -> Observed:
    """Return the observation with what follows from source and target together."""
    source = load_request.source.database
    same = source is not None and source.identity() == load_request.database.identity()
    return replace(
        seen,
        target_name=load_request.target.connection_name,
        same_database=same,
        local_reason=load_request.local_reason,
        away=load_request.away,
        read_paths=load_request.source.read_paths,
    )

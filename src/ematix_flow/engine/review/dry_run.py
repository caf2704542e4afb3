"""Counts what a run would do now: the load is carried out up to its commit and rolled back; nothing is stored."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ematix_flow.commit.constraint_violations import searchable, without_violations
from ematix_flow.commit.ledger import HistoryRow
from ematix_flow.commit.request import staged_alone
from ematix_flow.commit.simulate import simulate
from ematix_flow.connect.base.scratch import scratch_folder
from ematix_flow.connect.base.source import SqlSource
from ematix_flow.connect.base.stage import StageSpec
from ematix_flow.connect.config.lookup import resolve_connection
from ematix_flow.connect.config.redact import redact, safe_text
from ematix_flow.connect.lake.source import LakeSource
from ematix_flow.connect.registry import open_system, open_target
from ematix_flow.engine.batch.commit_request import commit_request_for
from ematix_flow.engine.batch.ddl import can_simulate, expand
from ematix_flow.engine.batch.inspect import wait_for
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.batch.own_target import note_about, over_missing_target
from ematix_flow.engine.batch.planner import load_inspector, plan_load, request_for, token_for
from ematix_flow.engine.batch.result import counts_of
from ematix_flow.engine.batch.source import source_for
from ematix_flow.engine.batch.stager import Staging, stage, stage_name
from ematix_flow.engine.batch.target import target_for
from ematix_flow.engine.review.preview import plan_despite_drift, refuse_plain, report
from ematix_flow.engine.spark.session import session_for
from ematix_flow.errors import DriftError, FlowError, QualityCheckFailed, RefusedError
from ematix_flow.plan.explain.report import TargetSummary, summary_of
from ematix_flow.records import Counts, Fence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ematix_flow.commit.publish import Simulation
    from ematix_flow.commit.request import CommitRequest
    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
    from ematix_flow.engine.batch.inspect import LoadInspection
    from ematix_flow.engine.batch.planner import LoadRequest
    from ematix_flow.engine.batch.source import OpenSource
    from ematix_flow.engine.review.preview import PreviewResult
    from ematix_flow.plan.steps import TargetPlan
    from ematix_flow.records import Audited, TaskReport

Spark: TypeAlias = "Callable[[], Any]"


def dry_run_pipeline(pipeline: Pipeline, options: Options | None = None) -> PreviewResult:
    """Return the plan with the counts that a run would have now; errors are those of each target and stop no other."""
    refuse_plain(pipeline)
    options = options or Options()
    source = source_for(pipeline, options, session_for(options))
    if source.value.result is not None:
        note = "the function returns a result instead of a source: nothing is loaded"
        return report(pipeline, source, (), (note,), is_dry_run=True)
    targets = [simulate_target(pipeline, target, source, options) for target in pipeline.targets]
    notes = ["post steps are not part of a dry run"] if pipeline.transforms_post else []
    return report(pipeline, source, targets, notes, is_dry_run=True)


def simulate_target(
    pipeline: Pipeline, target: TargetDeclaration, source: OpenSource, options: Options
) -> TargetSummary:
    """Simulate one target; errors are part of the result."""
    summary = TargetSummary(
        schema_qualified_name=target.table.qualified_name,
        mode=target.write.spelled,
        target_connection_name=target.connection_name,
        declared_columns=target.table.column_names,
    )
    try:
        with _database(target, source, session_for(options)) as (database, reachable):
            token = token_for(pipeline, target, f"dry-run-{uuid.uuid4().hex}")
            load_request = request_for(pipeline, target, reachable, database, token, options)
            for summary in _steps(load_request, session_for(options)):  # noqa: B007 - the last one counts, also after an error
                pass
    except Exception as error:  # noqa: BLE001 - the engine's boundary: whatever goes wrong is part of the answer
        summary = replace(summary, dry_run_error=format_error(error))
        if isinstance(error, QualityCheckFailed):
            summary = replace(summary, quality=_verdicts(error.audited))
    return summary


def _steps(load_request: LoadRequest, spark: Spark) -> Iterator[TargetSummary]:
    """Plan, then count; yield what is known after each step."""
    inspect_load = load_inspector(spark)
    stand_in = over_missing_target(load_request, wait_for)
    own = () if stand_in is None else (note_about(load_request),)
    load_request = stand_in or load_request
    try:
        plan, load_inspection = plan_load(load_request, inspect_load)
    except DriftError:
        yield summary_of(plan_despite_drift(load_request, inspect_load))
        raise
    plan = replace(plan, connection_info=dict(_target_database(load_request.target).info()), notes=(*plan.notes, *own))
    countable = can_simulate(load_request.database, plan)
    if not countable:
        note = f"{load_request.database.kind} cannot roll back a change of a table: the rows of the source are counted instead"
        plan = replace(plan, notes=(*plan.notes, note))
    yield summary_of(plan)
    with _staging(load_request, plan, load_inspection, spark) as (spec, reports):
        request = commit_request_for(plan, Fence(plan.history_name, 0), _history(load_request), spec, reports)
        done = (
            _simulate(request, load_request.database, plan)
            if countable
            else _tally(request, load_request.database, plan)
        )
    known = {"rows_staged": done.counts.staged, **counts_of(done.counts, plan.commit.write.mode)}
    yield replace(summary_of(plan), dry_run_rows_affected=known, quality=_verdicts(done.audited))


def _target_database(target: TargetDeclaration) -> TargetSystem:
    return open_target(target.connection, (target.table.schema, target.table.name))


def _simulate(request: CommitRequest, database: TargetSystem, plan: TargetPlan) -> Simulation:
    """Carry out the load and roll it back, with the target created or widened inside the same transaction."""

    def prepare(session: Session) -> None:
        expand(database, session, plan)

    try:
        return simulate(request, database, prepare if database.capabilities.transactional_ddl else None)
    except RefusedError:
        if not searchable(request, database) or plan.ensure.statements:
            raise
    return simulate(without_violations(request, database), database)


def _tally(request: CommitRequest, database: TargetSystem, plan: TargetPlan) -> Simulation:
    """Count the rows alone; into a table that is missing, every one of them would be inserted."""
    done = simulate(staged_alone(request), database)
    counts = done.counts
    inserted = 0 if plan.ensure.exists else counts.staged
    return replace(done, counts=Counts(staged=counts.staged, inserted=inserted, rejected=counts.rejected))


def _verdicts(audited: Audited | None) -> dict[str, Any] | None:
    return None if audited is None else audited.to_dict()


@contextmanager
def _database(target: TargetDeclaration, source: OpenSource, spark: Spark) -> Iterator[tuple[TargetSystem, OpenSource]]:
    """Return the target, or a scratch one in place of a file that does not exist and must not be created."""
    declared = resolve_connection("default" if target.connection is None else target.connection)
    database = target_for(declared, target.table, spark)
    if database.exists():
        yield database, source
        return
    with scratch_folder("dry-run") as folder:
        overrides = {"warehouse" if hasattr(declared, "warehouse") else "path": str(Path(folder) / "scratch")}
        scratch_connection = replace(declared, **overrides)  # type: ignore[arg-type]
        scratch = target_for(scratch_connection, target.table, spark)
        if (
            isinstance(scratch, SqlSource)
            and source.database is not None
            and source.database.identity() == database.identity()
        ):
            source = replace(source, database=scratch)
        scratch.session().close()
        yield scratch, _lake_moved(source, database, open_system(scratch_connection))


def _lake_moved(source: OpenSource, database: TargetSystem, scratch_connection: object) -> OpenSource:
    """Return the source with a lake that does not exist yet at the location of the scratch target."""
    if not isinstance(scratch_connection, LakeSource):
        return source

    def moved(system: Any) -> Any:
        return (
            scratch_connection
            if isinstance(system, LakeSource) and system.identity() == database.identity()
            else system
        )

    sides = tuple(replace(side, system=moved(side.system)) for side in source.sides)
    return replace(source, lake=moved(source.lake), sides=sides)


@contextmanager
def _staging(
    load_request: LoadRequest, plan: TargetPlan, load_inspection: LoadInspection, spark: Spark
) -> Iterator[tuple[StageSpec | None, tuple[TaskReport, ...]]]:
    """Return the staged rows of a plan, dropped at the end; nothing where the target reads the source itself."""
    if plan.path.value == "same_db":
        yield None, ()
        return
    name = stage_name(plan.token)
    try:
        yield stage(Staging(name, plan, load_request.source, load_inspection, load_request.database), spark)
    finally:
        session = load_request.database.session()
        try:
            load_request.database.drop_stage(session, StageSpec(name, b""))
        finally:
            session.close()


def _history(load_request: LoadRequest) -> HistoryRow:
    table, name = load_request.target.table, load_request.pipeline.name
    mode = load_request.target.write.spelled
    return HistoryRow(
        load_request.token.run_id, name, table.schema, table.name, mode, "dry_run", load_request.now, "dry_run"
    )


def format_error(error: BaseException) -> str:
    """Return what went wrong, with the hint and without secrets."""
    if not isinstance(error, FlowError):
        return safe_text(error)
    return redact(error.what if not error.hint else f"{error.what}\nHint: {error.hint}")

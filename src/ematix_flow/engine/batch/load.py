"""Loads one target: open the run, inspect, plan, expand, stage, commit, clean up; the only definition of this order."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ematix_flow.commit.cleanup import drop_stages_of
from ematix_flow.commit.conflicts import HINT
from ematix_flow.commit.constraint_violations import naming_violation, searchable, without_violations
from ematix_flow.commit.feature_views import check_online, drop_online, prepare_view
from ematix_flow.commit.ledger import HistoryRow, Ledger, open_run, transaction
from ematix_flow.commit.publish import metrics_of, publish
from ematix_flow.connect.base.cancellation import current, unwatched
from ematix_flow.connect.base.retry import COMMIT, OVERTAKEN, STAGING, attempts
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.engine.batch import step_times
from ematix_flow.engine.batch.commit_request import commit_request_for
from ematix_flow.engine.batch.ddl import expand, warn_of_drift, warn_of_retained
from ematix_flow.engine.batch.events import facts_about
from ematix_flow.engine.batch.inspect import wait_for
from ematix_flow.engine.batch.own_target import over_missing_target
from ematix_flow.engine.batch.planner import load_inspector, plan_load, request_for, token_for
from ematix_flow.engine.batch.progress import reporting
from ematix_flow.engine.batch.result import LoadResult
from ematix_flow.engine.batch.stager import Staging, stage, stage_name
from ematix_flow.engine.batch.step_times import StepTimes
from ematix_flow.engine.batch.target import expect_work, target_for
from ematix_flow.engine.spark.session import session_for
from ematix_flow.errors import (
    CommitError,
    FencedError,
    QualityCheckFailed,
    RefusedError,
    RunCancelledError,
    StagingLostError,
    StalePlanError,
    TransientError,
)
from ematix_flow.events import QualityMeasured, RowsStaged, RunCommitted, RunFailed, RunPlanned, RunStarted
from ematix_flow.failpoints import failpoint
from ematix_flow.plan.metadata_tables import history_name, other_history_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ematix_flow.commit.plan_store import Waiting
    from ematix_flow.commit.request import CommitRequest
    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.stage import StageSpec
    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
    from ematix_flow.engine.batch.inspect import LoadInspection
    from ematix_flow.engine.batch.options import Options
    from ematix_flow.engine.batch.source import OpenSource
    from ematix_flow.engine.batch.staging_ahead import StagingAhead
    from ematix_flow.plan.steps import TargetPlan
    from ematix_flow.records import Audited, Committed, Fence, TaskReport, Token

NOT_PLANNED = "unknown"
"""The path of a run that ended before it had a plan."""


@dataclass(frozen=True, slots=True)
class SourceRows:
    """Rows of a source that a load reads now, for a slot."""

    source: OpenSource
    slot: str
    ahead: StagingAhead | None = None
    """What has staged them while the load before this one committed."""
    following: StagingAhead | None = None
    """What stages the load behind this one while this one commits."""

    def token(self, pipeline: Pipeline, target: TargetDeclaration) -> Token:
        """Return the token of the load in its target."""
        return token_for(pipeline, target, self.slot)


@dataclass(frozen=True, slots=True)
class PlannedRows:
    """Rows that a stored plan has staged for one target; nothing is read or staged again."""

    plan_id: str
    waiting: Waiting

    def token(self, pipeline: Pipeline, target: TargetDeclaration) -> Token:
        """Return the token of the load in its target: the plan has fixed it."""
        del pipeline, target
        return self.waiting.plan.token


LoadRows = SourceRows | PlannedRows


@dataclass(slots=True)
class _Load:
    """One load: everything that stays the same from its token to its end, and its row in the target's history."""

    pipeline: Pipeline
    target: TargetDeclaration
    rows: LoadRows
    database: TargetSystem
    token: Token
    history: HistoryRow
    options: Options

    @property
    def table(self) -> str:
        """Return the name of the target's table."""
        return self.target.table.qualified_name


@dataclass(frozen=True, slots=True)
class _Staged:
    """What tasks have staged and reported; without a location where the target reads its source itself."""

    spec: StageSpec | None = None
    reports: tuple[TaskReport, ...] = ()


def load_target(
    pipeline: Pipeline, target: TargetDeclaration, rows: LoadRows, options: Options, times: StepTimes | None = None
) -> LoadResult:
    """Load one target, or find that an earlier attempt already did; `times` notes how long each step takes."""
    times = times or StepTimes()
    times.begin(step_times.OPEN)
    load = _prepared(pipeline, target, rows, options)
    fence, earlier = _open_run(load)
    if earlier is not None:
        return _recovered(load, earlier)
    with _noting_failure(load):
        times.begin(step_times.PLAN)
        plan, load_inspection = _inspect_and_plan(load)
        load.history = replace(
            load.history, path=plan.path.value, engine=plan.stage.engine, engine_reason=plan.stage.by.reason
        )
        _emit_plan(load, plan)
        times.begin(step_times.EXPAND)
        _expand_view(load, plan)
        current().check_known()
        for attempt in attempts(STAGING):
            with attempt:
                times.begin(step_times.STAGE)
                staged = _stage(load, plan, load_inspection, times)
                _stage_following(load, plan)
                times.begin(step_times.COMMIT)
                committed = _commit(load, plan, fence, staged)
        times.begin(step_times.CLEAN_UP)
        _clean_up(load, staged)
        _emit_commit(load, committed)
        warn_of_retained(plan, committed.counts)
    return LoadResult(plan, committed, plan.path.value)


def _prepared(pipeline: Pipeline, target: TargetDeclaration, rows: LoadRows, options: Options) -> _Load:
    database = target_for(target.connection, target.table, session_for(options))
    expect_work(database, target)
    check_online(database, target.table)
    token = rows.token(pipeline, target)
    ahead = rows.ahead if isinstance(rows, SourceRows) else None
    history = HistoryRow(
        run_id=token.run_id,
        pipeline=history_name(pipeline, target.table),
        schema=target.table.schema,
        table=target.table.name,
        mode=target.write.spelled,
        path=NOT_PLANNED,
        started_at=(ahead and ahead.now) or options.clock.now(),
        status="running",
    )
    return _Load(pipeline, target, rows, database, token, history, options)


def _open_run(load: _Load) -> tuple[Fence, Committed | None]:
    """Open the run in the target; return the fence, and the commit of an earlier attempt."""
    database, history = load.database, load.history
    try:
        for attempt in attempts(OVERTAKEN):
            with attempt:
                name, other = history.pipeline, other_history_name(load.pipeline, load.target.table)
                fence, committed, _ = open_run(database, load.token, name, history, name, other)
    except database.errors as error:
        if not database.is_duplicate_key(error) and not database.is_transient(error):
            raise
        message = f"the run could not be opened in the target now: {safe_text(error)}"
        hint = "the target is away, or an earlier run of this pipeline is still at work there; run again."
        raise TransientError(message, hint=hint) from None
    return fence, committed


def _recovered(load: _Load, committed: Committed) -> LoadResult:
    """Return the load that an earlier attempt committed; it may have died before it could clean up."""
    drop_stages_of(load.database, load.token)
    load.options.bus.emit(
        RunCommitted(load.pipeline.name, load.table, load.token.run_id, committed.counts, replayed=True)
    )
    return LoadResult(None, committed, "recovered")


@contextmanager
def _noting_failure(load: _Load) -> Iterator[None]:
    """Record an error of this block in the target's history."""
    try:
        yield
    except BaseException as error:
        reason = current().blamed(error)
        with unwatched():
            _note_failure(load, reason)
        raise


def _inspect_and_plan(load: _Load) -> tuple[TargetPlan, LoadInspection | None]:
    """Return the plan, and the inspection of the source for it; a stored plan is not inspected again."""
    if isinstance(load.rows, PlannedRows):
        return load.rows.waiting.plan, None
    load_request = request_for(
        load.pipeline,
        load.target,
        load.rows.source,
        load.database,
        load.token,
        load.options,
        now=load.history.started_at,
    )
    inspect_load = load_inspector(session_for(load.options))
    stand_in = over_missing_target(load_request, wait_for)
    if stand_in is not None:
        # Planned as if it were there and empty, which it is from now on.
        _expand(load.database, plan_load(stand_in, inspect_load)[0])
    plan, load_inspection = plan_load(load_request, inspect_load)
    warn_of_drift(plan)
    failpoint("plan.after_bounds")
    current().check_known()
    return plan, load_inspection


def _emit_plan(load: _Load, plan: TargetPlan) -> None:
    """Emit the plan and the start; its columns are computed when a subscriber reads them."""
    bus, name, run_id = load.options.bus, load.pipeline.name, load.token.run_id
    source = load.rows.source if isinstance(load.rows, SourceRows) else None
    facts = partial(facts_about, plan, load.database, source)
    bus.emit(RunPlanned(name, load.table, run_id, plan.history_name, facts))
    bus.emit(RunStarted(name, load.table, run_id, plan.path.value, plan.stage.by.value, plan.stage.by.reason))


def _expand(database: TargetSystem, plan: TargetPlan) -> None:
    failpoint("ddl.before_expand")
    session = database.session()
    try:
        expand(database, session, plan)
    finally:
        session.close()
    failpoint("ddl.after_expand")


def _expand_view(load: _Load, plan: TargetPlan) -> None:
    """Bring the target up to its plan, and for a feature view its registry and online store."""
    database, table = load.database, load.target.table
    if table.features is None:
        _expand(database, plan)
        return
    session = database.session()
    try:
        if table.features.online and plan.ensure.exists and plan.ensure.statements:
            # What a view of the database reads cannot change its type.
            drop_online(database, session, table)
        _expand(database, plan)
        prepare_view(database, session, table, load.options.clock.now())
    except database.errors as error:
        kind = TransientError if database.is_transient(error) else CommitError
        message = f"what feature view {table.features.name} needs could not be prepared: {safe_text(error)}"
        raise kind(message, hint="nothing was loaded.") from None
    finally:
        session.close()


def _stage(load: _Load, plan: TargetPlan, load_inspection: LoadInspection | None, times: StepTimes) -> _Staged:
    """Return the staged rows; tasks write and report them, unless they are staged already or the target reads them itself."""
    if plan.path.value == "same_db":
        return _Staged()
    if isinstance(load.rows, PlannedRows):
        return _Staged(load.rows.waiting.stage, load.rows.waiting.parts)
    assert load_inspection is not None  # noqa: S101 - planned from a source that was looked at
    ready = load.rows.ahead.take(plan) if load.rows.ahead is not None else None
    if ready is None:
        staging = Staging(stage_name(load.token), plan, load.rows.source, load_inspection, load.database)
        ready = stage(staging, session_for(load.options), reporting(plan, load.options, times))
    spec, reports = ready
    rows, rejected = sum(report.rows for report in reports), sum(report.rejected for report in reports)
    load.options.bus.emit(RowsStaged(load.pipeline.name, plan.table_name, rows, rejected))
    current().check_known()
    return _Staged(spec, reports)


def _stage_following(load: _Load, plan: TargetPlan) -> None:
    """Begin to stage the load behind this one: its tasks work while the target does."""
    if isinstance(load.rows, SourceRows) and load.rows.following is not None:
        load.rows.following.begin(plan)


def _commit(load: _Load, plan: TargetPlan, fence: Fence, staged: _Staged) -> Committed:
    """Commit the rows; where rows may be rejected, those that the target itself refuses are left out."""
    request = commit_request_for(plan, fence, load.history, staged.spec, staged.reports)
    if load.target.table.features is not None:
        request = replace(request, view=load.target.table)
    if isinstance(load.rows, PlannedRows):
        return _commit_planned(load, request, load.rows)
    options = load.options
    request = replace(
        request,
        replays=options.replays,
        attempt=options.attempt,
        last_attempt=options.last_attempt,
        permit=current().check,
    )
    for attempt in attempts(COMMIT, clock=options.clock):
        with attempt:
            try:
                committed = publish(request, load.database, options.clock)
            except RefusedError as error:
                request = _without_refused(load, request, error)
                committed = publish(request, load.database, options.clock)
    return committed


def _without_refused(load: _Load, request: CommitRequest, error: RefusedError) -> CommitRequest:
    """Return the request without the rows that the target refuses; raise with their values otherwise."""
    if not searchable(request, load.database):
        raise naming_violation(request, load.database, error) from None
    return without_violations(request, load.database)


def _commit_planned(load: _Load, request: CommitRequest, rows: PlannedRows) -> Committed:
    """Commit what a plan has staged, if its target is as the plan has inspected it."""
    waiting = rows.waiting
    request = replace(request, expected=waiting.expected, excluded=waiting.excluded)
    try:
        for attempt in attempts(COMMIT, clock=load.options.clock):
            with attempt:
                committed = publish(request, load.database, load.options.clock)
    except StagingLostError as error:
        message = f"the staged rows of plan {rows.plan_id} are not there any more: {error.what}"
        raise StalePlanError(message, hint=HINT) from None
    return committed


def _clean_up(load: _Load, staged: _Staged) -> None:
    if staged.spec is not None:
        drop_stages_of(load.database, load.token)


def _emit_commit(load: _Load, committed: Committed) -> None:
    if committed.audited is not None:
        _emit_measured(load, committed.audited)
    load.options.bus.emit(
        RunCommitted(load.pipeline.name, load.table, load.token.run_id, committed.counts, committed.replayed)
    )


def _emit_measured(load: _Load, audited: Audited) -> None:
    alert = load.target.quality.alert_on_warn
    load.options.bus.emit(QualityMeasured(load.pipeline.name, load.table, load.token.run_id, audited, alert))


def _note_failure(load: _Load, error: BaseException) -> None:
    """Write the failure into the target's history, unless a newer run owns it or the target cannot be reached."""
    text = safe_text(error)
    audited = error.audited if isinstance(error, QualityCheckFailed) else None
    if audited is not None:
        _emit_measured(load, audited)
    load.options.bus.emit(RunFailed(load.pipeline.name, load.table, load.token.run_id, text))
    if isinstance(error, FencedError | KeyboardInterrupt | SystemExit):
        return
    database = load.database
    status = "cancelled" if isinstance(error, RunCancelledError) else "failed"
    row = replace(load.history, status=status, finished_at=load.options.clock.now(), error=text[:4000])
    row = replace(row, metrics=metrics_of(row, audited))
    try:
        session = database.session()
    except database.failures:
        return
    try:
        for attempt in attempts(OVERTAKEN):
            with attempt:
                _record_unless_committed(database, session, load.token, row)
    except database.failures:
        return
    finally:
        session.close()


def _record_unless_committed(database: TargetSystem, session: Session, token: Token, row: HistoryRow) -> None:
    ledger = Ledger(database)
    with transaction(session):
        if ledger.find(session, token) is None:
            ledger.record(session, row)

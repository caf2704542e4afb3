"""Loads one target: token, plan, expand, stage, commit, clean up; the order of a load is spelled here only."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ematix_flow.commit.cleanup import drop_stages_of
from ematix_flow.commit.constraint_violations import naming_offender, searchable, without_offenders
from ematix_flow.commit.ledger import HistoryRow, Ledger, open_run, transaction
from ematix_flow.commit.publish import metrics_of, publish
from ematix_flow.connect.halting import current, unwatched
from ematix_flow.connect.redact import safe_text
from ematix_flow.connect.retry import COMMIT, OVERTAKEN, STAGING, attempts
from ematix_flow.engine.batch.commit_request import order_for
from ematix_flow.engine.batch.ddl import expand
from ematix_flow.engine.batch.events import facts_about
from ematix_flow.engine.batch.inspect import wait_for
from ematix_flow.engine.batch.own_target import over_missing_target
from ematix_flow.engine.batch.planner import Asked, observing, plan_load, token_for
from ematix_flow.engine.batch.progress import reporting
from ematix_flow.engine.batch.stager import Staging, stage, stage_name
from ematix_flow.engine.batch.target import expect_work, target_for
from ematix_flow.engine.spark.session import local_reason, session_for, tasks_away
from ematix_flow.errors import (
    FencedError,
    QualityCheckFailed,
    RefusedError,
    RunCancelledError,
    TransientError,
)
from ematix_flow.events import QualityMeasured, RowsStaged, RunCommitted, RunFailed, RunPlanned, RunStarted
from ematix_flow.failpoints import failpoint
from ematix_flow.plan.batch import history_name
from ematix_flow.plan.steps import HERE, SPARK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ematix_flow.commit.plan_store import Waiting
    from ematix_flow.commit.request import Order
    from ematix_flow.connect.base import Database, Session, StageSpec
    from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
    from ematix_flow.engine.batch.inspect import Look
    from ematix_flow.engine.batch.options import Options
    from ematix_flow.engine.batch.source import OpenSource
    from ematix_flow.plan.steps import TargetPlan
    from ematix_flow.records import Audited, Committed, Fence, Part, Token

MOVERS = {SPARK: "spark", HERE: "local"}
NOT_PLANNED = "unknown"
"""The path of a run that ended before it had a plan."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """One target after its load."""

    plan: TargetPlan | None
    committed: Committed
    path: str

    @property
    def engine(self) -> str:
        """Return who moved the rows: spark, local, database where the target read its source itself, or none."""
        if self.path == "same_db":
            return "database"
        return "none" if self.plan is None else MOVERS.get(self.plan.stage.by.value, "none")


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One attempt at a load: everything that stays the same from its token to its end."""

    pipeline: Pipeline
    target: TargetDeclaration
    database: Database
    token: Token
    history: HistoryRow
    options: Options

    @property
    def table(self) -> str:
        """Give the name of the target's table."""
        return self.target.table.qualified_name


def load_target(
    pipeline: Pipeline, target: TargetDeclaration, source: OpenSource, slot: str, options: Options
) -> Loaded:
    """Load one target, or find that an earlier attempt already did."""
    attempt = _attempt(pipeline, target, token_for(pipeline, target, slot), options)

    def fresh(fence: Fence) -> Loaded:
        with _noted(attempt):
            plan, look = _planned(attempt, source)
        known = replace(attempt, history=replace(attempt.history, path=plan.path.value))
        with _noted(known):
            _tell_plan(known, plan, source)
            return _load(known, plan, fence, lambda: _stage_and_publish(known, plan, fence, source, look))

    return _once(attempt, fresh)


def apply_target(pipeline: Pipeline, target: TargetDeclaration, waiting: Waiting, options: Options) -> Loaded:
    """Commit what was staged for a plan, or find that an earlier attempt already did; nothing is read or staged again."""
    plan = waiting.plan
    attempt = _attempt(pipeline, target, plan.token, options)
    attempt = replace(attempt, history=replace(attempt.history, path=plan.path.value))

    def staged(fence: Fence) -> Committed:
        order = order_for(plan, fence, attempt.history, waiting.stage, waiting.parts)
        committed = _publish_with_retries(replace(order, expected=waiting.expected, excluded=waiting.excluded), attempt)
        drop_stages_of(attempt.database, attempt.token)
        return committed

    def apply(fence: Fence) -> Loaded:
        with _noted(attempt):
            _tell_plan(attempt, plan, None)
            return _load(attempt, plan, fence, lambda: staged(fence))

    return _once(attempt, apply)


def _attempt(pipeline: Pipeline, target: TargetDeclaration, token: Token, options: Options) -> _Attempt:
    database = target_for(target.connection, target.table, session_for(options))
    expect_work(database, target)
    history = HistoryRow(
        run_id=token.run_id,
        pipeline=history_name(pipeline, target.table),
        schema=target.table.schema,
        table=target.table.name,
        mode=target.write.spelled,
        path=NOT_PLANNED,
        started_at=options.clock.now(),
        status="running",
    )
    return _Attempt(pipeline, target, database, token, history, options)


def _once(attempt: _Attempt, work: Callable[[Fence], Loaded]) -> Loaded:
    """Do the work of a load under its fence, unless the ledger says that it is done."""
    fence, committed = _opened(attempt)
    if committed is None:
        return work(fence)
    # The attempt that committed it may have died before it could tidy up.
    drop_stages_of(attempt.database, attempt.token)
    attempt.options.bus.emit(
        RunCommitted(attempt.pipeline.name, attempt.table, attempt.token.run_id, committed.counts, replayed=True)
    )
    return Loaded(None, committed, "recovered")


@contextmanager
def _noted(attempt: _Attempt) -> Iterator[None]:
    """Note whatever goes wrong in the target's history."""
    try:
        yield
    except BaseException as error:
        reason = current().blamed(error)
        with unwatched():
            _note_failure(attempt, reason)
        raise


def _opened(attempt: _Attempt) -> tuple[Fence, Committed | None]:
    """Open the run in the target; gives the fence, and the commit of an earlier attempt."""
    database, history = attempt.database, attempt.history
    try:
        for turn in attempts(OVERTAKEN):
            with turn:
                fence, committed, _ = open_run(database, attempt.token, history.pipeline, history, history.pipeline)
    except database.errors as error:
        if not database.is_duplicate_key(error) and not database.is_transient(error):
            raise
        message = f"the run could not be opened in the target now: {safe_text(error)}"
        hint = "the target is away, or an earlier run of this pipeline is still at work there; run again."
        raise TransientError(message, hint=hint) from None
    return fence, committed


def _planned(attempt: _Attempt, source: OpenSource) -> tuple[TargetPlan, Look]:
    asked = Asked(
        attempt.pipeline,
        attempt.target,
        source,
        attempt.database,
        attempt.token,
        attempt.history.started_at,
        local_reason(attempt.options),
        tasks_away(attempt.options),
    )
    observe = observing(session_for(attempt.options))
    stand_in = over_missing_target(asked, wait_for)
    if stand_in is not None:
        # Planned as if it were there and empty, which it is from now on.
        _expand(attempt.database, plan_load(stand_in, observe)[0])
    plan, look = plan_load(asked, observe)
    failpoint("plan.after_bounds")
    current().check_known()
    return plan, look


def _tell_plan(attempt: _Attempt, plan: TargetPlan, source: OpenSource | None) -> None:
    """Tell of the plan; what it says about columns is worked out when somebody wants to know."""
    run_id, name = attempt.token.run_id, attempt.pipeline.name
    facts = partial(facts_about, plan, attempt.database, source)
    attempt.options.bus.emit(RunPlanned(name, attempt.table, run_id, plan.history_name, facts))


def _load(attempt: _Attempt, plan: TargetPlan, fence: Fence, staged: Callable[[], Committed]) -> Loaded:
    """Prepare the table and commit; `staged` does so with rows that are staged."""
    options, name = attempt.options, attempt.table
    options.bus.emit(
        RunStarted(attempt.pipeline.name, name, attempt.token.run_id, plan.path.value, plan.stage.by.value)
    )
    _expand(attempt.database, plan)
    current().check_known()
    committed = _publish(attempt, plan, fence, None, ()) if plan.path.value == "same_db" else staged()
    if committed.audited is not None:
        _tell_measured(attempt, committed.audited)
    options.bus.emit(
        RunCommitted(attempt.pipeline.name, name, attempt.token.run_id, committed.counts, committed.replayed)
    )
    return Loaded(plan, committed, plan.path.value)


def _tell_measured(attempt: _Attempt, audited: Audited) -> None:
    alert = attempt.target.quality.alert_on_warn
    attempt.options.bus.emit(
        QualityMeasured(attempt.pipeline.name, attempt.table, attempt.token.run_id, audited, alert)
    )


def _expand(database: Database, plan: TargetPlan) -> None:
    failpoint("ddl.before_expand")
    session = database.session()
    try:
        expand(database, session, plan)
    finally:
        session.close()
    failpoint("ddl.after_expand")


def _stage_and_publish(attempt: _Attempt, plan: TargetPlan, fence: Fence, source: OpenSource, look: Look) -> Committed:
    """Stage and commit; when staging or its Spark did not survive nothing was changed, and it is done again."""
    for staging in attempts(STAGING):
        with staging:
            committed = _stage_once(attempt, plan, fence, source, look)
    return committed


def _stage_once(attempt: _Attempt, plan: TargetPlan, fence: Fence, source: OpenSource, look: Look) -> Committed:
    database = attempt.database

    staging = Staging(stage_name(attempt.token), plan, source, look, database)
    spec, parts = stage(staging, session_for(attempt.options), reporting(plan, attempt.options))
    rejected = sum(part.rejected for part in parts)
    attempt.options.bus.emit(
        RowsStaged(attempt.pipeline.name, plan.table_name, sum(part.rows for part in parts), rejected)
    )
    current().check_known()
    committed = _publish(attempt, plan, fence, spec, parts)
    drop_stages_of(database, attempt.token)
    return committed


def _publish(
    attempt: _Attempt,
    plan: TargetPlan,
    fence: Fence,
    spec: StageSpec | None,
    parts: tuple[Part, ...],
) -> Committed:
    options = attempt.options
    order = order_for(plan, fence, attempt.history, spec, parts)
    order = replace(
        order,
        replays=options.replays,
        attempt=options.attempt,
        last_attempt=options.last_attempt,
        permit=current().check,
    )
    try:
        return _publish_with_retries(order, attempt)
    except RefusedError as error:
        if not searchable(order, attempt.database):
            raise naming_offender(order, attempt.database, error) from None
        return _publish_with_retries(without_offenders(order, attempt.database), attempt)


def _publish_with_retries(order: Order, attempt: _Attempt) -> Committed:
    clock = attempt.options.clock
    for commit in attempts(COMMIT, clock=clock):
        with commit:
            for turn in attempts(OVERTAKEN):
                with turn:
                    committed = publish(order, attempt.database, clock)
    return committed


def _note_failure(attempt: _Attempt, error: BaseException) -> None:
    """Write the failure into the target's history, unless a newer run owns it or the target cannot be reached."""
    text = safe_text(error)
    audited = error.audited if isinstance(error, QualityCheckFailed) else None
    if audited is not None:
        _tell_measured(attempt, audited)
    attempt.options.bus.emit(RunFailed(attempt.pipeline.name, attempt.table, attempt.token.run_id, text))
    if isinstance(error, FencedError | KeyboardInterrupt | SystemExit):
        return
    database = attempt.database
    status = "cancelled" if isinstance(error, RunCancelledError) else "failed"
    row = replace(attempt.history, status=status, finished_at=attempt.options.clock.now(), error=text[:4000])
    row = replace(row, metrics=metrics_of(audited))
    try:
        session = database.session()
    except database.failures:
        return
    try:
        for turn in attempts(OVERTAKEN):
            with turn:
                _record_unless_committed(database, session, attempt.token, row)
    except database.failures:
        return
    finally:
        session.close()


def _record_unless_committed(database: Database, session: Session, token: Token, row: HistoryRow) -> None:
    ledger = Ledger(database)
    with transaction(session):
        if ledger.find(session, token) is None:
            ledger.record(session, row)

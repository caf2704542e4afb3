"""Applies a stored plan: exactly the staged load that was shown, or nothing; it plans, reads and stages nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ematix_flow.commit.cleanup import drop_stages_of
from ematix_flow.commit.conflicts import HINT, refuse_changed
from ematix_flow.commit.ledger import HistoryRow, Ledger, transaction
from ematix_flow.commit.runlog.open import open_run_log
from ematix_flow.connect.config.lookup import resolve_connection
from ematix_flow.connect.config.serialize import digest_of
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.engine.batch.load import PlannedRows
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.batch.run import load_targets, run_posts
from ematix_flow.engine.batch.run_records import Recorder
from ematix_flow.engine.batch.run_request import Progress
from ematix_flow.engine.batch.target import target_for
from ematix_flow.engine.errors import translating_errors
from ematix_flow.engine.review.diff import plan_store
from ematix_flow.engine.spark.session import session_for
from ematix_flow.errors import DeclareError, StalePlanError
from ematix_flow.plan.quality import with_functions
from ematix_flow.records import Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.commit.plan_store import StoredPlan, Waiting
    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.declare.connection.registry import Connection
from ematix_flow.engine.batch.events import emitting_attempt

EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class _Step:
    """One target of a plan that is applied."""

    waiting: Waiting
    target: TargetDeclaration
    database: TargetSystem


@dataclass(frozen=True, slots=True)
class OpenPlan:
    """A stored plan with its targets found again."""

    stored: StoredPlan
    pipeline: Pipeline
    """Stands for the pipeline: its name, its targets and its post steps."""
    steps: tuple[_Step, ...]


def apply_plan(plan_id: str, options: Options | None = None) -> Any:
    """Commit what a plan staged and return the result as a run does; that of an applied plan is returned again."""
    options = options or Options()
    options = replace(options, run_log=options.run_log or open_run_log())
    return apply_open(open_plan(plan_id, options), options)


def open_plan(plan_id: str, options: Options) -> OpenPlan:
    """Find a plan and its targets; nothing is changed."""
    stored = plan_store(options.run_log or open_run_log()).read(plan_id)
    steps = tuple(_step(stored, one, options) for one in stored.targets)
    return OpenPlan(stored, _pipeline(stored, steps), steps)


def apply_open(plan: OpenPlan, options: Options) -> Any:
    """Commit what a plan staged, unless it is too old or its targets changed."""
    stored, pipeline = plan.stored, plan.pipeline
    log = options.run_log or open_run_log()
    with translating_errors(pipeline.origin):
        _check(stored, plan.steps, options)
    targets = [(step.target, PlannedRows(stored.id, step.waiting)) for step in plan.steps]
    try:
        with emitting_attempt(pipeline.name, stored.id, 1, options.bus) as outcome:
            recorder = Recorder.of(log, Request(stored.id, stored.pipeline), options)
            progress = Progress()
            load_targets(pipeline, recorder, targets, progress)
            run_posts(pipeline, recorder, progress)
            outcome.result = progress.result
    finally:
        log.reconcile()
    return outcome.result


def _step(stored: StoredPlan, waiting: Waiting, options: Options) -> _Step:
    """Open the target of a plan; a name that means another system by now is refused."""
    declared = _declared(stored, waiting)
    expectations = () if declared is None else declared.quality.expectations
    plan = replace(waiting.plan, audit=with_functions(waiting.plan.audit, expectations))
    waiting = replace(waiting, plan=plan)
    keys = plan.ensure.wanted.primary_key if plan.features is not None else ()
    columns = tuple(Column(one.type, name=one.name, primary_key=one.name in keys) for one in plan.commit.load.columns)
    table = Table(waiting.schema, waiting.table, columns, features=plan.features)
    target = TargetDeclaration(table, plan.commit.write, _connection(waiting, declared))
    database = target_for(target.connection, table, session_for(options))
    if digest_of(database) != waiting.place.identity:
        message = f"connection {waiting.place.name!r} leads to another place than when plan {stored.id} was made"
        raise StalePlanError(message, hint="apply it from where it was made, with the same settings, or plan again.")
    return _Step(waiting, target, database)


def _declared(stored: StoredPlan, waiting: Waiting) -> TargetDeclaration | None:
    """Return the target as its module declares it, where the plan needs the module."""
    declared = PROJECT.pipelines.get(stored.pipeline) if stored.module_needed else None
    if stored.module_needed and declared is None:
        message = f"plan {stored.id} needs the module of pipeline {stored.pipeline!r}: {stored.module_needed}"
        raise DeclareError(message, hint=f"flow apply {stored.id} --module MODULE.")
    for target in () if declared is None else declared.targets:
        if target.table.qualified_name == waiting.plan.table_name and target.connection_name == waiting.place.name:
            return target
    return None


def _connection(waiting: Waiting, declared: TargetDeclaration | None) -> str | Connection | None:
    if waiting.place.settings is not None:
        return connection_from_fields(waiting.place.name, waiting.place.settings)
    return resolve_connection(waiting.place.name) if declared is None else declared.connection


def _pipeline(stored: StoredPlan, steps: Sequence[_Step]) -> Pipeline:
    declared = PROJECT.pipelines[stored.pipeline] if stored.module_needed else None
    return Pipeline(
        name=stored.pipeline,
        function=_nothing,
        targets=tuple(step.target for step in steps),
        fan_out=stored.fan_out,
        continue_on_failure=stored.continue_on_failure,
        transforms_post=stored.posts if declared is None else declared.transforms_post,
        continue_on_failure_post=stored.continue_on_failure_post,
        origin=None if declared is None else declared.origin,
    )


def _nothing() -> None:
    """Stand for the function of a pipeline, whose rows are staged already."""


def _check(stored: StoredPlan, steps: Sequence[_Step], options: Options) -> None:
    """Refuse before any target is touched: a plan that is too old, or whose targets changed."""
    expired = options.clock.now() >= stored.expires_at
    late = [step for step in steps if _is_open(step, compare=not expired) and expired]
    for step in late:
        _expire(step, options)
    if late:
        message = f"plan {stored.id} expired at {stored.expires_at:%Y-%m-%d %H:%M} UTC"
        raise StalePlanError(message, hint=HINT)


def _is_open(step: _Step, *, compare: bool) -> bool:
    """Return whether a target has yet to be loaded; one that is compared must be as it was."""
    database, ledger = step.database, Ledger(step.database)
    session = database.session()
    try:
        # A transaction, because it first resolves what a dead owner of a lake's lock has left.
        session.begin()
        if ledger.exists(session) and ledger.find(session, step.waiting.plan.token) is not None:
            return False
        if compare:
            refuse_changed(step.waiting.expected, database, session)
        return True
    finally:
        session.rollback()
        session.close()


def _expire(step: _Step, options: Options) -> None:
    """Remove what waits for a plan that may not be applied any more."""
    plan, ledger = step.waiting.plan, Ledger(step.database)
    drop_stages_of(step.database, plan.token)
    table, mode = step.target.table, plan.commit.write.spelled
    known = (plan.token.run_id, plan.history_name, table.schema, table.name, mode, plan.path.value, plan.now)
    session = step.database.session()
    try:
        with transaction(session):
            ledger.record(session, HistoryRow(*known, status=EXPIRED, finished_at=options.clock.now()))
    finally:
        session.close()

"""Plans a pipeline whose rows wait: stages every target, compares it and stores the plan; no table is changed."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ematix_flow.commit.cleanup import drop_stages_of
from ematix_flow.commit.ledger import PLANNED, HistoryRow, Ledger, transaction
from ematix_flow.commit.plan_store import PlanStore, StoredConnection, StoredPlan, Waiting, new_id
from ematix_flow.commit.runlog.open import open_run_log
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.connect.config.serialize import digest_of, written_down
from ematix_flow.engine.batch.commit_request import commit_request_for
from ematix_flow.engine.batch.inspect import wait_for
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.batch.own_target import over_missing_target
from ematix_flow.engine.batch.planner import load_inspector, plan_load, request_for, token_for
from ematix_flow.engine.batch.progress import reporting
from ematix_flow.engine.batch.source import source_for
from ematix_flow.engine.batch.stager import Staging, stage, stage_name
from ematix_flow.engine.batch.target import refuse_duplicate_targets, target_for
from ematix_flow.engine.errors import naming_target, translate_error
from ematix_flow.engine.review.compare import compare
from ematix_flow.engine.review.preview import refuse_plain
from ematix_flow.engine.spark.session import session_for
from ematix_flow.errors import PlanError
from ematix_flow.plan.explain.diff import diff_lines
from ematix_flow.plan.metadata_tables import history_name
from ematix_flow.plan.quality import without_functions
from ematix_flow.records import Fence

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.connect.config.serialize import Written
    from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
    from ematix_flow.engine.batch.planner import LoadRequest
    from ematix_flow.engine.batch.source import OpenSource
    from ematix_flow.plan.explain.diff import Diff

SAMPLE = 5
"""How many keys of each kind are shown, unless more are requested."""


@dataclass(frozen=True, slots=True)
class DiffResult:
    """What a pipeline would change, and the plan that does exactly that when it is applied."""

    plan_id: str
    pipeline_name: str
    made_at: str
    expires_at: str
    targets: tuple[Diff, ...]

    @property
    def command(self) -> str:
        """Return the command that applies the plan."""
        return f"flow apply {self.plan_id}"

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data."""
        known = {"plan_id": self.plan_id, "pipeline": self.pipeline_name, "made_at": self.made_at}
        targets = {target.table: target.to_dict() for target in self.targets}
        return known | {"expires_at": self.expires_at, "apply": self.command, "targets": targets}

    def to_json(self, indent: int | None = 2) -> str:
        """Return the result as JSON."""
        return json.dumps(self.to_dict(), indent=indent, default=str, ensure_ascii=False)

    def text(self) -> str:
        """Return the result for people."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"pipeline {self.pipeline_name}, plan {self.plan_id}"
        for target in self.targets:
            yield ""
            yield from diff_lines(target)
        yield ""
        yield f"no table was changed; until {self.expires_at[:16].replace('T', ' ')} UTC this load can be made with"
        yield f"  {self.command}"


def diff_pipeline(pipeline: Pipeline, options: Options | None = None, sample: int = SAMPLE) -> DiffResult:
    """Stage every target, compare it with what is there and store the plan for `apply_plan`."""
    refuse_plain(pipeline)
    refuse_duplicate_targets(pipeline)
    options = options or Options()
    store = plan_store(options.run_log or open_run_log())
    plan_id, created_at = new_id(), options.clock.now()
    written = [written_down(target.connection) for target in pipeline.targets]
    source = source_for(pipeline, options, session_for(options))
    if source.value.result is not None:
        message = f"pipeline {pipeline.name!r} returns a result instead of a source: there is nothing to compare"
        raise PlanError(message, origin=pipeline.origin)
    begun: list[LoadRequest] = []
    waiting: list[Waiting] = []
    try:
        for target, saved_connection in zip(pipeline.targets, written, strict=True):
            with naming_target(pipeline, target):
                begun.append(_request(pipeline, target, source, plan_id, options))
                waiting.append(_wait(begun[-1], saved_connection, options, sample))
        stored = _stored(pipeline, plan_id, created_at, written, tuple(waiting))
        store.write(stored)
    except BaseException as error:
        for load_request in begun:
            _give_up(load_request, error, options)
        raise translate_error(error, pipeline.origin) from error
    store.forget_old(created_at)
    return stored_diff(stored)


def stored_diff(stored: StoredPlan) -> DiffResult:
    """Return what a stored plan has shown."""
    diffs = tuple(one.diff for one in stored.targets)
    return DiffResult(stored.id, stored.pipeline, stored.made_at.isoformat(), stored.expires_at.isoformat(), diffs)


def plan_store(log: RunLog) -> PlanStore:
    """Return the plans that are stored next to a run log."""
    return PlanStore(log.folder / "plans")


def _request(
    pipeline: Pipeline, target: TargetDeclaration, source: OpenSource, slot: str, options: Options
) -> LoadRequest:
    database = target_for(target.connection, target.table, session_for(options))
    return request_for(pipeline, target, source, database, token_for(pipeline, target, slot), options, waits=True)


def _wait(load_request: LoadRequest, written: Written, options: Options, sample: int) -> Waiting:
    """Stage one target and compare it."""
    history = _history(load_request)
    _record(load_request.database, history)
    load_request = over_missing_target(load_request, wait_for) or load_request
    plan, load_inspection = plan_load(load_request, load_inspector(session_for(options)))
    staging = Staging(stage_name(load_request.token), plan, load_request.source, load_inspection, load_request.database)
    spec, reports = stage(staging, session_for(options), reporting(plan, options))
    request = commit_request_for(plan, Fence(plan.history_name, 0), history, spec, reports)
    compared = compare(request, load_request.database, plan, sample)
    table, plan_location = (
        load_request.target.table,
        StoredConnection(written.name, written.settings, digest_of(load_request.database)),
    )
    diff = replace(compared.diff, table=load_request.pipeline.key_of(load_request.target))
    plan = replace(plan, audit=without_functions(plan.audit))
    return Waiting(
        plan_location, table.schema, table.name, plan, spec, reports, compared.expected, diff, compared.request.excluded
    )


def _give_up(load_request: LoadRequest, error: BaseException, options: Options) -> None:
    """Remove what waits for a plan that failed, as far as its target can be reached."""
    drop_stages_of(load_request.database, load_request.token)
    text = safe_text(error)[:4000]
    with suppress(*load_request.database.failures):
        _record(
            load_request.database,
            replace(_history(load_request), status="failed", finished_at=options.clock.now(), error=text),
        )


def _history(load_request: LoadRequest) -> HistoryRow:
    """Return the row that keeps the staging of a plan from being cleaned up."""
    table, name = load_request.target.table, history_name(load_request.pipeline, load_request.target.table)
    mode = load_request.target.write.spelled
    return HistoryRow(
        load_request.token.run_id, name, table.schema, table.name, mode, "cross_db", load_request.now, PLANNED
    )


def _record(database: TargetSystem, row: HistoryRow) -> None:
    ledger, session = Ledger(database), database.session()
    try:
        ledger.ensure(session)
        with transaction(session):
            ledger.record(session, row)
    finally:
        session.close()


def _stored(
    pipeline: Pipeline, plan_id: str, created_at: datetime, written: list[Written], waiting: tuple[Waiting, ...]
) -> StoredPlan:
    posts = () if pipeline.fan_out else pipeline.transforms_post
    reasons = [one.lacking for one in written if one.lacking]
    if not all(isinstance(step, str) for step in posts):
        reasons.append("its post steps are Python")
    if any(one.function for target in pipeline.targets for one in target.quality.expectations):
        reasons.append("its expectations are Python")
    return StoredPlan(
        id=plan_id,
        pipeline=pipeline.name,
        made_at=created_at,
        targets=waiting,
        fan_out=pipeline.fan_out,
        continue_on_failure=pipeline.continue_on_failure,
        continue_on_failure_post=pipeline.continue_on_failure_post,
        posts=tuple(step for step in posts if isinstance(step, str)),
        module_needed="; ".join(reasons),
    )

"""The plan of a pipeline as a report: what a run would do and why, without reading or changing any data."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.config.redact import redact, safe_text
from ematix_flow.declare.pipeline.write import AS_IT_IS
from ematix_flow.engine.batch.events import facts_about
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.batch.planner import plan_load, request_for, token_for
from ematix_flow.engine.batch.stager import raw_frame, translate_spark_error
from ematix_flow.engine.review.inspect_offline import (
    UNINSPECTED,
    UNKNOWN,
    inspect_source_offline,
    inspect_target_offline,
    inspecting_offline,
)
from ematix_flow.engine.spark.session import session_for
from ematix_flow.errors import DeclareTypeError, DriftError, FlowError
from ematix_flow.plan.explain.report import mode_of, notes_of, plan_dict, posts_of, summary_of
from ematix_flow.plan.explain.text import plan_lines
from ematix_flow.plan.post_steps import post_steps
from ematix_flow.plan.steps import SPARK, Choice, Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
    from ematix_flow.engine.batch.inspect import LoadInspection
    from ematix_flow.engine.batch.planner import LoadRequest
    from ematix_flow.engine.batch.source import OpenSource
    from ematix_flow.engine.review.inspect_offline import OfflineSource, PartialInspection
    from ematix_flow.events import LoadFacts
    from ematix_flow.plan.explain.report import TargetSummary
    from ematix_flow.plan.steps import TargetPlan

PREVIEW_SLOT = "preview"
"""Slot of a plan that is not run; it only decides about the `_batch_id` that is shown."""


@dataclass(frozen=True, slots=True)
class PreviewResult:
    """What a run would do, for people, programs and tests."""

    pipeline_name: str
    schedule: str | None
    mode: str | None
    source_connection_name: str
    source_connection_info: Mapping[str, object]
    source_sql: str
    targets: tuple[TargetSummary, ...]
    notes: tuple[str, ...]
    transforms_post: tuple[Mapping[str, str], ...]
    plan: Plan
    is_dry_run: bool = False

    @property
    def ok(self) -> bool:
        """Return whether every target could be loaded, as far as was tried."""
        return all(target.dry_run_error is None for target in self.targets)

    @property
    def errors(self) -> tuple[str, ...]:
        """Return what would go wrong, by target."""
        return tuple(f"{t.schema_qualified_name}: {t.dry_run_error}" for t in self.targets if t.dry_run_error)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return plan_dict(self.plan, self.targets) | {"is_dry_run": self.is_dry_run}

    def to_json(self, indent: int | None = 2) -> str:
        """Return the report as JSON."""
        return json.dumps(self.to_dict(), indent=indent, default=str, ensure_ascii=False)

    def text(self, *, verbose: bool = False) -> str:
        """Return the report for people; `verbose` adds every statement."""
        return "\n".join(plan_lines(self.plan, self.targets, verbose=verbose, dry_run=self.is_dry_run))


def preview_pipeline(pipeline: Pipeline, options: Options | None = None, *, physical: bool = False) -> PreviewResult:
    """Return the plan without touching any data; connections that cannot be resolved or reached become notes.

    With `physical`, Spark explains how it would run what it evaluates; otherwise it is not even loaded.
    """
    refuse_plain(pipeline)
    offline_source = inspect_source_offline(pipeline)
    if offline_source.source.value.result is not None:
        note = "the function returns a result instead of a source: nothing is loaded"
        return report(pipeline, offline_source.source, (), (*offline_source.notes, note))
    targets, notes = [], list(offline_source.notes)
    for target in pipeline.targets:
        load_request, target_inspection = _load_request(pipeline, target, offline_source, options or Options())
        summary = summary_of(_plan(load_request, offline_source, target_inspection))
        if physical:
            summary = _with_physical_plan(
                summary, load_request, offline_source, target_inspection, session_for(options or Options())
            )
        targets.append(summary)
        notes += [note for note in target_inspection.notes if note not in notes]
    result = report(pipeline, offline_source.source, targets, notes)
    return result if offline_source.resolved else _without_source_info(result)


def lineage_of(pipeline: Pipeline, options: Options | None = None) -> list[LoadFacts]:
    """Return where the columns of every target come from, without touching any data; nothing where that is unknown."""
    refuse_plain(pipeline)
    offline_source = inspect_source_offline(pipeline)
    if offline_source.source.value.result is not None or not offline_source.resolved:
        return []
    facts = []
    for target in pipeline.targets:
        load_request, target_inspection = _load_request(pipeline, target, offline_source, options or Options())
        if target_inspection.resolved:
            plan = _plan(load_request, offline_source, target_inspection)
            facts.append(facts_about(plan, load_request.database, load_request.source))
    return facts


def refuse_plain(pipeline: Pipeline) -> None:
    """Refuse a pipeline that is a plain function: it has no plan."""
    if not pipeline.targets:
        message = f"pipeline {pipeline.name!r} is {pipeline.unplanned}, which has no plan"
        raise DeclareTypeError(message, hint="declare it with @ematix.pipeline and a target.", origin=pipeline.origin)


def _load_request(
    pipeline: Pipeline, target: TargetDeclaration, offline_source: OfflineSource, options: Options
) -> tuple[LoadRequest, PartialInspection[TargetSystem]]:
    target_inspection = inspect_target_offline(target)
    token = token_for(pipeline, target, options.slot or PREVIEW_SLOT)
    load_request = request_for(
        offline_source.unforced(pipeline), target, offline_source.source, target_inspection.system, token, options
    )
    return load_request, target_inspection


def _plan(
    load_request: LoadRequest, offline_source: OfflineSource, target_inspection: PartialInspection[TargetSystem]
) -> TargetPlan:
    inspect_load = inspecting_offline(
        source_resolved=offline_source.resolved, target_resolved=target_inspection.resolved
    )
    try:
        plan = plan_despite_drift(load_request, inspect_load)
    except FlowError as error:
        raise error.at(load_request.pipeline.origin) from None
    return _only_known(plan, source=offline_source.known, target_known=target_inspection.resolved)


def _with_physical_plan(
    summary: TargetSummary,
    load_request: LoadRequest,
    offline_source: OfflineSource,
    target_inspection: PartialInspection[TargetSystem],
    spark: Callable[..., Any],
) -> TargetSummary:
    """Return a target with Spark's physical plan, where Spark evaluates something that is known; or with a note."""
    plan = summary.plan
    if (
        plan is None
        or plan.shape.place.value != SPARK
        or not offline_source.resolved
        or load_request.source.value.frame is UNINSPECTED
    ):
        return summary
    inspections: list[LoadInspection] = []

    def inspect_load(load_request: LoadRequest) -> LoadInspection:
        inspections.append(
            inspecting_offline(source_resolved=True, target_resolved=target_inspection.resolved, spark=spark)(
                load_request
            )
        )
        return inspections[-1]

    try:
        known = _only_known(
            plan_despite_drift(load_request, inspect_load),
            source=offline_source.known,
            target_known=target_inspection.resolved,
        )
        return replace(summary_of(known), spark_plan=_physical(load_request, known, inspections[-1], spark))
    except Exception as error:  # noqa: BLE001 - whatever keeps Spark from answering is part of the answer
        note = f"Spark could not explain the query: {safe_text(translate_spark_error(error))}"
        return replace(summary, plan=replace(plan, notes=(*plan.notes, note)))


def _physical(
    load_request: LoadRequest, plan: TargetPlan, load_inspection: LoadInspection, spark: Callable[..., Any]
) -> str:
    from ematix_flow.run.read.frames import physical_plan, shaped_frame

    with ExitStack() as resources:
        raw = raw_frame(spark(), load_request.source, load_inspection, plan.read.sql, resources, reads=False)
        return redact(physical_plan(shaped_frame(spark(), raw, plan.shape.sql)))


def _only_known(plan: TargetPlan, *, source: bool, target_known: bool) -> TargetPlan:
    """Return the plan without what had to be assumed: the engine of an unknown source, an open address."""
    if not target_known:
        plan = replace(plan, connection_info={})
    if source:
        return plan
    unknown = Choice(None, UNKNOWN)
    return replace(plan, path=unknown, shape=replace(plan.shape, place=unknown), stage=replace(plan.stage, by=unknown))


def _without_source_info(result: PreviewResult) -> PreviewResult:
    return replace(result, source_connection_info={}, plan=replace(result.plan, source_info={}))


def plan_despite_drift(load_request: LoadRequest, inspect_load: Callable[[LoadRequest], LoadInspection]) -> TargetPlan:
    """Return the plan; where drift would stop a run, the plan for a table that is accepted as it is, with a note."""
    try:
        return plan_load(load_request, inspect_load)[0]
    except DriftError as error:
        note = f"a run would be refused: {error.what}"
    declared = load_request.target.write
    tolerant = replace(load_request, target=replace(load_request.target, write=replace(declared, on_drift=AS_IT_IS)))
    plan = plan_load(tolerant, inspect_load)[0]
    return replace(plan, commit=replace(plan.commit, write=declared), notes=(*plan.notes, note))


def report(
    pipeline: Pipeline,
    source: OpenSource,
    targets: Sequence[TargetSummary],
    notes: Sequence[str],
    *,
    is_dry_run: bool = False,
) -> PreviewResult:
    """Return the report of planned targets."""
    system = source.database or source.files or source.lake
    planned = tuple(target.plan for target in targets if target.plan is not None)
    plan = Plan(
        pipeline=pipeline.name,
        schedule=pipeline.schedule,
        source_connection=source.name,
        source_info=dict(system.info()) if system is not None else {},
        source_sql=source.value.sql or next((p.read.sql for p in planned if source.value.table), ""),
        targets=planned,
        posts=post_steps(pipeline),
        notes=tuple(notes),
        timeout=None if pipeline.timeout is None else pipeline.timeout.total_seconds(),
    )
    return PreviewResult(
        pipeline_name=pipeline.name,
        schedule=pipeline.schedule,
        mode=mode_of([target.mode for target in targets]),
        source_connection_name=plan.source_connection,
        source_connection_info=plan.source_info,
        source_sql=plan.source_sql,
        targets=tuple(targets),
        notes=notes_of(plan),
        transforms_post=tuple(posts_of(plan.posts)),
        plan=plan,
        is_dry_run=is_dry_run,
    )

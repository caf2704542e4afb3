"""Pipelines by name, and loads without a declaration, under their public names; nothing is defined here."""

from __future__ import annotations

from ematix_flow.declare.pipeline.function_pipeline import register
from ematix_flow.declare.pipeline.pipeline import ParentContext, Retry
from ematix_flow.declare.schedule.slot import Slot, current_slot
from ematix_flow.engine.api.by_name import (
    apply,
    depends_on_of,
    dry_run,
    get_pipeline,
    list_entries,
    list_pipelines,
    list_transforms,
    order_for_run_due,
    plan,
    preview,
    retry_policy_of,
    run_pipeline,
    run_transform,
    upstream_freshness_secs_of,
)
from ematix_flow.engine.api.sync import sync
from ematix_flow.engine.schedule.run_due import (
    FailedEvent,
    FiredEvent,
    RunDueResult,
    SkippedEvent,
    run_due_with_dag,
    run_due_with_dag_detailed,
)
from ematix_flow.plan.schedule.cron import forecast_next_run, is_due, matched_fire_time

__all__ = [
    "FailedEvent",
    "FiredEvent",
    "ParentContext",
    "Retry",
    "RunDueResult",
    "SkippedEvent",
    "Slot",
    "apply",
    "current_slot",
    "depends_on_of",
    "dry_run",
    "forecast_next_run",
    "get_pipeline",
    "is_due",
    "list_entries",
    "list_pipelines",
    "list_transforms",
    "matched_fire_time",
    "order_for_run_due",
    "plan",
    "preview",
    "register",
    "retry_policy_of",
    "run_due_with_dag",
    "run_due_with_dag_detailed",
    "run_pipeline",
    "run_transform",
    "sync",
    "upstream_freshness_secs_of",
]

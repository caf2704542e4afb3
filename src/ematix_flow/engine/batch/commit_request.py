"""Turns a plan into the request of a commit or its simulation; it decides nothing that the plan did not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.commit.request import CommitRequest
from ematix_flow.declare.pipeline.write import DROP
from ematix_flow.plan.batch import schema_hash
from ematix_flow.records import SourceWatermark

if TYPE_CHECKING:
    from ematix_flow.commit.ledger import HistoryRow
    from ematix_flow.connect.base.stage import StageSpec
    from ematix_flow.plan.steps import TargetPlan
    from ematix_flow.records import Fence, TaskReport


def commit_request_for(
    plan: TargetPlan, fence: Fence, history: HistoryRow, spec: StageSpec | None, reports: tuple[TaskReport, ...]
) -> CommitRequest:
    """Return the commit request for a plan; without staging the target reads the source query itself."""
    return CommitRequest(
        token=plan.token,
        fence=fence,
        history=history,
        program=plan.commit.program,
        columns=plan.stage.columns,
        mode=plan.commit.write.mode,
        schema_hash=schema_hash(plan.ensure.wanted),
        stage=spec,
        reports=reports,
        inline=plan.read.sql if spec is None else "",
        watermark_name=plan.history_name,
        watermark_before=plan.watermark,
        watermark_from=plan.watermark_from,
        watermark_after=_watermark_after(plan),
        files=plan.read.files,
        refuse_empty=_refuses_empty(plan),
        rejects_allowed=plan.commit.write.on_bad_row in ("reject", DROP),
        rejects_dropped=plan.commit.write.on_bad_row == DROP,
        known_rejects_retained=plan.commit.write.keeps_known_rejects,
        may_lack=plan.check.may_lack,
        marked=plan.shape.marked and spec is None,
        required=plan.check.required if spec is None else (),
        alters=plan.shape.alters,
        audit=plan.audit,
    )


def _watermark_after(plan: TargetPlan) -> SourceWatermark | None:
    bounds, offset_range = plan.read.bounds, plan.read.span
    if offset_range is not None:
        return SourceWatermark(offset_range.source, offset_range.end)
    if bounds is None or bounds.hi is None:
        return None
    return SourceWatermark(bounds.column, bounds.hi)


def _refuses_empty(plan: TargetPlan) -> bool:
    write = plan.commit.write
    return not write.allow_empty and (write.mode == "truncate" or write.handle_deletes is not None)

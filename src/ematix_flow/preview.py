"""Public names of previews, dry runs and validation; nothing else is defined here."""

from ematix_flow.engine.review.dry_run import dry_run_pipeline
from ematix_flow.engine.review.preview import PreviewResult, preview_pipeline
from ematix_flow.engine.review.validate import ValidateResult, validate_pipeline
from ematix_flow.plan.explain.report import TargetSummary as TargetPlan

__all__ = [
    "PreviewResult",
    "TargetPlan",
    "ValidateResult",
    "dry_run_pipeline",
    "preview_pipeline",
    "validate_pipeline",
]

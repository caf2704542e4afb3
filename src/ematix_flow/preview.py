"""Public names of previews, dry runs and validation; nothing else lives here."""

from ematix_flow.engine.dry_running import dry_run_pipeline
from ematix_flow.engine.previewing import PreviewResult, preview_pipeline
from ematix_flow.engine.validating import ValidateResult, validate_pipeline
from ematix_flow.plan.explain import TargetSummary as TargetPlan

__all__ = [
    "PreviewResult",
    "TargetPlan",
    "ValidateResult",
    "dry_run_pipeline",
    "preview_pipeline",
    "validate_pipeline",
]

"""The conductor: plan, run, commit, observe; every door of the product calls these functions and nothing below them."""

from ematix_flow.engine.conductor import run_pipeline, run_transform
from ematix_flow.engine.dry_running import dry_run_pipeline
from ematix_flow.engine.ensuring import ensure_table
from ematix_flow.engine.options import Options
from ematix_flow.engine.previewing import preview_pipeline
from ematix_flow.engine.validating import validate_pipeline

__all__ = [
    "Options",
    "dry_run_pipeline",
    "ensure_table",
    "preview_pipeline",
    "run_pipeline",
    "run_transform",
    "validate_pipeline",
]

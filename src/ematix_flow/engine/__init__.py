"""Plan, run, commit, observe; every command and API of the product calls these functions and nothing below them.

Each is loaded at its first use, so that Java can start while the planner is still being imported.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ematix_flow.engine.api.ensure_tables import ensure_table
    from ematix_flow.engine.api.sync import sync
    from ematix_flow.engine.batch.options import Options
    from ematix_flow.engine.batch.run import run_pipeline, run_transform, run_unclosed
    from ematix_flow.engine.maintenance import maintain_pipeline
    from ematix_flow.engine.review.apply import apply_plan
    from ematix_flow.engine.review.diff import diff_pipeline
    from ematix_flow.engine.review.dry_run import dry_run_pipeline
    from ematix_flow.engine.review.preview import preview_pipeline
    from ematix_flow.engine.review.validate import validate_pipeline

__all__ = [
    "Options",
    "apply_plan",
    "diff_pipeline",
    "dry_run_pipeline",
    "ensure_table",
    "maintain_pipeline",
    "preview_pipeline",
    "run_pipeline",
    "run_transform",
    "run_unclosed",
    "sync",
    "validate_pipeline",
]

_MODULES = {
    "Options": "batch.options",
    "apply_plan": "review.apply",
    "diff_pipeline": "review.diff",
    "dry_run_pipeline": "review.dry_run",
    "ensure_table": "api.ensure_tables",
    "maintain_pipeline": "maintenance",
    "preview_pipeline": "review.preview",
    "run_pipeline": "batch.run",
    "run_transform": "batch.run",
    "run_unclosed": "batch.run",
    "sync": "api.sync",
    "validate_pipeline": "review.validate",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)

"""The conductor: plan, run, commit, observe; every door of the product calls these functions and nothing below them.

Each is loaded when it is first asked for, so that Java can start while the planner is still being imported.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ematix_flow.engine.applying import apply_plan
    from ematix_flow.engine.conductor import run_pipeline, run_transform, run_unclosed
    from ematix_flow.engine.diffing import diff_pipeline
    from ematix_flow.engine.dry_running import dry_run_pipeline
    from ematix_flow.engine.ensuring import ensure_table
    from ematix_flow.engine.maintaining import maintain_pipeline
    from ematix_flow.engine.options import Options
    from ematix_flow.engine.previewing import preview_pipeline
    from ematix_flow.engine.validating import validate_pipeline

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
    "validate_pipeline",
]

_PLACES = {
    "Options": "options",
    "apply_plan": "applying",
    "diff_pipeline": "diffing",
    "dry_run_pipeline": "dry_running",
    "ensure_table": "ensuring",
    "maintain_pipeline": "maintaining",
    "preview_pipeline": "previewing",
    "run_pipeline": "conductor",
    "run_transform": "conductor",
    "run_unclosed": "conductor",
    "validate_pipeline": "validating",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)

"""Preview, dry run and validate: the same plan as a run, read instead of executed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ematix_flow.declare.pipeline import Pipeline


def preview_pipeline(pipeline: Pipeline) -> Any:
    raise NotImplementedError(pipeline.name)


def dry_run_pipeline(pipeline: Pipeline) -> Any:
    raise NotImplementedError(pipeline.name)


def validate_pipeline(pipeline: Pipeline) -> Any:
    raise NotImplementedError(pipeline.name)

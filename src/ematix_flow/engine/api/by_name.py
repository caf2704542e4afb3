"""The declared pipelines and transforms by name, for callers that hold no handle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ematix_flow.declare.pipeline.handle import PipelineHandle
from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.stream.handle import StreamHandle
from ematix_flow.engine.batch import run as conductor
from ematix_flow.errors import DeclareTypeError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ematix_flow.declare.pipeline.pipeline import Pipeline, Retry
    from ematix_flow.engine.batch.options import Options


def list_pipelines() -> list[str]:
    """Return the names of the declared pipelines, sorted."""
    return sorted(PROJECT.pipelines)


def list_transforms() -> list[str]:
    """Return the names of the declared transforms, sorted."""
    return sorted(PROJECT.transforms)


def list_entries() -> list[dict[str, str | None]]:
    """Return name, kind and schedule of every pipeline and transform, by name."""
    kinds = (("pipeline", PROJECT.pipelines), ("transform", PROJECT.transforms))
    entries = [
        {"name": name, "kind": kind, "schedule": entry.schedule}
        for kind, declared in kinds
        for name, entry in declared.items()
    ]
    return sorted(entries, key=lambda entry: (str(entry["name"]), str(entry["kind"])))


def get_pipeline(name: str) -> PipelineHandle:
    """Return a declared pipeline: callable, with preview and dry run."""
    return PipelineHandle(PROJECT.pipeline(name))


def run_pipeline(name: str, options: Options | None = None) -> Any:
    """Run a pipeline now and return its result."""
    return conductor.run_pipeline(PROJECT.pipeline(name), options)


def run_transform(name: str, options: Options | None = None) -> dict[str, Any]:
    """Run a declared transform on its own and return status, metrics and run id."""
    return conductor.run_transform(name, options)


def preview(name: str, *, dry_run: bool = False) -> Any:
    """Return the plan of a pipeline, or of the next batch of a stream; with `dry_run` also the counts it would have now."""
    from ematix_flow.engine.review.dry_run import dry_run_pipeline
    from ematix_flow.engine.review.preview import preview_pipeline

    if name in PROJECT.streams:
        handle = StreamHandle(PROJECT.stream(name))
        return handle.dry_run() if dry_run else handle.preview()
    pipeline = _loading(name)
    return dry_run_pipeline(pipeline) if dry_run else preview_pipeline(pipeline)


def dry_run(name: str) -> Any:
    """Return the plan of a pipeline with the counts that a run would have now; changes nothing."""
    return preview(name, dry_run=True)


def plan(name: str, *, diff: bool = False, sample: int | None = None) -> Any:
    """Return the plan of a pipeline; with `diff` also what it would change, staged and ready for `apply`."""
    if not diff:
        return preview(name)
    from ematix_flow.engine.review.diff import SAMPLE, diff_pipeline

    return diff_pipeline(_loading(name), sample=SAMPLE if sample is None else sample)


def apply(plan_id: str, options: Options | None = None) -> Any:
    """Commit exactly what a plan staged and return the result as a run does."""
    from ematix_flow.engine.review.apply import apply_plan

    return apply_plan(plan_id, options)


def _loading(name: str) -> Pipeline:
    pipeline = PROJECT.pipeline(name)
    if not pipeline.targets:
        message = f"pipeline {name!r} is {pipeline.unplanned}, which has no plan"
        raise DeclareTypeError(message, hint="declare it with @ematix.pipeline to preview it.", origin=pipeline.origin)
    return pipeline


def depends_on_of(name: str) -> tuple[str, ...]:
    """Return the names that a pipeline depends on."""
    return PROJECT.pipeline(name).depends_on


def upstream_freshness_secs_of(name: str) -> float | None:
    """Return how old the success of an upstream may be, in seconds, or None for any age."""
    max_age = PROJECT.pipeline(name).upstream_freshness
    return None if max_age is None else max_age.total_seconds()


def retry_policy_of(name: str) -> Retry | None:
    """Return the declared retry policy of a pipeline, or None."""
    return PROJECT.pipeline(name).retry


def order_for_run_due(names: Iterable[str]) -> list[str]:
    """Return the names so that what is depended on comes first; edges that leave the set do not count."""
    return PROJECT.order(list(names))

"""A declared pipeline as the user's module holds it: callable, with preview, dry run and sync; it does no work itself."""

from __future__ import annotations

import functools
import importlib
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from ematix_flow.declare.pipeline.write import write

if TYPE_CHECKING:
    from types import ModuleType

    from ematix_flow.declare.pipeline.pipeline import Pipeline, Transform

KEYED = ("merge", "scd2")

ENGINE = "ematix_flow.engine"
"""Looked up at the call, so that declaring never loads what running needs."""


def engine() -> ModuleType:
    """Return the package that runs pipelines."""
    return importlib.import_module(ENGINE)


class NamedPipeline:
    """A pipeline under the name of its function."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        functools.update_wrapper(cast("Any", self), pipeline.function)  # every kind of it can be called

    @property
    def name(self) -> str:
        """Return the pipeline's name."""
        return self.pipeline.name


class PipelineHandle(NamedPipeline):
    """What `@ematix.pipeline` leaves under the function's name."""

    def __call__(self, **options: Any) -> Any:
        """Run the pipeline now and return the result."""
        return engine().run_pipeline(self.pipeline, **options)

    def sync(self, keys: Any = None, **options: Any) -> Any:
        """Run the pipeline now, with other merge keys if given."""
        pipeline = self.pipeline
        if keys is not None:
            pipeline = replace(pipeline, targets=tuple(with_keys(t, keys) for t in pipeline.targets))
        return engine().run_pipeline(pipeline, **options)

    def preview(self, *, physical: bool = False) -> Any:
        """Return the plan without touching any data; with `physical` also how Spark would run what it evaluates."""
        return engine().preview_pipeline(self.pipeline, physical=physical)

    def plan(self, *, diff: bool = False, **options: Any) -> Any:
        """Return the plan; with `diff` also what it would change, staged and ready for `ematix_flow.pipeline.apply`."""
        return engine().diff_pipeline(self.pipeline, **options) if diff else self.preview()

    def dry_run(self) -> Any:
        """Return the plan with the counts that a run would have now; changes nothing."""
        return engine().dry_run_pipeline(self.pipeline)

    def validate(self) -> Any:
        """Return the databases' checks of the statements of a run; nothing is run."""
        return engine().validate_pipeline(self.pipeline)

    def maintain(self, *, due: bool = False, dry_run: bool = False) -> Any:
        """Compact, expire and clean up the targets, and return what was done about each; `dry_run` only inspects."""
        return engine().maintain_pipeline(self.pipeline, due=due, dry_run=dry_run)

    def __repr__(self) -> str:
        return f"<pipeline {self.pipeline.name!r}>"


class TransformHandle:
    """What `@ematix.transform` leaves under the function's name; calling it calls the function."""

    def __init__(self, transform: Transform) -> None:
        self.transform = transform
        functools.update_wrapper(self, transform.function)

    def __call__(self, *arguments: Any) -> Any:
        """Call the user's function as it is."""
        return self.transform.function(*arguments)

    def __repr__(self) -> str:
        return f"<transform {self.transform.name!r}>"


def with_keys(target: Any, keys: Any) -> Any:
    """Return a target declaration with other merge keys, checked like declared ones."""
    old = target.write
    if old.mode not in KEYED:
        text = f"{target.table.qualified_name} is loaded with mode {old.spelled!r}, which has no keys; keys= is ignored"
        warnings.warn(text, UserWarning, stacklevel=3)
        return target
    options = {name: getattr(old, name) for name in old.__dataclass_fields__ if name not in ("mode", "spelled", "keys")}
    return replace(target, write=write(old.spelled, keys=keys, **options))

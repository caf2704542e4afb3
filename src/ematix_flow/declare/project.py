"""Every declaration of this process by name; loading a user's module fills it."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

from ematix_flow.errors import DeclareError, UnknownNameError, did_you_mean

if TYPE_CHECKING:
    from datetime import timedelta
    from types import ModuleType

    from ematix_flow.declare.pipeline.pipeline import Pipeline, Transform
    from ematix_flow.declare.schedule.workflow import Workflow
    from ematix_flow.declare.stream.replication import Replication
    from ematix_flow.declare.stream.stream import Stream
    from ematix_flow.declare.table.schema import Table
    from ematix_flow.errors import Origin

SCHEDULER_LEASE = "_scheduler_singleton"
"""The name of the leading scheduler's lease, beside those of pipelines."""

WORKFLOW_PREFIX = "workflow:"
"""Begins the names under which the run log keeps the states of workflows, beside those of pipelines."""


@dataclass(slots=True)
class Project:
    """Pipelines, streams and transforms under unique names; a pipeline and a stream never share one."""

    pipelines: dict[str, Pipeline] = field(default_factory=dict)
    transforms: dict[str, Transform] = field(default_factory=dict)
    streams: dict[str, Stream] = field(default_factory=dict)
    replications: dict[str, Replication] = field(default_factory=dict)
    workflows: dict[str, Workflow] = field(default_factory=dict)
    feature_views: dict[str, Table] = field(default_factory=dict)
    """The tables of feature views by `schema.table.version`."""
    pools: dict[str, int] = field(default_factory=dict)
    """How many pipelines of a pool run at the same time, as far as the module sets it."""
    jobs: dict[str, Workflow] = field(default_factory=dict)
    """The workflow of each pipeline that belongs to one; the last one that named it has it."""
    slas: dict[str, timedelta] = field(default_factory=dict)
    """Limits for the age of the last success that were registered besides the declarations."""

    def add_pipeline(self, pipeline: Pipeline) -> None:
        """Take a pipeline; its name must be new and what it depends on must be known."""
        self._check_new("pipeline", pipeline.name, pipeline.origin, self.pipelines.get(pipeline.name))
        self._check_new("stream", pipeline.name, pipeline.origin, self.streams.get(pipeline.name))
        for upstream in pipeline.depends_on:
            if upstream == pipeline.name:
                message = f"pipeline {pipeline.name!r} depends on itself"
                raise DeclareError(message, origin=pipeline.origin)
            if upstream not in self.pipelines:
                message = f"pipeline {pipeline.name!r} depends on {upstream!r}, which is not declared before it"
                raise DeclareError(message, hint=did_you_mean(upstream, self.pipelines), origin=pipeline.origin)
        self.pipelines[pipeline.name] = pipeline

    def add_transform(self, transform: Transform) -> None:
        """Take a transform; its name must be new."""
        self._check_new("transform", transform.name, transform.origin, self.transforms.get(transform.name))
        self.transforms[transform.name] = transform

    def add_stream(self, stream: Stream) -> None:
        """Take a stream; its name must be new."""
        self._check_new("stream", stream.name, stream.origin, self.streams.get(stream.name))
        self._check_new("pipeline", stream.name, stream.origin, self.pipelines.get(stream.name))
        self.streams[stream.name] = stream

    def add_replication(self, replication: Replication) -> None:
        """Take a replication; no stream or pipeline may have its name."""
        for kind, known in (("replication", self.replications), ("stream", self.streams), ("pipeline", self.pipelines)):
            self._check_new(kind, replication.name, replication.origin, known.get(replication.name))
        self.replications[replication.name] = replication

    def add_feature_view(self, table: Table) -> None:
        """Take a feature view; its version must be new, and the table must be its own."""
        assert table.features is not None  # noqa: S101 - what makes it one
        name = table.features.name
        self._check_new("feature view", name, table.origin, self.feature_views.get(name))
        for other in self.feature_views.values():
            if other.qualified_name == table.qualified_name:
                message = f"feature views {other.features.name} and {name} would share one table"  # type: ignore[union-attr]
                hint = (
                    f'give each version a table of its own, for example name="{table.name}_{table.features.version}".'
                )
                raise DeclareError(message, hint=hint, origin=table.origin)
        self.feature_views[name] = table

    def feature_view(self, name: str) -> Table:
        """Return a feature view by `schema.table.version`, or by its table where only one version is declared."""
        for known, table in self.feature_views.items():
            if name in (known, table.qualified_name, table.name):
                return table
        message = f"no feature view named {name!r}"
        raise UnknownNameError(message, hint=did_you_mean(name, self.feature_views))

    def add_workflow(self, workflow: Workflow) -> None:
        """Take a workflow; its name must be new."""
        self._check_new("workflow", workflow.name, workflow.origin, self.workflows.get(workflow.name))
        self.workflows[workflow.name] = workflow
        self.jobs.update(dict.fromkeys(workflow.jobs, workflow))

    def pipeline(self, name: str) -> Pipeline:
        """Return a pipeline by name."""
        if name not in self.pipelines:
            message = f"no pipeline named {name!r}"
            hint = (
                "it is a stream; flow consume runs it." if name in self.streams else did_you_mean(name, self.pipelines)
            )
            raise UnknownNameError(message, hint=hint)
        return self.pipelines[name]

    def transform(self, name: str) -> Transform:
        """Return a transform by name."""
        if name not in self.transforms:
            message = f"no transform named {name!r}"
            raise UnknownNameError(message, hint=did_you_mean(name, self.transforms))
        return self.transforms[name]

    def stream(self, name: str) -> Stream:
        """Return a stream by name."""
        if name not in self.streams:
            message = f"no stream named {name!r}"
            raise UnknownNameError(message, hint=did_you_mean(name, self.streams))
        return self.streams[name]

    def order(self, names: list[str]) -> list[str]:
        """Return the names so that what is depended on comes first; edges that leave the set do not count.

        What may run at the same time is ordered by priority, then as it was given.
        """
        ranks = {name: rank for rank, name in enumerate(names)}
        sorter: TopologicalSorter[str] = TopologicalSorter(
            {name: [one for one in self.pipeline(name).depends_on if one in ranks] for name in names}
        )
        try:
            sorter.prepare()
        except CycleError as error:
            message = f"pipelines depend on each other in a circle: {' -> '.join(error.args[1])}"
            raise DeclareError(message) from None
        ordered: list[str] = []
        while sorter.is_active():
            ready = sorted(sorter.get_ready(), key=lambda name: (-self.pipelines[name].priority, ranks[name]))
            ordered += ready
            sorter.done(*ready)
        return ordered

    @property
    def has_schedules(self) -> bool:
        """Return whether a scheduler has to check what is due."""
        return any(one.schedule for one in self.pipelines.values()) or any(w.schedule for w in self.workflows.values())

    def clear(self) -> None:
        """Forget everything; for tests and for loading a module anew."""
        self.pipelines.clear()
        self.transforms.clear()
        self.streams.clear()
        self.replications.clear()
        self.workflows.clear()
        self.jobs.clear()
        self.pools.clear()
        self.feature_views.clear()
        self.slas.clear()

    @staticmethod
    def _check_new(
        kind: str,
        name: str,
        origin: Origin | None,
        existing: Pipeline | Replication | Stream | Table | Transform | Workflow | None,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise DeclareError(f"the name of a {kind} is {name!r}", hint="give it a name=.", origin=origin)
        if name == SCHEDULER_LEASE or name.startswith(WORKFLOW_PREFIX):
            message = f"a {kind} cannot be named {name!r}, which the run log uses itself"
            raise DeclareError(message, hint="give it another name=.", origin=origin)
        if existing is not None:
            message = f"a {kind} named {name!r} is declared already"
            hint = f"the first one is at {existing.origin}; give this one another name=."
            raise DeclareError(message, hint=hint, origin=origin)


PROJECT = Project()
"""The declarations of this process."""


def load_module(name: str) -> ModuleType:
    """Import the user's module, with the current directory able to provide it but never able to shadow ours."""
    if not name or not all(segment.isidentifier() for segment in name.split(".")):
        message = f"{name!r} is not the name of a Python module"
        raise DeclareError(message, hint="write it as in an import statement, for example my_pipelines.")
    folder = str(Path.cwd())
    _refuse_hidden(name.partition(".")[0])
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            message = f"no module named {name!r} can be imported"
            raise DeclareError(message, hint=f"looked in {folder} and on the Python path.") from None
        raise


def _refuse_hidden(name: str) -> None:
    """Refuse a module of the current directory in whose place Python would import one of its own."""
    own = next((path for path in (Path(f"{name}.py"), Path(name, "__init__.py")) if path.exists()), None)
    if own is not None and name in sys.stdlib_module_names:
        message = f"{name!r} is a module of Python itself, which would be imported instead of {own}"
        raise DeclareError(message, hint="give your module another name.")

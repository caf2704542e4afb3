"""The declarations of a project as plain data: what `flow list` prints and pages show; nothing is opened."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.project import PROJECT

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
    from ematix_flow.declare.stream.stream import Stream


def declared_entries() -> list[dict[str, Any]]:
    """Return pipelines, streams, replications and transforms by name."""
    entries: list[dict[str, Any]] = [
        {
            "name": pipeline.name,
            "kind": "pipeline",
            "schedule": pipeline.schedule,
            "timezone": pipeline.timezone,
            "timeout": None if pipeline.timeout is None else pipeline.timeout.total_seconds(),
            "depends_on": list(pipeline.depends_on),
            "targets": _written(pipeline),
        }
        for pipeline in PROJECT.pipelines.values()
    ]
    entries += [
        _unscheduled(one.name, "transform", []) | {"schedule": one.schedule} for one in PROJECT.transforms.values()
    ]
    entries += [
        _unscheduled(one.name, "stream", [one.key_of(target) for target in one.targets])
        for one in PROJECT.streams.values()
    ]
    entries += [
        _unscheduled(one.name, "replication", [f"{one.schema}.*" if one.schema else one.tables])
        for one in PROJECT.replications.values()
    ]
    return sorted(entries, key=lambda entry: str(entry["name"]))


def _unscheduled(name: str, kind: str, targets: list[str]) -> dict[str, Any]:
    return {"name": name, "kind": kind, "schedule": None, "timezone": None, "depends_on": [], "targets": targets}


def _written(pipeline: Pipeline) -> list[str]:
    """Return the tables that a pipeline writes to."""
    if pipeline.warehouse is not None:
        return [pipeline.warehouse.target.table_name]
    return [target.table.qualified_name for target in pipeline.targets]


def pipeline_declaration(pipeline: Pipeline) -> dict[str, Any]:
    """Return how a pipeline is declared, with the text of its function."""
    retry = pipeline.retry
    return {
        "name": pipeline.name,
        "origin": None if pipeline.origin is None else str(pipeline.origin),
        "schedule": pipeline.schedule,
        "timezone": pipeline.timezone,
        "depends_on": list(pipeline.depends_on),
        "timeout": None if pipeline.timeout is None else pipeline.timeout.total_seconds(),
        "catchup": pipeline.catchup,
        "pool": pipeline.pool,
        "priority": pipeline.priority,
        "retry": None if retry is None else {"max_attempts": retry.max_attempts, "backoff": retry.backoff},
        "targets": [_target(pipeline, target) for target in pipeline.targets],
        "source": source_text(pipeline.function),
    }


def _target(pipeline: Pipeline, target: TargetDeclaration) -> dict[str, Any]:
    return {
        "name": pipeline.key_of(target),
        "connection": target.connection_name,
        "mode": target.write.spelled,
        "columns": [{"name": column.name, "type": str(column.type)} for column in target.table.columns],
        "expectations": [one.name for one in target.quality.expectations],
    }


def stream_declaration(stream: Stream) -> dict[str, Any]:
    """Return how a stream is declared."""
    return {
        "name": stream.name,
        "origin": None if stream.origin is None else str(stream.origin),
        "sources": [{"id": one.id, "connection": one.connection_name, "query": one.query} for one in stream.sources],
        "targets": [
            {"name": stream.key_of(one), "connection": one.connection_name, "mode": one.write.spelled}
            for one in stream.targets
        ],
        "stateful": stream.is_stateful,
    }


def source_text(function: Callable[..., Any]) -> str:
    """Return the text of a function as its file has it; empty where there is none."""
    try:
        return inspect.cleandoc(inspect.getsource(function))
    except (OSError, TypeError):
        return ""

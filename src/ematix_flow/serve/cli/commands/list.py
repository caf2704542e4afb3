"""`flow list`: the declarations of a module; it runs none of them and loads nothing that running needs."""

from __future__ import annotations

from typing import Any

import click

from ematix_flow.declare.project import PROJECT
from ematix_flow.serve.cli.common.errors import DONE
from ematix_flow.serve.cli.common.options import common_options, format_option, load, module_option
from ematix_flow.serve.cli.common.output import emit, emit_json, table, talk


@click.command("list")
@module_option
@format_option
@common_options
def list_(module: str | None, form: str) -> int:
    """Show the pipelines, streams and transforms of a module."""
    load(module)
    entries = _entries()
    if form == "json":
        emit_json(entries)
    elif entries:
        rows = [(e["name"], e["kind"], e["schedule"] or "(unscheduled)", ", ".join(e["targets"])) for e in entries]
        emit(table(("NAME", "KIND", "SCHEDULE", "WRITES"), rows))
    else:
        talk("the module declares no pipelines, streams or transforms.")
    return DONE


def _entries() -> list[dict[str, Any]]:
    """Return pipelines, streams and transforms by name."""
    entries: list[dict[str, Any]] = [
        {
            "name": pipeline.name,
            "kind": "pipeline",
            "schedule": pipeline.schedule,
            "timezone": pipeline.timezone,
            "timeout": None if pipeline.timeout is None else pipeline.timeout.total_seconds(),
            "depends_on": list(pipeline.depends_on),
            "targets": [target.table.qualified_name for target in pipeline.targets],
        }
        for pipeline in PROJECT.pipelines.values()
    ]
    entries += [
        {"name": t.name, "kind": "transform", "schedule": t.schedule, "timezone": None, "depends_on": [], "targets": []}
        for t in PROJECT.transforms.values()
    ]
    entries += [
        {
            "name": stream.name,
            "kind": "stream",
            "schedule": None,
            "timezone": None,
            "depends_on": [],
            "targets": [stream.key_of(target) for target in stream.targets],
        }
        for stream in PROJECT.streams.values()
    ]
    return sorted(entries, key=lambda entry: str(entry["name"]))

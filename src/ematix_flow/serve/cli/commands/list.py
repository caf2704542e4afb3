"""`flow list`: the declarations of a module; it runs none of them and loads nothing that running needs."""

from __future__ import annotations

import click

from ematix_flow.serve.cli.common.errors import DONE
from ematix_flow.serve.cli.common.options import common_options, format_option, load, module_option
from ematix_flow.serve.cli.common.output import emit, emit_json, table, talk


@click.command("list")
@module_option
@format_option
@common_options
def list_(module: str | None, form: str) -> int:
    """Show the pipelines, streams, replications and transforms of a module."""
    load(module)
    from ematix_flow.engine.report.declared import declared_entries

    entries = declared_entries()
    if form == "json":
        emit_json(entries)
    elif entries:
        rows = [(e["name"], e["kind"], e["schedule"] or "(unscheduled)", ", ".join(e["targets"])) for e in entries]
        emit(table(("NAME", "KIND", "SCHEDULE", "WRITES"), rows))
    else:
        talk("the module declares no pipelines, streams or transforms.")
    return DONE

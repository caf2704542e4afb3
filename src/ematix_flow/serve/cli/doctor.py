"""`flow doctor`: what this machine and every connection say about their health; the engine asks them."""

from __future__ import annotations

import sys

import click

from ematix_flow.serve.cli.failures import DONE, FAILED
from ematix_flow.serve.cli.options import common_options, format_option, load, module_option
from ematix_flow.serve.cli.output import emit, emit_json, paint, table

_COLOURS = {"ok": "green", "fail": "red", "skip": "yellow"}


@click.command()
@module_option
@format_option
@common_options
def doctor(module: str | None, form: str) -> int:
    """Check Python, Java, Spark, the run log and every connection."""
    load(module, required=False)
    from ematix_flow.engine.health import machine_health, run_doctor

    reports = [*machine_health(), *run_doctor()]
    if form == "json":
        emit_json([report.to_dict() for report in reports])
    else:
        rows = [(r.name, r.kind, r.status, r.elapsed_ms, r.detail) for r in reports]
        lines = table(("NAME", "KIND", "STATUS", "ms", "DETAIL"), rows)
        for status, colour in _COLOURS.items():
            lines = lines.replace(f"  {status} ", f"  {paint(status, colour, sys.stdout)} ")
        emit(lines)
    return FAILED if any(report.status == "fail" for report in reports) else DONE

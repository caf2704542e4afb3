"""`flow doctor`: the health of this machine and of every connection; the engine checks them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from ematix_flow.serve.cli.common.errors import DONE, FAILED
from ematix_flow.serve.cli.common.options import common_options, format_option, load, module_option
from ematix_flow.serve.cli.common.output import emit, emit_json, paint, table

if TYPE_CHECKING:
    from ematix_flow.engine.doctor import HealthReport

_COLOURS = {"ok": "green", "fail": "red", "skip": "yellow"}


@click.command()
@module_option
@click.option("--spark", "executors", is_flag=True, help="Also check the executors of Spark, which starts it.")
@format_option
@common_options
def doctor(module: str | None, executors: bool, form: str) -> int:
    """Check Python, Java, Spark, the run log and every connection."""
    load(module, required=False)
    from ematix_flow.engine.doctor import machine_health, run_doctor

    reports = [*machine_health(), *run_doctor(), *(_executors() if executors else ())]
    if form == "json":
        emit_json([report.to_dict() for report in reports])
    else:
        rows = [(r.name, r.kind, r.status, r.elapsed_ms, r.detail) for r in reports]
        lines = table(("NAME", "KIND", "STATUS", "ms", "DETAIL"), rows)
        for status, colour in _COLOURS.items():
            lines = lines.replace(f"  {status} ", f"  {paint(status, colour, sys.stdout)} ")
        emit(lines)
    return FAILED if any(report.status == "fail" for report in reports) else DONE


def _executors() -> list[HealthReport]:
    from ematix_flow.engine.spark.executor_health import executor_health
    from ematix_flow.serve.cli.common.spark import stop_spark_at_end

    stop_spark_at_end()
    return executor_health()

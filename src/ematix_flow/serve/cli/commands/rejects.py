"""`flow rejects`: rows that a pipeline refused; they are stored in its target and the engine reads and replays them."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import Any

import click

from ematix_flow.serve.cli.commands.run import run_bus
from ematix_flow.serve.cli.common.errors import DONE, FAILED, as_usage_error
from ematix_flow.serve.cli.common.lazy import NearGroup
from ematix_flow.serve.cli.common.options import (
    COUNT,
    common_options,
    engine_option,
    find_pipeline,
    format_option,
    module_option,
    open_log,
    run_log_options,
)
from ematix_flow.serve.cli.common.output import emit, emit_json, table, talk
from ematix_flow.serve.cli.common.run_progress import progress_subscriber
from ematix_flow.serve.cli.common.spark import stop_spark_at_end


@click.group(cls=NearGroup)
def rejects() -> None:
    """List, show or replay rejected rows."""


@rejects.command("list")
@click.argument("name")
@module_option
@click.option("--status", type=click.Choice(["pending", "replayed", "all"]), default="pending", show_default=True)
@click.option("--limit", type=COUNT, default=100, show_default=True, help="At most so many, newest first.")
@format_option
@common_options
def list_(name: str, module: str | None, status: str, limit: int, form: str) -> int:
    """Show the rejected rows of a pipeline."""
    pipeline = find_pipeline(module, name)
    from ematix_flow.engine.rejects import list_rejects

    entries = list_rejects(pipeline, status=None if status == "all" else status, limit=limit)
    if form == "json":
        emit_json([reject.to_dict() for reject in entries])
    elif entries:
        rows = [(r.reject_id[:12], r.target_name.partition(":")[2], r.status, r.column_name, r.reason) for r in entries]
        emit(table(("REJECT", "TARGET", "STATUS", "COLUMN", "REASON"), rows))
    else:
        talk(f"{name} has no {'' if status == 'all' else status + ' '}rejects.")
    return DONE


@rejects.command()
@click.argument("name")
@click.argument("reject_id")
@module_option
@format_option
@common_options
def show(name: str, reject_id: str, module: str | None, form: str) -> int:
    """Show a rejected row; the beginning of its id is enough."""
    pipeline = find_pipeline(module, name)
    from ematix_flow.engine.rejects import show_reject

    with as_usage_error():
        reject = show_reject(pipeline, reject_id).to_dict()
    if form == "json":
        emit_json(reject)
        return DONE
    row = reject.pop("row")
    reject.pop("row_json")
    lines = {**reject, **{f"row.{column}": value for column, value in row.items()}}
    widest = max(len(key) for key in lines)
    emit("\n".join(f"{key.ljust(widest)}  {value}" for key, value in lines.items()))
    return DONE


@rejects.command()
@click.argument("name")
@module_option
@click.option("--id", "ids", multiple=True, metavar="REJECT", help="Only this one; may be repeated.")
@run_log_options
@engine_option
@common_options
def replay(name: str, module: str | None, ids: tuple[str, ...], **location: Any) -> int:
    """Load pending rejects again through the pipeline as it is declared now, and print the result as JSON."""
    pipeline = find_pipeline(module, name)
    log = open_log(**location)
    stop_spark_at_end()
    bus = run_bus(pipeline, log)
    from ematix_flow.engine import Options
    from ematix_flow.engine.rejects import replay_rejects, show_reject

    with as_usage_error():
        chosen = [show_reject(pipeline, reject).reject_id for reject in ids]
    with progress_subscriber() as subscriber, redirect_stdout(sys.stderr):
        bus.subscribe(subscriber)
        result = replay_rejects(pipeline, chosen or None, Options(run_log=log, bus=bus))
    emit_json(result)
    return FAILED if result["rejected"] else DONE

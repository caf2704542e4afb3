"""`flow runs`: what the run log stores, and which actions it takes; the truth about rows is in the target."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from ematix_flow.errors import UnknownNameError
from ematix_flow.serve.cli.commands.control import cancel, rerun, resume
from ematix_flow.serve.cli.common.errors import DONE, UsageRefusedError
from ematix_flow.serve.cli.common.filters import Since
from ematix_flow.serve.cli.common.lazy import NearGroup
from ematix_flow.serve.cli.common.options import (
    COUNT,
    COUNT_OR_NONE,
    common_options,
    format_option,
    module_option,
    read_log,
    run_log_options,
)
from ematix_flow.serve.cli.common.output import emit, emit_json, table, talk
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from ematix_flow.records import RunRecord

_COLUMNS = ("RUN", "PIPELINE", "TARGET", "STATUS", "STARTED", "SECONDS", "ROWS")
_STATUSES = ("requested", "running", "paused", "succeeded", "failed", "cancelled", "interrupted")


@click.group(cls=NearGroup)
def runs() -> None:
    """List runs, show one, resume, repeat or cancel it."""


@runs.command("list")
@click.option("--pipeline", "--name", "pipeline", metavar="NAME", help="Only runs of this pipeline.")
@click.option("--status", "--state", "status", type=click.Choice(_STATUSES), help="Only runs that ended like this.")
@click.option("--since", type=Since(), help="Only runs that began then or later, or so long ago: 6h, 7d.")
@click.option("--limit", type=COUNT, default=20, show_default=True, help="At most so many, newest first.")
@click.option("--offset", type=COUNT_OR_NONE, default=0, help="Leave out so many of the newest.")
@click.option("--all-projects", is_flag=True, help="Also runs of other projects that share this run log.")
@module_option
@run_log_options
@format_option
@common_options
def list_(limit: int, offset: int, all_projects: bool, form: str, module: str | None, **options: Any) -> int:
    """Show the newest runs of this project; a run whose process is gone is interrupted."""
    del module  # taken like by every other command; the run log knows runs without it
    from ematix_flow.engine.schedule.run_lists import RunListQuery, list_current_runs

    by = {name: options.pop(name) for name in ("pipeline", "status", "since")}
    log, query = read_log(**options), RunListQuery(**by, limit=limit, offset=offset, all_projects=all_projects)
    listed, total = list_current_runs(log, query)
    if form == "json":
        emit_json({"runs": [asdict(run) for run in listed], "total": total})
        return DONE
    if not listed:
        others = log.list_runs(**by, limit=1, all_projects=True)[1]
        more = f" of this project, and {others} of others; --all-projects shows them." if others > total else "."
        talk(f"the run log has no such runs{more}")
        return DONE
    emit(table((*(("PROJECT",) if all_projects else ()), *_COLUMNS), [_table_row(run, all_projects) for run in listed]))
    if total > len(listed):
        talk(f"{len(listed)} of {total} runs; --limit shows more.")
    return DONE


@runs.command()
@click.argument("run_id")
@run_log_options
@format_option
@common_options
def show(run_id: str, form: str, **location: Any) -> int:
    """Show everything that is remembered about a run; the beginning of its id is enough."""
    from ematix_flow.engine.schedule.run_lists import current_run

    log = read_log(**location)
    run = log.get_run(run_id, all_projects=True)
    if run is None:
        message = f"no single run has the id {run_id!r}"
        raise UsageRefusedError(UnknownNameError(message, hint="flow runs list shows the ids."))
    run = current_run(log, run)
    if form == "json":
        emit_json(asdict(run))
        return DONE
    from ematix_flow.connect.config.redact import redact
    from ematix_flow.engine.report.runs import progress_of

    progress = progress_of(run)
    known = {name: value for name, value in asdict(run).items() if value not in (None, "", {})}
    if progress is not None:
        known["progress"] = _progress_text(progress)
    widest = max(len(name) for name in known)
    emit("\n".join(redact(f"{name.ljust(widest)}  {value}") for name, value in known.items()))
    return DONE


def _progress_text(progress: dict[str, Any]) -> str:
    """Return the step that a run is in."""
    rows = f", {quantity(progress['rows_staged'], 'row')} so far" if progress["rows_staged"] else ""
    return f"{progress['step']} since {datetime.fromisoformat(progress['since']):%H:%M:%S}Z{rows}"


for _command in (resume, rerun, cancel):
    runs.add_command(_command)


def _table_row(run: RunRecord, with_project: bool) -> tuple[object, ...]:
    from ematix_flow.engine.schedule.run_lists import run_label

    changed = [("inserted", run.rows_inserted), ("updated", run.rows_updated), ("deleted", run.rows_deleted)]
    changed += [("rejected", run.rows_rejected)]
    rows = ", ".join(f"{count:,} {label}" for label, count in changed if count)
    started = datetime.fromisoformat(run.started_at)
    seconds = (datetime.fromisoformat(run.finished_at) - started).total_seconds() if run.finished_at else None
    return (
        *((run.project,) if with_project else ()),
        run_label(run),
        run.pipeline,
        run.target,
        run.status,
        f"{started:%Y-%m-%d %H:%M:%S}Z",
        "" if seconds is None else f"{seconds:.1f}",
        rows or (run.error_summary or "").partition("\n")[0],
    )

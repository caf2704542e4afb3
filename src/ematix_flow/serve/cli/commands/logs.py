"""`flow logs`: what a run wrote to stderr, also while it still runs; captured logs are read and nothing is changed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from ematix_flow.serve.cli.common.errors import DONE, FAILED, print_error_text
from ematix_flow.serve.cli.common.options import COUNT, common_options, read_log, run_log_location_options
from ematix_flow.serve.cli.common.output import emit

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.commit.runlog.log import RunLog

_EVERY = 0.3


@click.command()
@click.argument("name", metavar="RUN_ID|PIPELINE")
@click.option("--tail", type=COUNT, metavar="N", help="Only the last N lines.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run has ended.")
@run_log_location_options
@common_options
def logs(name: str, tail: int | None, follow: bool, **location: Any) -> int:
    """Show the stderr of a run; a pipeline's name means its newest run, and the beginning of an id is enough."""
    from ematix_flow.serve.cli.common.log_files import find_logs, log_folder

    files = find_logs(name)
    if len(files) != 1:
        listed = ", ".join(file.stem for file in files[:5])
        hint = f"there are {listed}." if files else "runs keep their logs unless EMATIX_FLOW_CAPTURE_LOGS=0 forbids it."
        print_error_text(f"{len(files) or 'no'} logs of a run {name!r} below {log_folder()}", hint)
        return FAILED
    text = files[0].read_bytes()
    if follow:
        text = text[: text.rfind(b"\n") + 1]  # the rest of a line that is being written comes with its end
    lines = text.decode("utf-8", "replace").splitlines()
    if lines:
        emit("\n".join(lines[-tail:] if tail else lines))
    if follow:
        _follow(files[0], len(text), read_log(**location, no_run_log=False))
    return DONE


def _follow(file: Path, offset: int, log: RunLog) -> None:
    """Show what is added to a log, until its run has ended and one more read found the rest."""
    from ematix_flow.engine.schedule.status import running_now
    from ematix_flow.serve.cli.common.log_files import file_stem, pipeline_of

    name, running = pipeline_of(file), True
    while running:
        running = name in {file_stem(pipeline) for pipeline in running_now(log)}
        time.sleep(_EVERY)
        offset = _show_more(file, offset)


def _show_more(file: Path, offset: int) -> int:
    """Show what comes after a position and return the new one; a log that was shortened is taken up at its end."""
    size = file.stat().st_size
    if size <= offset:
        return size
    with file.open("rb") as log:
        log.seek(offset)
        added = log.read()
    whole = added.rpartition(b"\n")[0]
    if whole:
        emit(whole.decode("utf-8", "replace"))
        return offset + len(whole) + 1
    return offset

"""How far a load is while it runs: rows staged so far, and its steps in the run log; no load waits for it or fails by it.

Each attempt of a task writes its count to a file, and a thread adds them up. That works where driver and tasks share a
machine; elsewhere no rows are reported until they are staged.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base.scratch import scratch_folder
from ematix_flow.events import StageProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.engine.batch.options import Options
    from ematix_flow.engine.batch.step_times import StepTimes
    from ematix_flow.plan.steps import TargetPlan
    from ematix_flow.records import RunRecord

EVERY_SECONDS = 0.5
SHOWN_EVERY_SECONDS = 1.0


def reporting(plan: TargetPlan, options: Options, times: StepTimes | None = None) -> Callable[[int, int], None] | None:
    """Return what emits rows and attempts on the bus and notes them in `times`; None when neither is read."""
    noted = times if times is not None and times.watched else None

    def report(rows: int, tasks: int) -> None:
        if noted is not None:
            noted.rows = rows
        options.bus.emit(StageProgress(plan.pipeline, plan.table_name, rows, tasks))

    return report if noted is not None or options.bus.has_subscribers else None


@contextmanager
def counting(report: Callable[[int, int], None] | None) -> Iterator[str]:
    """Return a folder for the tasks' counts, and report rows and attempts now and then until the block ends."""
    if report is None:
        yield ""
        return
    with scratch_folder("count") as folder:
        done = threading.Event()
        watcher = threading.Thread(target=_watch, args=(Path(folder), report, done), daemon=True)
        watcher.start()
        try:
            yield folder
        finally:
            done.set()
            watcher.join()


def _watch(folder: Path, report: Callable[[int, int], None], done: threading.Event) -> None:
    reported = (0, 0)
    while not done.wait(EVERY_SECONDS):
        counts = [_rows(file) for file in folder.iterdir()]
        now = (sum(counts), len(counts))
        if now != reported:
            report(*now)
            reported = now


def _rows(file: Path) -> int:
    text = file.read_text()
    return int(text) if text.isdigit() else 0


@contextmanager
def showing_progress(log: RunLog, record: RunRecord, times: StepTimes) -> Iterator[None]:
    """Write the steps of this block into the record of its run whenever they changed, at most once a second.

    What is being written when the block ends is not waited for: the run log takes no progress of a run that has ended.
    """
    ended = threading.Event()
    arguments = (log, record, times, ended)
    threading.Thread(target=_show, args=arguments, name=f"progress-{record.pipeline}", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _show(log: RunLog, record: RunRecord, times: StepTimes, ended: threading.Event) -> None:
    shown: dict[str, Any] = {}
    while not ended.wait(SHOWN_EVERY_SECONDS):
        now = times.so_far()
        if now == shown:
            continue
        with suppress(Exception):  # whatever it is, the load goes on and its end is written without this
            at = {"progress_at": times.clock.now().isoformat()}
            log.show_progress(replace(record, extras={**record.extras, **now, **at}))
            shown = now

"""Rows staged so far, while tasks are still at work: each attempt writes its count to a file, a thread adds them up.

It works where driver and tasks share a machine; elsewhere nothing is reported until the rows are staged.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ematix_flow.connect.base.scratch import scratch_folder
from ematix_flow.events import StageProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ematix_flow.engine.batch.options import Options
    from ematix_flow.plan.steps import TargetPlan

EVERY_SECONDS = 0.5


def reporting(plan: TargetPlan, options: Options) -> Callable[[int, int], None] | None:
    """Return what emits rows and attempts on the bus; None when it has no subscriber."""

    def report(rows: int, tasks: int) -> None:
        options.bus.emit(StageProgress(plan.pipeline, plan.table_name, rows, tasks))

    return report if options.bus.has_subscribers else None


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

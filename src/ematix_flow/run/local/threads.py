"""Stages the partitions of a source in threads of this process: what Spark's tasks do, without Spark.

The threads wait for databases, copy bytes and shape rows in DuckDB, which other threads of Python may do at the same time.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import FIRST_EXCEPTION, wait
from contextvars import copy_context
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from ematix_flow.background import in_background
from ematix_flow.connect.base.cancellation import current
from ematix_flow.connect.base.retry import STAGE_PARTITION, attempts
from ematix_flow.errors import FlowError, TransientError
from ematix_flow.failpoints import failpoint

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from ematix_flow.records import TaskReport
    from ematix_flow.run.engine import Tasks
    from ematix_flow.run.stage.tasks import PartitionTask

END_SECONDS = 10.0
"""How long a failed load waits for its other threads; they end with their next rows."""


def stage_in_threads(partitions: Sequence[PartitionTask], at_once: int | None = None) -> tuple[TaskReport, ...]:
    """Stage every partition, as many at a time as there are cores, and no more than `at_once`."""
    workers = min(len(partitions), os.cpu_count() or 1, at_once or len(partitions))
    crew = _Crew(partitions)
    futures: list[Future[list[TaskReport]]] = []
    try:
        with current().waking(crew.over.set):
            # What the threads open is interrupted with this run.
            own = [partial(copy_context().run, crew.stage_some) for _ in range(workers)]
            futures.extend(in_background(work, f"flow-stage-{number}") for number, work in enumerate(own))
            ended, _ = wait(futures, return_when=FIRST_EXCEPTION)
        reports = [report for future in ended for report in future.result()]
        current().check_known()
    except BaseException:
        crew.over.set()
        wait(futures, timeout=END_SECONDS)
        raise
    failpoint("stage.collected")
    return tuple(sorted(reports, key=lambda report: report.partition))


class LocalEngine:
    """Threads of this process as an engine: no Java, no workers."""

    def slots(self) -> int:
        """Return how many partitions are staged at a time: one for each core."""
        return os.cpu_count() or 1

    def stage_partitions(self, partitions: Sequence[PartitionTask], tasks: Tasks) -> tuple[TaskReport, ...]:
        """Stage every partition in threads."""
        return stage_in_threads(partitions, tasks.at_once)


class _Crew:
    """Threads that take partition after partition until none is left or one of them fails."""

    def __init__(self, partitions: Sequence[PartitionTask]) -> None:
        self._partitions = partitions
        self._next = count()
        self._attempts = count()
        self.over = threading.Event()

    def stage_some(self) -> list[TaskReport]:
        """Stage partitions until none is left."""
        reports: list[TaskReport] = []
        while (partition := next(self._next)) < len(self._partitions) and not self.over.is_set():
            reports.append(self._stage(partition))
        return reports

    def _stage(self, partition: int) -> TaskReport:
        for attempt in attempts(STAGE_PARTITION, on=_may_pass, stop=self.over):
            with attempt:
                report = self._partitions[partition]((partition, next(self._attempts)), cancel_check=self._cancel_check)
        return report

    def _cancel_check(self) -> None:
        if self.over.is_set():
            raise TransientError("another part of this load failed")


def _may_pass(error: Exception) -> bool:
    return isinstance(error, TransientError) or not isinstance(error, FlowError)

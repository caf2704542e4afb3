"""Stands in for Spark where only the commit matters: tasks run in this process, retried by Spark's rule; no JVM.

What is planned, read, staged, reported and committed is the product's own code. Spark decides where tasks run, hands out
attempt numbers that are unique in one driver, and tries a failed task again; that much is done here.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Task = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]

ATTEMPTS = 4
"""As many as `local[*, 4]` makes."""


class HereSpark:
    """Takes the one call that the engine makes when a source database shapes its rows itself."""

    def __init__(self) -> None:
        self._attempts = count()

    def range(self, start: int, end: int, step: int, partitions: int) -> _Frame:
        """Give a frame with one number per partition."""
        assert (start, step, partitions) == (0, 1, end)
        return _Frame(end, self._attempts)


@dataclass
class _Frame:
    partitions: int
    attempts: count[int]
    task: Task | None = None

    def mapInArrow(self, task: Task, report: str) -> _Frame:  # noqa: N802 - the name that pyspark has
        del report
        return _Frame(self.partitions, self.attempts, task)

    def collect(self) -> list[_Row]:
        return [row for partition in range(self.partitions) for row in self._tried(partition)]

    def _tried(self, partition: int) -> list[_Row]:
        for _ in range(ATTEMPTS - 1):
            try:
                return self._attempt(partition)
            except Exception:  # noqa: BLE001, S112 - a task may fail in any way
                continue
        return self._attempt(partition)

    def _attempt(self, partition: int) -> list[_Row]:
        from pyspark import TaskContext

        assert self.task is not None
        TaskContext._taskContext = _Context(partition, next(self.attempts))
        try:
            numbers = pa.RecordBatch.from_pydict({"id": [partition]})
            return [_Row(row) for batch in self.task([numbers]) for row in batch.to_pylist()]
        finally:
            TaskContext._taskContext = None


@dataclass(frozen=True)
class _Context:
    partition: int
    attempt: int

    def partitionId(self) -> int:  # noqa: N802 - the name that pyspark has
        return self.partition

    def taskAttemptId(self) -> int:  # noqa: N802 - the name that pyspark has
        return self.attempt


@dataclass(frozen=True)
class _Row:
    fields: dict[str, Any]

    def asDict(self) -> dict[str, Any]:  # noqa: N802 - the name that pyspark has
        return self.fields

"""The protocol of what moves the rows of a load: tasks of Spark, or threads of this process with `local`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from ematix_flow.records import TaskReport
    from ematix_flow.run.stage.tasks import PartitionTask, StageWork
    from ematix_flow.run.stage.transport import Carrier


@dataclass(frozen=True, slots=True)
class Tasks:
    """How partitions are staged."""

    imports: tuple[str, ...] = ()
    """Modules that the tasks will use, which an engine may have at hand before they begin."""
    at_once: int | None = None
    """How many may be staged at a time, where something other than the engine limits it."""
    carrier: Carrier | None = None
    """How parts come to this machine, where tasks run on another one."""


class Engine(Protocol):
    """Stages partitions: each of them once as far as the reports show, again when a failure may pass."""

    def slots(self) -> int:
        """Return how many partitions the engine stages at a time."""

    def stage_partitions(self, partitions: Sequence[PartitionTask], tasks: Tasks) -> tuple[TaskReport, ...]:
        """Stage every partition and return a report for each; the first failure that does not pass is raised."""


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """Tasks of Spark, which alone can evaluate frames too; its session starts when it is first needed."""

    session: Callable[..., SparkSession]
    """Returns the session; modules for workers can be named."""
    count: Callable[[], int]
    """Returns the slots."""

    def slots(self) -> int:
        """Return how many tasks run at a time."""
        return self.count()

    def stage_partitions(self, partitions: Sequence[PartitionTask], tasks: Tasks) -> tuple[TaskReport, ...]:
        """Stage each partition in a task."""
        from ematix_flow.run.stage.tasks import stage_partitions

        return stage_partitions(self.session(tasks.imports), partitions, tasks.at_once, tasks.carrier)

    def stage_frame(self, frame: DataFrame, work: StageWork, at_once: int | None) -> tuple[TaskReport, ...]:
        """Stage the rows of a frame, each partition in a task."""
        from ematix_flow.run.stage.tasks import stage_frame

        return stage_frame(frame, work, at_once)

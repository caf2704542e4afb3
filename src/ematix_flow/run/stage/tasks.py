"""Stages a load on Spark: tasks read, conform and stage, and report; nothing here commits.

When a source database or the task itself evaluates the whole shape, a task reads Arrow batches and stages them without
passing the JVM; where the target can take the source's own bytes, they are passed on unread. Otherwise Spark evaluates
the shape and hands Arrow batches to the staging function.
"""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from secrets import randbits
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ematix_flow.connect.base.cancellation import current
from ematix_flow.connect.base.event_time import drain_events
from ematix_flow.connect.changes.left_out import drain_left_out
from ematix_flow.errors import RunError, TransientError
from ematix_flow.failpoints import failpoint
from ematix_flow.records import KNOWN_REJECTS, TaskReport
from ematix_flow.run.spark.map_batches import map_batches
from ematix_flow.run.stage.conform import conform
from ematix_flow.run.stage.transport import MORE, report_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from ematix_flow.connect.base.session import Split
    from ematix_flow.connect.base.source import SqlSource
    from ematix_flow.connect.base.stage import StageSpec
    from ematix_flow.connect.base.target import RelayTarget, TargetSystem
    from ematix_flow.run.stage.conform import Rules
    from ematix_flow.run.stage.transport import Carrier

PartitionTask: TypeAlias = "Callable[..., TaskReport]"
"""What can be staged on its own: called with its partition and attempt; `cancel_check=` may stop it between rows."""

REPORT = (
    "partition long, attempt long, rows long, rejected long, path string, reject_path string, first_reject string, "
    "events string, left_out string"
)


@dataclass(frozen=True, slots=True)
class StageWork:
    """What every task of a load is given."""

    target: TargetSystem
    spec: StageSpec
    rules: Rules
    count_to: str = ""
    """Folder in which an attempt keeps the number of rows it has staged so far."""
    carrier: Carrier | None = None
    """How parts come to the driver, where tasks cannot write to its disk."""


def stage_partitions(
    spark: SparkSession, partitions: Sequence[PartitionTask], at_once: int | None = None, carrier: Carrier | None = None
) -> tuple[TaskReport, ...]:
    """Stage each partition in a task of its own; where only some may run `at_once`, a task stages several in turn."""
    if not partitions:
        return ()

    def task(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                # One attempt of a task may stage several partitions, each of which requires a number that no other has.
                yield report_batch(partitions[number]((number, _attempt()[1] * len(partitions) + number)))

    return _collect(spark.range(0, len(partitions), 1, min(len(partitions), at_once or len(partitions))), task, carrier)


def split_partitions(
    work: StageWork, source: SqlSource, splits: Sequence[Split], *, relayed: bool = False
) -> tuple[PartitionTask, ...]:
    """Return the splits of a source as partitions; `relayed` where the target relays them."""
    return tuple(partial(stage_split, work, source, split, relayed=relayed) for split in splits)


def stage_frame(frame: DataFrame, work: StageWork, at_once: int | None = None) -> tuple[TaskReport, ...]:
    """Stage the rows of a frame, one attempt per partition, of which there are at most as many as may run `at_once`."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        yield report_batch(stage_batches(work, *_attempt(), batches))

    return _collect(frame if at_once is None else frame.coalesce(at_once), task, work.carrier)


def _collect(
    frame: DataFrame,
    task: Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]],
    carrier: Carrier | None,
) -> tuple[TaskReport, ...]:
    with _interruptible(frame.sparkSession):
        if carrier is None:
            rows = map_batches(frame, task, REPORT).collect()
            reports = tuple(report_of(row.asDict()) for row in rows)
        else:
            carried = map_batches(frame, carrier.sending(task), f"{REPORT}{MORE}")
            # Through a store only reports come back; with results the driver has one partition in memory at a time.
            reports = carrier.receive(carried.collect() if carrier.store else carried.toLocalIterator())
    failpoint("stage.collected")
    return reports


@contextmanager
def _interruptible(spark: SparkSession) -> Iterator[None]:
    """Interrupt the jobs of this block when the run is to stop."""
    from ematix_flow.run.spark.job_names import described, description

    tag = f"flow-{uuid.uuid4().hex}"
    if type(spark).__module__.startswith("pyspark.sql.connect"):

        def interrupt() -> None:
            spark.interruptTag(tag)

        spark.addTag(tag)
        try:
            with described(spark), current().waking(interrupt):
                yield
        finally:
            spark.removeTag(tag)
        return
    # A classic session keeps the tags of its own API for itself; groups of jobs it shares with all threads.
    context = spark.sparkContext
    context.setJobGroup(tag, description(), True)  # noqa: FBT003 - as Spark has it
    try:
        with current().waking(lambda: context.cancelJobGroup(tag)):
            yield
    finally:
        context.setLocalProperty("spark.jobGroup.id", cast("str", None))


def _attempt() -> tuple[int, int]:
    """Return the partition and the attempt that this task is.

    Numbers that no other has where the engine does not report them.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    # Sail has tasks, but no task context: with equal numbers they would write over each other's rows.
    return (context.partitionId(), context.taskAttemptId()) if context else (randbits(30), randbits(40))


def stage_split(
    work: StageWork,
    source: SqlSource,
    split: Split,
    task_attempt: tuple[int, int],
    *,
    relayed: bool,
    cancel_check: Callable[[], None] | None = None,
) -> TaskReport:
    """Stage one split of a source as a partition and attempt; `cancel_check` may stop it between rows."""
    if relayed:
        try:
            return _relay_split(work, source, split, task_attempt, cancel_check)
        except TransientError:
            raise
        except RunError:
            # Nothing was staged. Reading the rows finds the bad ones, or fails with better words.
            pass
    return stage_batches(work, *task_attempt, source.read(split), cancel_check)


def _relay_split(
    work: StageWork,
    source: SqlSource,
    split: Split,
    task_attempt: tuple[int, int],
    cancel_check: Callable[[], None] | None,
) -> TaskReport:
    partition, attempt = task_attempt
    failpoint("stage.task_start")
    target = cast("RelayTarget", work.target)  # only such targets have splits to relay
    rows = target.relay(source, split, work.spec, attempt, lambda sent: _count(work, task_attempt, sent, cancel_check))
    failpoint("stage.after_task_commit")
    failpoint("stage.before_return")
    return TaskReport(partition, attempt, rows)


def stage_batches(
    work: StageWork,
    partition: int,
    attempt: int,
    batches: Iterable[pa.RecordBatch],
    cancel_check: Callable[[], None] | None = None,
) -> TaskReport:
    """Stage the batches of one attempt and return its report."""
    failpoint("stage.task_start")
    stager = work.target.stager(work.spec, partition, attempt)
    rows = rejected = 0
    first = ""
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            good, bad = conform(batch, work.rules)
            if good.num_rows:
                stager.write(good)
            if bad is not None:
                stager.reject(bad)
                first = first or describe_reject(bad)
                rejected += bad.num_rows
            rows += good.num_rows
            _count(work, (partition, attempt), rows, cancel_check)
            failpoint("stage.mid_rows")
        path, reject_path = stager.finish()
        failpoint("stage.after_task_commit")
    except BaseException:
        stager.abandon()
        raise
    failpoint("stage.before_return")
    return TaskReport(partition, attempt, rows, rejected, path, reject_path, first)


def stage_rejects(work: StageWork, rejects: pa.Table) -> TaskReport:
    """Stage rejects that were known before the rows, as a part of their own."""
    return _stage_reject_batches(work, (KNOWN_REJECTS, 0), rejects.to_batches())


def stage_reject_frame(work: StageWork, rejects: DataFrame, at_once: int | None = None) -> tuple[TaskReport, ...]:
    """Stage rejects that tasks find, one attempt per partition, of which there are at most as many as may run `at_once`."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        partition, attempt = _attempt()
        yield report_batch(_stage_reject_batches(work, (KNOWN_REJECTS + partition, attempt), batches))

    return _collect(rejects if at_once is None else rejects.coalesce(at_once), task, work.carrier)


def _stage_reject_batches(
    work: StageWork, task_attempt: tuple[int, int], batches: Iterable[pa.RecordBatch]
) -> TaskReport:
    stager = work.target.stager(work.spec, *task_attempt)
    rejected, first = 0, ""
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            stager.reject(batch)
            first = first or describe_reject(batch)
            rejected += batch.num_rows
        path, reject_path = stager.finish()
    except BaseException:
        stager.abandon()
        raise
    return TaskReport(*task_attempt, 0, rejected, path, reject_path, first)


def _count(work: StageWork, task_attempt: tuple[int, int], rows: int, cancel_check: Callable[[], None] | None) -> None:
    """Report how many rows an attempt has staged, and check whether it shall go on."""
    if work.count_to and Path(work.count_to).is_dir():
        partition, attempt = task_attempt
        (Path(work.count_to) / f"{partition}-{attempt}").write_text(str(rows))
    if cancel_check is not None:
        cancel_check()


def describe_reject(rejects: pa.RecordBatch) -> str:
    """Return the first rejected row as one line for an error message."""
    row: dict[str, Any] = rejects.slice(0, 1).to_pylist()[0]
    position = f" at {row['source_position']}" if row["source_position"] else ""
    return f"{row['column_name']}: {row['reason']}{position}; row {row['row_json'][:300]}"


def report_batch(report: TaskReport) -> pa.RecordBatch:
    """Return a report, and what was noted of the messages that were read for it, as a one-row batch for the driver."""
    import pyarrow as pa

    values: dict[str, int | str] = {
        "partition": report.partition,
        "attempt": report.attempt,
        "rows": report.rows,
        "rejected": report.rejected,
        "path": report.path,
        "reject_path": report.reject_path,
        "first_reject": report.first_reject,
        "events": drain_events(),
        "left_out": drain_left_out(),
    }
    arrays = [pa.array([value], pa.int64() if isinstance(value, int) else pa.string()) for value in values.values()]
    return pa.RecordBatch.from_arrays(arrays, names=list(values))

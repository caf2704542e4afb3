"""Stages files and rows in memory by tasks that read, shape and stage in one go, and queries their highest value.

The same tasks run in threads of this process and in tasks of Spark; no row passes through the JVM.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ematix_flow.connect.types.frames import loaded_table
from ematix_flow.plan.bounds import highest_of_all_sql
from ematix_flow.plan.columns import SOURCE_VIEW
from ematix_flow.run.read.arrival import numbered_partitions
from ematix_flow.run.read.file_partitions import ROWS, FilePartition, plain, split_files, tasks_for
from ematix_flow.run.stage.tasks import stage_batches
from ematix_flow.run.transform.in_task import Shaper, shaped_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ematix_flow.connect.files.source import FileSet
    from ematix_flow.records import TaskReport
    from ematix_flow.run.stage.tasks import PartitionTask, StageWork

TOGETHER = 16 << 20
"""Bytes up to which neighbouring small files are staged together: to begin a task takes longer than to read them."""


SHAPED_TOGETHER = 4 << 20
"""Bytes up to which the rows of small files are shaped by one query: to run it takes longer than to read them."""


def files_to_stage(
    work: StageWork, files: FileSet, sql: str, *, ordered: bool = False, slots: Callable[[], int]
) -> tuple[PartitionTask, ...]:
    """Return the tasks of a file set, with small neighbours put together; `ordered` where rows need their position."""
    partitions = split_files(files, slots=slots)
    numbered = numbered_partitions(partitions, files.paths) if ordered else partitions
    return tuple(partial(_stage, work, sql, group) for group in _groups(numbered, tasks_for(numbered, slots)))


def partitions_to_stage(work: StageWork, partitions: Sequence[FilePartition], sql: str) -> tuple[PartitionTask, ...]:
    """Return a task for each partition, to be staged by itself."""
    return tuple(partial(_stage, work, sql, (partition,)) for partition in partitions)


def frame_to_stage(work: StageWork, frame: Any, sql: str) -> tuple[PartitionTask, ...]:
    """Return the rows of a frame in memory as one task."""
    return (partial(_stage, work, sql, (frame_partition(frame),)),)


def frame_partition(frame: Any) -> FilePartition:
    """Return the rows of a frame as a partition that is read from memory."""
    return FilePartition("", 0, partial(_slices, loaded_table(frame)))


def highest_in(partitions: Iterable[FilePartition], some_sql: str) -> tuple[str | None, int]:
    """Return the highest value as text and the number of NULLs, from what `some_sql` answers for each table of rows."""
    with Shaper(some_sql) as shaper:
        answers = [shaper.answer(table) for table in _tables(partitions) if table.num_rows]
    if not answers:
        return None, 0
    with Shaper(highest_of_all_sql(SOURCE_VIEW)) as shaper:
        row = shaper.answer(pa.concat_tables(answers, promote_options="permissive"))
    highest, nulls = (column[0].as_py() for column in row.columns)
    return highest, nulls or 0


def _stage(
    work: StageWork,
    sql: str,
    partitions: Sequence[FilePartition],
    task_attempt: tuple[int, int],
    cancel_check: Callable[[], None] | None = None,
) -> TaskReport:
    with closing(shaped_batches(sql, _together(_tables(partitions)))) as batches:
        return stage_batches(work, *task_attempt, batches, cancel_check)


def _tables(partitions: Iterable[FilePartition]) -> Iterator[pa.Table]:
    for partition in partitions:
        yield from partition.read()


def _together(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Return small neighbours of one layout as one table."""
    held: list[pa.Table] = []
    size = 0
    for table in tables:
        if held and (size + table.nbytes > SHAPED_TOGETHER or table.schema != held[0].schema):
            yield pa.concat_tables(held)
            held, size = [], 0
        held.append(table)
        size += table.nbytes
    if held:
        yield pa.concat_tables(held)


def _slices(table: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, ROWS):
        some = table.slice(start, ROWS)
        yield pa.table([plain(column) for column in some.columns], names=table.column_names)


def _groups(partitions: Sequence[FilePartition], most: int) -> Iterator[tuple[FilePartition, ...]]:
    """Return neighbours that are staged together, in hardly more groups than `most`."""
    enough = max(TOGETHER, sum(partition.size for partition in partitions) // most + 1)
    group: list[FilePartition] = []
    size = 0
    for partition in partitions:
        if group and size + partition.size > enough:
            yield tuple(group)
            group, size = [], 0
        group.append(partition)
        size += partition.size
    if group:
        yield tuple(group)

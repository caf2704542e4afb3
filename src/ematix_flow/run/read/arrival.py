"""Numbers rows by their position in a stream, to know the last row of a key; a batch always gets the same numbers.

Messages of one line, such as a partition, keep their order, and where there is only one, partitions of it follow each
other. Between lines the time of a message counts, or the latest time before it in its line where that is later; at one
time, the number of the line.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ematix_flow.connect.base.event_time import EVENT_TIME
from ematix_flow.plan.columns import ORDER, ORDER_AT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ematix_flow.run.read.file_partitions import FilePartition

ROOM = 1 << 33
"""More rows than a line of one batch has."""

MAX_PARTITIONS = 1 << 12
"""More partitions than a file has."""

_BEFORE_ALL = -(1 << 62)


@dataclass
class Arrival:
    """Numbers the messages of one partition, which has whole lines."""

    partition: int
    line: str
    """Column that names the line; empty where partitions follow each other."""
    latest: dict[Any, int] = field(default_factory=dict)
    rows: dict[Any, int] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns that are added."""
        return order_of(self.line)

    def numbered(self, messages: pa.Table) -> pa.Table:
        """Return messages with the columns of their position."""
        if not self.line:
            return messages.append_column(ORDER, self._next(self.partition, self.partition, messages.num_rows))
        lines, times = messages.column(self.line), pc.cast(messages.column(EVENT_TIME), pa.int64())
        chosen = [(one, pc.indices_nonzero(pc.equal(lines, one))) for one in pc.unique(lines).to_pylist()]
        at = [self._risen(one, times.take(rows)) for one, rows in chosen]
        number = [self._next(one, one if isinstance(one, int) else self.partition, len(rows)) for one, rows in chosen]
        back = pc.sort_indices(_joined([rows for _, rows in chosen]))
        table = messages.append_column(ORDER_AT, _joined(at).take(back))
        return table.append_column(ORDER, _joined(number).take(back))

    def _next(self, line: Any, number: int, many: int) -> pa.Array:
        first = number * ROOM + self.rows.get(line, 0)
        self.rows[line] = self.rows.get(line, 0) + many
        return pa.array(range(first, first + many), pa.int64())

    def _risen(self, line: Any, times: pa.ChunkedArray) -> pa.Array:
        """Return times that never fall within a line."""
        start = self.latest.get(line, _BEFORE_ALL)
        risen = pc.cumulative_max(pc.fill_null(times.combine_chunks(), _BEFORE_ALL), start=start)
        self.latest[line] = risen[-1].as_py()
        return risen


def order_of(line: str) -> tuple[str, ...]:
    """Return the names of the columns that define the order of messages of such lines."""
    return (ORDER_AT, ORDER) if line else (ORDER,)


def in_order(rows: pa.Table, order: pa.Table) -> pa.Table:
    """Return rows in the order that the columns of another table define."""
    by = [(name, "ascending") for name in order.column_names]
    return rows.take(pc.sort_indices(order, sort_keys=by))


def numbered_rows(rows: pa.Table) -> pa.Table:
    """Return rows in memory with the column of their position."""
    return rows.append_column(ORDER, pa.array(range(rows.num_rows), pa.int64()))


def numbered_partitions(partitions: Sequence[FilePartition], paths: Sequence[str]) -> list[FilePartition]:
    """Return partitions whose rows have the column of their position: by path, then by row of a file."""
    first = {path: number * MAX_PARTITIONS for number, path in enumerate(paths)}
    numbered = []
    for partition in partitions:
        numbered.append(replace(partition, read=partial(_numbered, partition.read, first[partition.path])))
        first[partition.path] += 1
    return numbered


def _numbered(read: Callable[[], Iterator[pa.Table]], partition: int) -> Iterator[pa.Table]:
    arrival = Arrival(partition, "")
    for table in read():
        yield arrival.numbered(table)


def _joined(arrays: Sequence[Any]) -> pa.Array:
    return pa.concat_arrays([one.combine_chunks() if isinstance(one, pa.ChunkedArray) else one for one in arrays])

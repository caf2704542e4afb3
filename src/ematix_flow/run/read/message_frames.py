"""Messages of a stream as frames that tasks read and decode; only the types of their fields come to the driver."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ematix_flow.connect.base.event_time import EVENT_TIME
from ematix_flow.connect.base.stream_source import MESSAGE_OFFSET, VALUE
from ematix_flow.connect.types.arrow import REJECTS
from ematix_flow.plan.columns import POSITION
from ematix_flow.plan.sql.user.row_errors import ROW
from ematix_flow.run.read.arrival import ROOM, Arrival, order_of
from ematix_flow.run.read.file_partitions import FilePartition
from ematix_flow.run.read.frames import partition_frame
from ematix_flow.run.read.infer_messages import rejects_of
from ematix_flow.run.read.merged_types import TEXT, as_type, inferred_types, merged
from ematix_flow.run.read.message_ranges import METADATA_TYPES
from ematix_flow.run.spark.map_batches import map_batches
from ematix_flow.run.transform.frame_sql import Typed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from pyspark.sql import DataFrame, Row, SparkSession

    from ematix_flow.connect.base.columns import SourceColumn
    from ematix_flow.connect.base.stream_source import MessagePartition
    from ematix_flow.run.read.infer_messages import UnreadMessage

    Reader = Callable[[bytes], dict[str, Any] | str]

BYTES = 8 << 20
"""About as much of the messages goes to Java at a time."""

REPORT = pa.schema(
    [
        pa.field("types", pa.binary()),
        pa.field("rows", pa.int64()),
        pa.field("bad", pa.int64()),
        pa.field("newest", pa.timestamp("us", tz="UTC")),
        pa.field("partition", pa.int32()),
    ]
)
"""What a task reports of its messages."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of raw messages besides payload, position and number."""

    metadata_columns: tuple[SourceColumn, ...]
    line: str = ""
    """Column that names the line that a message is in; empty where all messages have one order."""
    timed: bool = False
    """Whether messages have a time."""

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of raw messages."""
        more = [pa.field(column.name, METADATA_TYPES[column.family]) for column in self.metadata_columns]
        if self.timed and all(column.name != EVENT_TIME for column in self.metadata_columns):
            more.append(pa.field(EVENT_TIME, METADATA_TYPES["timestamp_tz"]))
        order = [pa.field(name, pa.int64()) for name in (*order_of(self.line), ROW)]
        return pa.schema([pa.field(VALUE, pa.binary()), pa.field(MESSAGE_OFFSET, pa.string()), *more, *order])

    def types(self, inferred: InferredSchema) -> dict[str, pa.DataType]:
        """Return the types of the metadata and of the fields of messages."""
        return {column.name: METADATA_TYPES[column.family] for column in self.metadata_columns} | inferred.types


@dataclass(frozen=True, slots=True)
class InferredSchema:
    """What the messages of a frame show, without any of them."""

    types: dict[str, pa.DataType] = field(default_factory=dict)
    rows: int = 0
    bad: int = 0
    """Messages that are no rows."""
    newest: datetime | None = None
    """The newest event time."""

    def with_messages(
        self, batch: pa.RecordBatch, types: Mapping[str, pa.DataType], rows: int, bad: int
    ) -> InferredSchema:
        """Return what these messages and some more show, of which so many are rows of some types and so many are none."""
        newest = self.newest
        if EVENT_TIME in batch.schema.names:
            latest = pc.max(batch.column(EVENT_TIME)).as_py()
            newest = latest if newest is None else max(newest, latest or newest)
        return InferredSchema(merged(self.types, types), self.rows + rows, self.bad + bad, newest)


def typed_messages(
    spark: SparkSession, partitions: Sequence[MessagePartition], layout: Layout, read: Reader
) -> tuple[Typed, InferredSchema]:
    """Return the messages of partitions as rows with the types that they show; Spark reads them once."""
    raw = raw_frame(spark, partitions, layout).persist()
    try:
        inferred = infer_schema(raw, read)
    except BaseException:
        raw.unpersist()
        raise
    bad = unreadable_frame(raw, read, layout) if inferred.bad else None
    rows = typed_frame(raw, read, inferred, layout)
    return Typed(
        raw, rows, layout.types(inferred), order_of(layout.line), empty=not inferred.rows, unreadable=bad
    ), inferred


def raw_frame(spark: SparkSession, partitions: Sequence[MessagePartition], layout: Layout) -> DataFrame:
    """Return the messages of partitions as they are, with their positions and their order; tasks read them."""
    return message_frame(spark, partitions, partial(numbered_messages, layout=layout), layout.schema)


def message_frame(
    spark: SparkSession,
    partitions: Sequence[MessagePartition],
    read: Callable[[MessagePartition, int], Iterator[pa.Table]],
    schema: pa.Schema,
) -> DataFrame:
    """Return what tasks read of partitions, each with its number, as a frame."""
    tasks = [
        FilePartition(partition.label, partition.size, partial(read, partition, number))
        for number, partition in enumerate(partitions)
    ]
    return partition_frame(spark, tasks, schema)


def infer_schema(raw: DataFrame, read: Reader) -> InferredSchema:
    """Return what messages show; every task returns the types of its fields and some numbers."""
    from pyspark.sql.pandas.types import from_arrow_schema

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        inferred = InferredSchema()
        for batch in batches:
            decoded, _, wrong = decoded_messages(batch, read)
            inferred = inferred.with_messages(batch, inferred_types(decoded), len(decoded), len(wrong))
        context = TaskContext.get()
        yield report_of(inferred, context.partitionId() if context else 0)

    return reported(map_batches(raw, task, from_arrow_schema(REPORT)).collect())


def reported(reports: Sequence[Row]) -> InferredSchema:
    """Return what tasks report of their messages as one value."""
    types: dict[str, pa.DataType] = {}
    for row in sorted(reports, key=lambda one: one.partition):
        types = merged(types, {field.name: field.type for field in pa.ipc.read_schema(pa.py_buffer(row.types))})
    # Spark gives timestamps without a zone, in that of this machine.
    times = [row.newest.astimezone(UTC) for row in reports if row.newest is not None]
    return InferredSchema(
        types, sum(row.rows for row in reports), sum(row.bad for row in reports), max(times, default=None)
    )


def report_of(inferred: InferredSchema, partition: int) -> pa.RecordBatch:
    """Return what a task reports of its messages."""
    schema = pa.schema([pa.field(name, kind) for name, kind in inferred.types.items()])
    values = [schema.serialize().to_pybytes(), inferred.rows, inferred.bad, inferred.newest, partition]
    return pa.RecordBatch.from_arrays(
        [pa.array([value], field.type) for value, field in zip(values, REPORT, strict=True)], schema=REPORT
    )


def typed_schema(types: Mapping[str, pa.DataType], layout: Layout) -> pa.Schema:
    """Return the columns of messages as rows: fields, metadata, position and order."""
    fields = [pa.field(name, TEXT if pa.types.is_null(kind) else kind) for name, kind in types.items()]
    return pa.schema(
        [*fields, *(pa.field(name, layout.schema.field(old).type) for name, old in _carried(types, layout))]
    )


def typed_batch(
    columns: Sequence[pa.Array], there: pa.RecordBatch, schema: pa.Schema, layout: Layout
) -> pa.RecordBatch:
    """Return the fields of messages with what was carried along."""
    carried = [there.column(old) for _, old in _carried(schema.names[: len(columns)], layout)]
    return pa.RecordBatch.from_arrays([*columns, *carried], schema=schema)


def _carried(fields: Collection[str], layout: Layout) -> list[tuple[str, str]]:
    """Return the columns of rows that are columns of messages, each with its name there."""
    metadata = [(column.name, column.name) for column in layout.metadata_columns if column.name not in fields]
    order = (*order_of(layout.line), ROW)
    return [*metadata, (POSITION, MESSAGE_OFFSET), *((name, name) for name in layout.schema.names if name in order)]


def typed_frame(raw: DataFrame, read: Reader, inferred: InferredSchema, layout: Layout) -> DataFrame:
    """Return messages as rows with the types that all of them show, their positions and their order."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = typed_schema(inferred.types, layout)
    fields = [schema.field(number) for number in range(len(inferred.types))]

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            decoded, there, _ = decoded_messages(batch, read)
            if decoded:
                columns = [as_type([row.get(field.name) for row in decoded], field.type) for field in fields]
                yield typed_batch(columns, there, schema, layout)

    return map_batches(raw, task, from_arrow_schema(schema, prefer_timestamp_ntz=True))


def unreadable_frame(raw: DataFrame, read: Reader, layout: Layout) -> DataFrame:
    """Return the messages that are no rows as rejects."""
    from pyspark.sql.pandas.types import from_arrow_schema

    names = [column.name for column in layout.metadata_columns]

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            _, _, wrong = decoded_messages(batch, read, names)
            if wrong:
                yield from rejects_of(wrong).to_batches()

    return map_batches(raw, task, from_arrow_schema(REJECTS))


def numbered_messages(partition: MessagePartition, number: int, layout: Layout) -> Iterator[pa.Table]:
    """Return the messages of a partition, numbered, some megabytes at a time."""
    arrival, count, schema = Arrival(number, layout.line), number * ROOM, layout.schema
    for read in partition.read():
        numbered = arrival.numbered(read)
        rows = numbered.append_column(ROW, pa.array(range(count, count + read.num_rows), pa.int64()))
        count += read.num_rows
        many = max(1, rows.num_rows * BYTES // max(rows.nbytes, 1))
        for start in range(0, rows.num_rows, many):
            yield rows.slice(start, many).select(schema.names).cast(schema)


def decoded_messages(
    batch: pa.RecordBatch, read: Reader, metadata_columns: Sequence[str] = ()
) -> tuple[list[dict[str, Any]], pa.RecordBatch, list[UnreadMessage]]:
    """Return rows, the messages that they were made of, and the messages that are no rows."""
    there = batch.filter(pc.is_valid(batch.column(VALUE)))
    payloads = there.column(VALUE).to_pylist()
    decoded = [read(payload) for payload in payloads]
    good = [one for one in decoded if not isinstance(one, str)]
    if len(good) == len(decoded):
        return good, there, []
    positions = there.column(MESSAGE_OFFSET).to_pylist()
    wrong = [
        (one, position, payload, {name: there.column(name)[number].as_py() for name in metadata_columns})
        for number, (one, position, payload) in enumerate(zip(decoded, positions, payloads, strict=True))
        if isinstance(one, str)
    ]
    return good, there.filter(pa.array([not isinstance(one, str) for one in decoded])), wrong

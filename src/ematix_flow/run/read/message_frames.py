"""Messages of a stream as frames that tasks read and decode; only the types of their fields come to the driver."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ematix_flow.connect.base.event_time import EVENT_TIME
from ematix_flow.connect.base.stream_source import PLACE, VALUE
from ematix_flow.connect.types.arrow import REJECTS
from ematix_flow.plan.columns import POSITION
from ematix_flow.plan.sql.user.row_errors import ROW
from ematix_flow.run.read.arrival import ROOM, Arrival, order_of
from ematix_flow.run.read.file_partitions import FilePiece
from ematix_flow.run.read.frames import piece_frame
from ematix_flow.run.read.infer_messages import rejects_of
from ematix_flow.run.read.merged_types import TEXT, as_type, merged, shown_types
from ematix_flow.run.read.message_ranges import BESIDE
from ematix_flow.run.spark.task_folder import in_this_folder
from ematix_flow.run.transform.frame_sql import Typed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession

    from ematix_flow.connect.base.columns import SourceColumn
    from ematix_flow.connect.base.stream_source import MessagePiece

    Reader = Callable[[bytes], dict[str, Any] | str]

BYTES = 8 << 20
"""About as much of the messages goes to Java at a time."""

_TYPES = "types binary, rows bigint, bad bigint, newest timestamp, piece int"


@dataclass(frozen=True, slots=True)
class Layout:
    """What the frame of raw messages has beside payload, place and number."""

    beside: tuple[SourceColumn, ...]
    line: str = ""
    """Column that names the line that a message is in; empty where all messages have one order."""
    timed: bool = False
    """Whether messages have a time."""

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of raw messages."""
        more = [pa.field(column.name, BESIDE[column.family]) for column in self.beside]
        if self.timed and all(column.name != EVENT_TIME for column in self.beside):
            more.append(pa.field(EVENT_TIME, BESIDE["timestamp_tz"]))
        order = [pa.field(name, pa.int64()) for name in (*order_of(self.line), ROW)]
        return pa.schema([pa.field(VALUE, pa.binary()), pa.field(PLACE, pa.string()), *more, *order])


@dataclass(frozen=True, slots=True)
class Shown:
    """What the messages of a frame show, without any of them."""

    types: dict[str, pa.DataType]
    rows: int
    bad: int
    """Messages that are no rows."""
    newest: datetime | None
    """The newest event time."""


def typed_messages(
    spark: SparkSession, pieces: Sequence[MessagePiece], layout: Layout, read: Reader
) -> tuple[Typed, Shown]:
    """Return the messages of pieces as rows with the types that they show; Spark reads them once."""
    raw = raw_frame(spark, pieces, layout).persist()
    try:
        shown = shown_by(raw, read)
    except BaseException:
        raw.unpersist()
        raise
    types = {column.name: BESIDE[column.family] for column in layout.beside} | shown.types
    bad = unreadable_frame(raw, read) if shown.bad else None
    rows = typed_frame(raw, read, shown, layout)
    return Typed(raw, rows, types, order_of(layout.line), empty=not shown.rows, unreadable=bad), shown


def raw_frame(spark: SparkSession, pieces: Sequence[MessagePiece], layout: Layout) -> DataFrame:
    """Return the messages of pieces as they are, with their places and their order; tasks read them."""
    read = [
        FilePiece(piece.shown, piece.size, partial(_numbered, piece, number, layout))
        for number, piece in enumerate(pieces)
    ]
    return piece_frame(spark, read, layout.schema)


def shown_by(raw: DataFrame, read: Reader) -> Shown:
    """Return what messages show; every task returns the types of its fields and some numbers."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        types: dict[str, pa.DataType] = {}
        rows = bad = 0
        newest = None
        for batch in batches:
            made, _, wrong = _decoded(batch, read)
            types = merged(types, shown_types(made))
            rows, bad = rows + len(made), bad + len(wrong)
            if EVENT_TIME in batch.schema.names:
                latest = pc.max(batch.column(EVENT_TIME)).as_py()
                newest = latest if newest is None else max(newest, latest or newest)
        yield _report(types, rows, bad, newest)

    found = raw.mapInArrow(in_this_folder(task), _TYPES).collect()
    types: dict[str, pa.DataType] = {}
    for row in sorted(found, key=lambda one: one.piece):
        types = merged(types, {field.name: field.type for field in pa.ipc.read_schema(pa.py_buffer(row.types))})
    times = [row.newest for row in found if row.newest is not None]
    return Shown(types, sum(row.rows for row in found), sum(row.bad for row in found), max(times, default=None))


def typed_frame(raw: DataFrame, read: Reader, shown: Shown, layout: Layout) -> DataFrame:
    """Return messages as rows with the types that all of them show, their places and their order."""
    from pyspark.sql.pandas.types import from_arrow_schema

    fields = [pa.field(name, TEXT if pa.types.is_null(kind) else kind) for name, kind in shown.types.items()]
    more = [pa.field(c.name, BESIDE[c.family]) for c in layout.beside if c.name not in shown.types]
    kept = [name for name in layout.schema.names if name in (*order_of(layout.line), ROW)]
    marks = [pa.field(POSITION, pa.string()), *(pa.field(name, pa.int64()) for name in kept)]
    schema = pa.schema([*fields, *more, *marks])

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            made, there, _ = _decoded(batch, read)
            if not made:
                continue
            columns = [as_type([row.get(field.name) for row in made], field.type) for field in fields]
            columns += [there.column(field.name) for field in more]
            columns += [there.column(PLACE), *(there.column(name) for name in kept)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return raw.mapInArrow(in_this_folder(task), from_arrow_schema(schema, prefer_timestamp_ntz=True))


def unreadable_frame(raw: DataFrame, read: Reader) -> DataFrame:
    """Return the messages that are no rows as rejects."""
    from pyspark.sql.pandas.types import from_arrow_schema

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            _, _, wrong = _decoded(batch, read)
            if wrong:
                yield from rejects_of(wrong).to_batches()

    return raw.mapInArrow(in_this_folder(task), from_arrow_schema(REJECTS))


def _numbered(piece: MessagePiece, number: int, layout: Layout) -> Iterator[pa.Table]:
    arrival, count, schema = Arrival(number, layout.line), number * ROOM, layout.schema
    for read in piece.read():
        numbered = arrival.numbered(read)
        rows = numbered.append_column(ROW, pa.array(range(count, count + read.num_rows), pa.int64()))
        count += read.num_rows
        many = max(1, rows.num_rows * BYTES // max(rows.nbytes, 1))
        for start in range(0, rows.num_rows, many):
            yield rows.slice(start, many).select(schema.names).cast(schema)


def _decoded(
    batch: pa.RecordBatch, read: Reader
) -> tuple[list[dict[str, Any]], pa.RecordBatch, list[tuple[str, str, bytes]]]:
    """Return rows, the messages that they were made of, and the messages that are no rows."""
    there = batch.filter(pc.is_valid(batch.column(VALUE)))
    payloads = there.column(VALUE).to_pylist()
    made = [read(payload) for payload in payloads]
    good = [one for one in made if not isinstance(one, str)]
    if len(good) == len(made):
        return good, there, []
    places = there.column(PLACE).to_pylist()
    wrong = [
        (one, place, payload)
        for one, place, payload in zip(made, places, payloads, strict=True)
        if isinstance(one, str)
    ]
    return good, there.filter(pa.array([not isinstance(one, str) for one in made])), wrong


def _report(types: dict[str, pa.DataType], rows: int, bad: int, newest: datetime | None) -> pa.RecordBatch:
    from pyspark import TaskContext

    context = TaskContext.get()
    schema = pa.schema([pa.field(name, kind) for name, kind in types.items()])
    values = {
        "types": pa.array([schema.serialize().to_pybytes()], pa.binary()),
        "rows": pa.array([rows], pa.int64()),
        "bad": pa.array([bad], pa.int64()),
        "newest": pa.array([newest], pa.timestamp("us", tz="UTC")),
        "piece": pa.array([context.partitionId() if context else 0], pa.int32()),
    }
    return pa.RecordBatch.from_pydict(values)

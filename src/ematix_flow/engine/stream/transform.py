"""The rows of a range of a stream, in the types they show and after the SQL of the stream; read once for all."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ematix_flow.connect.base.event_time import timed_partitions
from ematix_flow.connect.base.stream_source import from_text
from ematix_flow.connect.formats.codecs import schema_decoder
from ematix_flow.connect.lake.stream_source import LakeStream
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import Text
from ematix_flow.engine.batch.target import target_for
from ematix_flow.engine.spark.session import session_for, spark_transforms
from ematix_flow.engine.stream.frames import StreamFrames
from ematix_flow.engine.stream.lookups import held, open_lookups
from ematix_flow.engine.stream.sinks.table_schema import UNKNOWN, columns_there, creates_columns
from ematix_flow.engine.stream.sources import lake_frame
from ematix_flow.errors import PlanError, UnsupportedError, did_you_mean
from ematix_flow.plan.sql.user.as_of import BOUNDS, as_of_sql, times_of
from ematix_flow.plan.sql.user.stream import SOURCE, mentioned, row_by_row, spark_sql, tables_in
from ematix_flow.plan.sql.user.stream_columns import spark_type, strange
from ematix_flow.run.read.infer_messages import (
    TypedRows,
    json_payload,
    nameable,
    raw_payload,
    rejected_row,
    rows_of_payloads,
    typed_rows,
)
from ematix_flow.run.read.message_ranges import metadata_arrays

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from contextlib import ExitStack
    from typing import Any

    from ematix_flow.connect.base.stream_source import StreamSource
    from ematix_flow.declare.stream.stream import Stream
    from ematix_flow.engine.stream.options import StreamOptions
    from ematix_flow.plan.steps import OffsetRange
    from ematix_flow.run.transform.stream_sql import SqlStage


class StreamRows:
    """Reads and transforms ranges; the last one is cached, because every target reads it."""

    def __init__(self, stream: Stream, source: StreamSource, options: StreamOptions, resources: ExitStack) -> None:
        self._stream = stream
        self._source = source
        self._options = options
        self._read = reader_for(source)
        if stream.transform.sql is None and any(map(creates_columns, stream.targets)):
            self._read = nameable(self._read)
        self._stage = _stage(stream, source, options, resources)
        self.frames = self._framed(resources)
        """Returns the rows of SQL as frames of Spark; None where this process reads the messages."""
        self._last: tuple[str, str, frozenset[str], TypedRows] | None = None

    def _framed(self, resources: ExitStack) -> StreamFrames | None:
        if self._stage is None or not spark_transforms(self._options.load):
            return None
        spark = session_for(self._options.load)
        frames = StreamFrames(self._stream, self._source, spark, self._read, self._stage)
        resources.callback(frames.close)
        return frames

    @property
    def stage(self) -> SqlStage | None:
        """Return the SQL between source and target, where there is some."""
        return self._stage

    @property
    def transforms(self) -> bool:
        """Return whether there is SQL between source and target."""
        return self._stage is not None

    @property
    def reads_rows(self) -> bool:
        """Return whether there are rows in any case: of SQL, or of a source that has no messages."""
        return self.transforms or isinstance(self._source, LakeStream)

    def rows(self, offset_range: OffsetRange, metadata_columns: frozenset[str] = frozenset()) -> TypedRows:
        """Return the rows between two positions; `metadata_columns` is the metadata of messages without SQL."""
        key = (offset_range.begin, offset_range.end, metadata_columns)
        if self._last is None or self._last[:3] != key:
            self._last = (*key, self._read_range(offset_range, metadata_columns))
        return self._last[3]

    def of_payloads(
        self,
        messages: Sequence[tuple[bytes, str]],
        *,
        transform: bool,
        are_rows: bool = False,
        metadata: Sequence[Mapping[str, Any]] = (),
    ) -> TypedRows:
        """Return the rows of payloads, each with its location; with the SQL of the stream, or as they are.

        What `are_rows` was read before, and is JSON whatever messages are. `metadata` has what else is known of each.
        """
        columns = metadata_arrays(self._source.columns, metadata)
        typed = rows_of_payloads(messages, self._read if transform and not are_rows else rejected_row, columns)
        if self._stage is None or not transform:
            return typed
        return self._answered(self._stage, typed, lenient=True)

    def _read_range(self, offset_range: OffsetRange, metadata_columns: frozenset[str]) -> TypedRows:
        if isinstance(self._source, LakeStream):
            frame = lake_frame(self._source, offset_range, session_for(self._options.load))
            return self.transformed(TypedRows(frame.toArrow()))
        sql, times = self._stream.transform.sql, times_of(self._stream.lookups)
        named = mentioned(sql, self._stream.transform.dialect) | frozenset(times.values()) if sql else metadata_columns
        metadata_names = [column.name for column in self._source.columns if column.name in named]
        line = self._source.line
        column_names = list(dict.fromkeys([*metadata_names, *([line] if line else [])]))
        partitions = timed_partitions(
            self._source, from_text(offset_range.begin), from_text(offset_range.end), column_names
        )
        return self.transformed(typed_rows(partitions, self._read, metadata_names, line))

    def transformed(self, typed: TypedRows) -> TypedRows:
        """Return what the SQL of the stream returns for rows."""
        if self._stage is None:
            return typed
        return self._answered(self._stage, typed, lenient=self._stream.transform.on_error != "fail")

    def _answered(self, stage: SqlStage, typed: TypedRows, *, lenient: bool) -> TypedRows:
        try:
            return stage.rows(typed, lenient=lenient)
        except PlanError as error:
            raise error.at(self._stream.origin) from None


def reader_for(source: StreamSource) -> Callable[[bytes], dict[str, Any] | str]:
    """Return what reads the values of one payload of a source."""
    match source.payload_format:
        case "json":
            return json_payload
        case "raw_bytes":
            return raw_payload
        case "avro" | "protobuf":
            return schema_decoder(source).read
        case other:
            message = f"source {source.name!r} has payloads of {other}, which cannot be read yet"
            raise UnsupportedError(message)


def _stage(stream: Stream, source: StreamSource, options: StreamOptions, resources: ExitStack) -> SqlStage | None:
    transform = stream.transform
    if transform.sql is None:
        return None
    _check_tables(stream)
    from ematix_flow.run.transform.stream_sql import SqlStage

    aggregates = frozenset(one.name for one in stream.aggregate_udfs)
    times = times_of(stream.lookups)
    sql = _at_times(stream, spark_sql(transform.sql, transform.dialect, aggregates))
    spark = session_for(options.load)
    lookups = open_lookups(stream.lookups, resources, spark if spark_transforms(options.load) else None)
    columns = {name: rows.column_names for name, rows in lookups.items()}
    _check_versions(stream, {name: columns[name] for name in times})
    _check_lookups(stream, sql, columns)
    return SqlStage(
        spark,
        sql,
        row_by_row(transform.sql, transform.dialect, aggregates),
        stream.udfs,
        stream.aggregate_udfs,
        lookups,
        {name: spark_type(kind) for name, kind in transform.optional_fields.items()},
        partial(_columns_known, stream, source, options, {}),
        times,
        partial(held, lookups.values()),
    )


def _at_times(stream: Stream, sql: str) -> str:
    """Return the SQL with its lookups of versions joined at the times of rows."""
    try:
        return as_of_sql(sql, times_of(stream.lookups))
    except PlanError as error:
        raise error.at(stream.origin) from None


def _columns_known(
    stream: Stream, source: StreamSource, options: StreamOptions, cache: dict[int, frozenset[str]]
) -> Iterator[frozenset[str]]:
    """Return the columns that a batch may lack: the metadata of messages, then those of the target tables.

    Undeclared tables are inspected last and once, so that one that is away fails no batch that does without it.
    """
    declared = [target.declared_table for target in stream.targets if target.declared_table is not None]
    yield frozenset((*(c.name for c in source.columns), *(name for table in declared for name in table.column_names)))
    for number, target in enumerate(stream.targets):
        if target.declared_table is None and target.table_name is not None:
            if number not in cache:
                table = Table(*target.table_name, (Column(Text(), name=UNKNOWN),), stamped=False)
                database = target_for(target.connection, table, session_for(options.load))
                cache[number] = columns_there(target, database)
            yield cache[number]


def _check_versions(stream: Stream, columns: Mapping[str, Collection[str]]) -> None:
    """Refuse to join a lookup as of a time that has no versions."""
    for name, known in columns.items():
        missing = [bound for bound in BOUNDS if bound not in {one.lower() for one in known}]
        if missing:
            what = stream.lookups[name].table or "its query"
            message = f"lookup {name!r} has as_of=, and {what} has no column {missing[0]!r}, so it has no versions"
            hint = f"tables that mode='scd2' loads have {' and '.join(BOUNDS)}; leave as_of= out for others."
            raise PlanError(message, hint=hint, origin=stream.origin)


def _check_lookups(stream: Stream, sql: str, columns: Mapping[str, Collection[str]]) -> None:
    """Refuse a column that a lookup does not have; no message is read for that."""
    match = strange(sql, columns)
    if match is not None:
        table, column = match
        known = next(names for name, names in columns.items() if name.lower() == table)
        message = f"the SQL of stream {stream.name!r} reads {column!r}, which lookup {table!r} does not have"
        raise PlanError(message, hint=did_you_mean(column, known), origin=stream.origin)


def _check_tables(stream: Stream) -> None:
    known = {SOURCE, *stream.lookups}
    for table in sorted(tables_in(str(stream.transform.sql), stream.transform.dialect) - known):
        message = f"the SQL of stream {stream.name!r} reads {table!r}"
        raise PlanError(message, hint=did_you_mean(table, known), origin=stream.origin)

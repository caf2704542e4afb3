"""Tables as targets of streams: a range of messages goes through the load path of batches, and moves the position."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ematix_flow.commit.metadata_cleanup import forget_batches
from ematix_flow.commit.stream_offsets import OffsetStore, advanced, ended_at, position_in, remember
from ematix_flow.connect.base.stream_source import EARLIEST, as_text
from ematix_flow.connect.formats.codecs import schema_decoder
from ematix_flow.connect.formats.decoders import JsonDecoder, RawDecoder
from ematix_flow.connect.registry import open_target
from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
from ematix_flow.declare.pipeline.write import DROP
from ematix_flow.declare.stream.feature_windows import window_columns
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import Text
from ematix_flow.engine.batch.load import SourceRows, load_target
from ematix_flow.engine.batch.planner import away, request_for, token_for
from ematix_flow.engine.batch.source import OpenSource
from ematix_flow.engine.batch.staging_ahead import StagingAhead
from ematix_flow.engine.batch.target import target_for
from ematix_flow.engine.spark.session import session_for
from ematix_flow.engine.stream.dead_letter_topic import forward, has_dead_letter_topic
from ematix_flow.engine.stream.sinks.base import StreamBatch, StreamSink
from ematix_flow.engine.stream.sinks.table_schema import (
    UNKNOWN,
    columns_there,
    is_there,
    name_of,
    refuse_without_keys,
    table_of,
    with_drift,
)
from ematix_flow.errors import PlanError, did_you_mean
from ematix_flow.plan.columns import POSITION
from ematix_flow.plan.metadata_tables import history_name
from ematix_flow.plan.source import SourceValue
from ematix_flow.plan.steps import OffsetRange
from ematix_flow.run.read.message_ranges import MessageRange

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from ematix_flow.connect.base.stream_source import Position, StreamSource
    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.connect.formats.decoders import Decoder
    from ematix_flow.declare.stream.stream import Stream, StreamTarget
    from ematix_flow.engine.stream.options import StreamOptions
    from ematix_flow.engine.stream.sinks.base import StreamContext
    from ematix_flow.records import Counts
    from ematix_flow.run.read.infer_messages import TypedRows
    from ematix_flow.run.transform.frame_sql import FrameRows


EVENT_KIND = "timestamp_tz"
"""What the time of an event is read as where the table has no column for it."""

_BAD_ROWS = {"dlq": "reject", "drop": DROP}
"""What becomes of messages that are no rows, by the stream's error policy."""


@dataclass
class TableSink(StreamSink):
    """A table of a database or a lake, or a folder of files."""

    key: str
    position: Position
    known: bool
    """Whether the target stores the position already."""
    context: StreamContext
    target: StreamTarget
    offset_store: OffsetStore
    forwards: bool = False
    """Whether dead letters are copied into a topic."""
    metadata_columns: frozenset[str] | None = None
    """The metadata of messages that the table has columns for; None before that was inspected."""
    previously_loaded: bool = False
    ahead: tuple[str, StagingAhead] | None = None
    """The range that is staged while the one before it commits."""

    def load(self, end: Position) -> Counts:
        """Load the messages up to a position, and move the position there."""
        end = advanced(self.position, end)
        batch = self.batch(end)
        ahead, following = self._staging_of(batch.slot), self._following(end)
        rows = SourceRows(batch.source, batch.slot, ahead, following)
        try:
            loaded = load_target(batch.pipeline, batch.target, rows, self.context.options.load)
        finally:
            if ahead is not None:
                ahead.discard()
        self.position, self.known, self.previously_loaded = end, True, True
        if self.forwards and loaded.committed.counts.rejected:
            forward(self.context.stream, batch.pipeline, self.offset_store.database)
        return loaded.committed.counts

    def batch(self, end: Position) -> StreamBatch:
        """Return the load of the messages up to a position; they are read by the load, unless SQL needs them before."""
        offset_range = OffsetRange(self.context.source.source_id, as_text(self.position), as_text(end), self.known)
        declared, opened = self.exact(offset_range) or self._typed(offset_range)
        return self._batch_of(offset_range, declared, replace(opened, previously_loaded=self.previously_loaded))

    def _batch_of(self, offset_range: OffsetRange, declared: TargetDeclaration, opened: OpenSource) -> StreamBatch:
        pipeline = pipeline_of(self.context.stream, declared, self.context.name)
        return StreamBatch(pipeline, declared, opened, f"{offset_range.source} {offset_range.begin} {offset_range.end}")

    @property
    def reads_ahead(self) -> bool:
        """Return whether the next range is staged while one commits: where nothing of it has to be read before."""
        return self.offset_store.database.capabilities.stages_ahead and not self.reads_first

    def _following(self, begin: Position) -> StagingAhead | None:
        """Return what stages the range behind a position, if it is settled how far that goes; it is begun by the load."""
        if self.next_end is None:
            return None
        end = advanced(begin, self.next_end)
        offset_range = OffsetRange(self.context.source.source_id, as_text(begin), as_text(end), known=True)
        exact = self.exact(offset_range)
        if exact is None:
            return None
        declared, opened = exact
        batch = self._batch_of(offset_range, declared, replace(opened, previously_loaded=True))
        options = self.context.options.load
        spark = session_for(options)
        database = target_for(declared.connection, declared.table, spark)
        token = token_for(batch.pipeline, declared, batch.slot)
        load_request = request_for(batch.pipeline, declared, batch.source, database, token, options)
        following = StagingAhead(load_request, spark, options.clock)
        self.ahead = (batch.slot, following)
        return following

    def _staging_of(self, slot: str) -> StagingAhead | None:
        """Return what stages a range already; what was staged of another one is removed."""
        (staged, ahead), self.ahead = self.ahead or ("", None), None
        if ahead is not None and staged != slot:
            ahead.discard()
            return None
        return ahead

    def close(self) -> None:
        """Remove what is staged of a range that is not loaded any more."""
        self._staging_of("")

    @property
    def reads_first(self) -> bool:
        """Return whether messages have to be read before anything is known of a load."""
        return self.target.declared_table is None or self.context.rows.transforms

    def exact(self, offset_range: OffsetRange) -> tuple[TargetDeclaration, OpenSource] | None:
        """Return the messages as the table's columns, without any conversion; None where that is not possible."""
        table = self.target.declared_table
        decoder = (
            None
            if table is None or self.context.rows.transforms
            else decoder_for(self.context.source, self.target, table)
        )
        if table is None or decoder is None:
            return None
        source_names = _source_column_names(self.target, table)
        metadata_names = tuple(column.name for column in self.context.source.columns if column.name in source_names)
        message_range = MessageRange(
            self.context.source, offset_range, decoder, metadata_names, ordered=requires_order(self.target)
        )
        opened = OpenSource(
            SourceValue(self.context.source.name), self.context.source.name, stream=message_range, span=offset_range
        )
        return declaration_of(self.context.stream, self.target, table), opened

    def clean_up(self) -> None:
        """Remove old batches from the metadata of the target."""
        forget_batches(
            self.offset_store.database, self.context.name, self.offset_store.name, self.context.options.clock.now()
        )

    def _typed(self, offset_range: OffsetRange) -> tuple[TargetDeclaration, OpenSource]:
        """Return the messages as rows in the types they show."""
        if self.previously_loaded and not is_there(self.target, self.offset_store.database):
            raise away(".".join(name_of(self.target)))
        typed: TypedRows | FrameRows
        positioned = False
        if self.context.rows.frames is not None:
            typed = self.context.rows.frames.rows(offset_range)
            declared, rows = framed_declaration(
                self.context.stream, self.target, typed.rows, self.offset_store.database
            )
        else:
            typed = self.context.rows.rows(offset_range, self.inspect_metadata_columns())
            declared, rows = typed_declaration(
                self.context.stream,
                self.target,
                typed.rows,
                refuse=self.context.rows.transforms,
                database=self.offset_store.database,
            )
            rows = typed.positioned(rows)
            positioned = POSITION in rows.column_names
        value = SourceValue(self.context.source.name, frame=rows)
        return declared, OpenSource(
            value,
            self.context.source.name,
            span=offset_range,
            rejects=typed.rejects,
            ordered=requires_order(self.target),
            positioned=positioned,
        )

    def inspect_metadata_columns(self) -> frozenset[str]:
        """Return the metadata of messages that the table has columns for."""
        if self.metadata_columns is None:
            sides = frozenset(column.name for column in self.context.source.columns)
            self.metadata_columns = sides & columns_there(self.target, self.offset_store.database)
        return self.metadata_columns


def open_table_sink(
    context: StreamContext, target: StreamTarget, kind: type[TableSink], *, read_only: bool = False
) -> TableSink:
    """Return a target at its position; one without a position begins where the stream begins.

    With `read_only` nothing is changed.
    """
    source, begin = context.source, context.begin
    offset_store = offset_store_of(context.stream, target, context.options, context.name)
    refuse_without_keys(context.stream, target, offset_store.database)
    stored = position_in(offset_store, source.source_id)
    start = source.start if read_only else source.first_position
    position = start(begin) if stored is None else stored
    if stored is None and begin != EARLIEST and not read_only:
        # The end of a topic is another one a second later.
        remember(offset_store, source.source_id, position, context.options.clock)
    known = stored is not None or (begin != EARLIEST and not read_only)
    forwards = has_dead_letter_topic(context.stream)
    if forwards and stored is not None and not read_only:
        forward(context.stream, pipeline_into(context.stream, target, context.name), offset_store.database)
    previously_loaded = stored is not None and ended_at(offset_store, source.source_id, position)
    return kind(
        context.stream.key_of(target),
        position,
        known,
        context,
        target,
        offset_store,
        forwards,
        previously_loaded=previously_loaded,
    )


def offset_store_of(stream: Stream, target: StreamTarget, options: StreamOptions, name: str) -> OffsetStore:
    """Return where a target stores how far a stream has come."""
    pipeline = pipeline_into(stream, target, name)
    declared = pipeline.targets[0]
    database = target_for(target.connection, declared.table, session_for(options.load))
    token = token_for(pipeline, declared, "")
    return OffsetStore(database, history_name(pipeline, declared.table), token.pipeline, token.target)


def pipeline_into(stream: Stream, target: StreamTarget, name: str) -> Pipeline:
    """Return the pipeline into a target, as far as that is known before there are rows."""
    table = target.declared_table or Table(*name_of(target), (Column(Text(), name=UNKNOWN),), stamped=False)
    return pipeline_of(stream, declaration_of(stream, target, table), name)


def declaration_of(stream: Stream, target: StreamTarget, table: Table) -> TargetDeclaration:
    """Return a target of a stream as the load path knows targets."""
    write = replace(target.write, on_bad_row=_BAD_ROWS.get(stream.transform.on_error, target.write.on_bad_row))
    return TargetDeclaration(table, write, target.connection, files=target.files, partition_by=target.partition_by)


def typed_declaration(
    stream: Stream, target: StreamTarget, rows: pa.Table, *, refuse: bool, database: TargetSystem | None = None
) -> tuple[TargetDeclaration, pa.Table]:
    """Return the target for rows of some types, and the rows with exactly its columns."""
    from ematix_flow.run.read.arrival import numbered_rows
    from ematix_flow.run.read.infer_messages import documents

    database = database or open_target(target.connection, name_of(target))
    target = with_drift(target, database)
    table = table_of(target, database, rows.schema)
    fitted = _fitted(documents(rows), table, target.write.event_timestamp_column, refuse=refuse)
    return declaration_of(stream, target, table), numbered_rows(fitted) if requires_order(target) else fitted


def framed_declaration(
    stream: Stream, target: StreamTarget, rows: DataFrame, database: TargetSystem, *, refuse: bool = True
) -> tuple[TargetDeclaration, DataFrame]:
    """Return the target for a frame of rows, and the frame with exactly its columns; another one from a query is refused."""
    from ematix_flow.run.transform.frame_sql import arrow_schema, fitted_frame

    target = with_drift(target, database)
    schema = arrow_schema(rows)
    table = table_of(target, database, schema)
    event = target.write.event_timestamp_column
    if refuse:
        _refuse_unknown(_offered(stream, table, schema.names), table, event)
    names = [
        *table.column_names,
        *([event] if event is not None and event in schema.names and event not in table.column_names else []),
    ]
    return declaration_of(stream, target, table), fitted_frame(rows, names, ordered=requires_order(target))


def requires_order(target: StreamTarget) -> bool:
    """Return whether of several rows for one key the last has to be known; by event time all of them are versions."""
    write = target.write
    return write.mode == "merge" or (write.mode == "scd2" and write.event_timestamp_column is None)


def pipeline_of(stream: Stream, target: TargetDeclaration, name: str) -> Pipeline:
    """Return the pipeline whose loads are the batches of a stream."""
    return Pipeline(
        name=name,
        function=_no_function,
        targets=(target,),
        fan_out=stream.fan_out,
        source_connection=stream.sources[0].connection,
        origin=stream.origin,
    )


def decoder_for(source: StreamSource, target: StreamTarget, table: Table) -> Decoder | None:
    """Return what turns payloads into exactly the columns of a table; None where payloads have types themselves."""
    metadata_names = {column.name for column in source.columns}
    match source.payload_format:
        case "json":
            return JsonDecoder(
                tuple(name for name in _source_column_names(target, table) if name not in metadata_names)
            )
        case "raw_bytes":
            return RawDecoder()
        case "avro" | "protobuf":
            kinds = {column.name: column.type.kind for column in table.columns}
            names = [name for name in _source_column_names(target, table) if name not in metadata_names]
            return schema_decoder(source, tuple((name, kinds.get(name, EVENT_KIND)) for name in names))
        case _:
            return None


def _source_column_names(target: StreamTarget, table: Table) -> tuple[str, ...]:
    """Return the names of the source columns that a table is built from."""
    event = target.write.event_timestamp_column
    return tuple(dict.fromkeys([*table.column_names, *([event] if event else [])]))


def _fitted(rows: pa.Table, table: Table, event: str | None, *, refuse: bool) -> pa.Table:
    """Return rows with all columns of a table and the time of the event; another one from a query is refused."""
    import pyarrow as pa

    unknown = _unknown(rows.column_names, table, event)
    if refuse:
        _refuse_unknown(rows.column_names, table, event)
    rows = rows.drop_columns(unknown) if unknown else rows
    for name in table.column_names:
        if name not in rows.column_names:
            rows = rows.append_column(name, pa.nulls(rows.num_rows, pa.string()))
    return rows


def _unknown(names: Sequence[str], table: Table, event: str | None) -> list[str]:
    return [name for name in names if name not in (*table.column_names, event)]


def _offered(stream: Stream, table: Table, names: Sequence[str]) -> list[str]:
    """Return the columns that a table has to take; which window a row is, a feature view may leave out."""
    spared = window_columns(stream.window) if stream.window is not None and table.features is not None else ()
    return [name for name in names if name not in spared]


def _refuse_unknown(names: Sequence[str], table: Table, event: str | None) -> None:
    for name in _unknown(names, table, event):
        message = f"the stream gives {name!r}, which {table.qualified_name} does not have"
        raise PlanError(message, hint=did_you_mean(name, table.column_names))


def _no_function() -> None:
    """Stand for the function of a pipeline that has none."""

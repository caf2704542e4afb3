"""Tables as targets of streams: a stretch of messages goes down the load path of batches, and moves the position with it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ematix_flow.connect.payloads import JsonDecoder, RawDecoder
from ematix_flow.connect.stream import EARLIEST, as_text
from ematix_flow.declare.layout import Column, Table
from ematix_flow.declare.pipeline import Pipeline, TargetDeclaration
from ematix_flow.declare.types import Text
from ematix_flow.declare.write import DROP
from ematix_flow.engine.lanes import Lane
from ematix_flow.engine.loading import load_target
from ematix_flow.engine.options import Options
from ematix_flow.engine.positions import position_in, remember
from ematix_flow.engine.sourcing import OpenSource
from ematix_flow.engine.spark import session_for
from ematix_flow.engine.stream_tables import name_of, table_of, with_drift
from ematix_flow.engine.targets import target_for
from ematix_flow.errors import PlanError, did_you_mean
from ematix_flow.plan.batch import history_name
from ematix_flow.plan.source import SourceValue
from ematix_flow.plan.steps import Span
from ematix_flow.run.messages import Stretch

if TYPE_CHECKING:
    import pyarrow as pa

    from ematix_flow.connect.base import Database
    from ematix_flow.connect.payloads import Decoder
    from ematix_flow.connect.stream import Position, StreamSource
    from ematix_flow.declare.stream import Stream, StreamTarget
    from ematix_flow.engine.stream_options import StreamOptions
    from ematix_flow.engine.stream_rows import StreamRows
    from ematix_flow.records import Counts


_BAD_ROWS = {"dlq": "reject", "drop": DROP}
"""What becomes of messages that are no rows, by what the stream says about errors."""


@dataclass
class TableLane(Lane):
    """A table of a database or a lake, or a folder of files."""

    key: str
    position: Position
    known: bool
    """Whether the target remembers the position already."""
    stream: Stream
    target: StreamTarget
    name: str
    """What tokens and positions are kept under."""
    source: StreamSource
    rows: StreamRows
    database: Database
    options: StreamOptions

    def load(self, end: Position) -> Counts:
        """Load the messages up to a position, and stand there."""
        span = Span(self.source.source_id, as_text(self.position), as_text(end), self.known)
        declared, opened = self._exact(span) or self._typed(span)
        pipeline = pipeline_of(self.stream, declared, self.name)
        loaded = load_target(pipeline, declared, opened, f"{span.source} {span.begin} {span.end}", self._batch())
        self.position, self.known = end, True
        return loaded.committed.counts

    def _exact(self, span: Span) -> tuple[TargetDeclaration, OpenSource] | None:
        """Give the messages as the table's columns, converted by nobody on the way; None where that cannot be."""
        table = self.target.declared_table
        decoder = None if table is None or self.rows.transforms else decoder_for(self.source, self.target, table)
        if table is None or decoder is None:
            return None
        wanted = _wanted(self.target, table)
        beside = tuple(column.name for column in self.source.columns if column.name in wanted)
        stretch = Stretch(self.source, span, decoder, beside)
        opened = OpenSource(SourceValue(self.source.name), self.source.name, stream=stretch, span=span)
        return declaration_of(self.stream, self.target, table), opened

    def _typed(self, span: Span) -> tuple[TargetDeclaration, OpenSource]:
        """Give the messages as rows in the types they show."""
        from ematix_flow.run.typed_messages import documents

        found = self.rows.rows(span)
        rows = documents(found.rows)
        target = with_drift(self.target, self.database)
        if rows.num_columns:
            table = table_of(target, self.database, found.rows.schema)
        else:
            table = target.declared_table or _nothing(target)
        rows = _fitted(rows, table, refuse=self.rows.transforms)
        value = SourceValue(self.source.name, frame=rows)
        return declaration_of(self.stream, target, table), OpenSource(
            value, self.source.name, span=span, rejects=found.rejects
        )

    def _batch(self) -> Options:
        return Options(bus=self.options.bus, clock=self.options.clock, spark=self.options.spark)


def table_lane(  # noqa: PLR0913, PLR0917 - what a lane is made of
    stream: Stream,
    target: StreamTarget,
    source: StreamSource,
    rows: StreamRows,
    begin: str,
    options: StreamOptions,
    name: str,
) -> TableLane:
    """Give a target where it stands; one that stands nowhere begins where the stream begins."""
    placeholder = target.declared_table or _nothing(target)
    spark = session_for(Options(spark=options.spark))
    database = target_for(target.connection, placeholder, spark)
    kept_as = history_name(pipeline_of(stream, declaration_of(stream, target, placeholder), name), placeholder)
    found = position_in(database, kept_as, source.source_id)
    position = source.start(begin) if found is None else found
    if found is None and begin != EARLIEST:
        # The end of a topic is another one a second later.
        remember(database, kept_as, source.source_id, position, options.clock)
    known = found is not None or begin != EARLIEST
    return TableLane(stream.key_of(target), position, known, stream, target, name, source, rows, database, options)


def declaration_of(stream: Stream, target: StreamTarget, table: Table) -> TargetDeclaration:
    """Give a target of a stream as the load path knows targets."""
    write = replace(target.write, on_bad_row=_BAD_ROWS.get(stream.transform.on_error, target.write.on_bad_row))
    return TargetDeclaration(table, write, target.connection, files=target.files, partition_by=target.partition_by)


def pipeline_of(stream: Stream, target: TargetDeclaration, name: str) -> Pipeline:
    """Give the pipeline whose loads are the batches of a stream."""
    return Pipeline(
        name=name,
        function=_no_function,
        targets=(target,),
        fan_out=stream.fan_out,
        source_connection=stream.sources[0].connection,
        origin=stream.origin,
    )


def decoder_for(source: StreamSource, target: StreamTarget, table: Table) -> Decoder | None:
    """Give what turns payloads into exactly the columns of a table; None where payloads say their types themselves."""
    beside = {column.name for column in source.columns}
    match source.payload_format:
        case "json":
            return JsonDecoder(tuple(name for name in _wanted(target, table) if name not in beside))
        case "raw_bytes":
            return RawDecoder()
        case _:
            return None


def _wanted(target: StreamTarget, table: Table) -> tuple[str, ...]:
    """Give the names of the source columns that a table is made of."""
    event = target.write.event_timestamp_column
    return tuple(dict.fromkeys([*table.column_names, *([event] if event else [])]))


def _fitted(rows: pa.Table, table: Table, *, refuse: bool) -> pa.Table:
    """Give rows with all columns of a table; one that a query gives and the table has not is refused."""
    import pyarrow as pa

    unknown = [name for name in rows.column_names if name not in table.column_names]
    if unknown and refuse:
        message = f"the SQL of the stream gives {unknown[0]!r}, which {table.qualified_name} does not have"
        raise PlanError(message, hint=did_you_mean(unknown[0], table.column_names))
    rows = rows.drop_columns(unknown) if unknown else rows
    for name in table.column_names:
        if name not in rows.column_names:
            rows = rows.append_column(name, pa.nulls(rows.num_rows, pa.string()))
    return rows


def _nothing(target: StreamTarget) -> Table:
    """Give a table to speak of before its columns are known."""
    return Table(*name_of(target), (Column(Text(), name="nothing"),), stamped=False)


def _no_function() -> None:
    """Stand for the function of a pipeline that has none."""

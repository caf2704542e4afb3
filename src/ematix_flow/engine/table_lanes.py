"""Tables as targets of streams: a stretch of messages goes down the load path of batches, and moves the position with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.commit.upkeep import forget_batches
from ematix_flow.connect.payloads import JsonDecoder, RawDecoder
from ematix_flow.connect.stream import EARLIEST, as_text
from ematix_flow.declare.pipeline import Pipeline, TargetDeclaration
from ematix_flow.engine.lanes import Lane
from ematix_flow.engine.loading import load_target
from ematix_flow.engine.options import Options
from ematix_flow.engine.positions import Books, onward, position_in, remember
from ematix_flow.engine.sourcing import OpenSource
from ematix_flow.engine.spark import session_for
from ematix_flow.engine.targets import target_for
from ematix_flow.errors import UnsupportedError
from ematix_flow.plan.batch import history_name
from ematix_flow.plan.source import SourceValue
from ematix_flow.plan.steps import Span
from ematix_flow.run.messages import Stretch

if TYPE_CHECKING:
    from ematix_flow.connect.payloads import Decoder
    from ematix_flow.connect.stream import Position, StreamSource
    from ematix_flow.declare.stream import Stream, StreamTarget
    from ematix_flow.engine.stream_options import StreamOptions
    from ematix_flow.records import Counts


@dataclass
class TableLane(Lane):
    """A table of a database or a lake, or a folder of files."""

    key: str
    position: Position
    known: bool
    """Whether the target remembers the position already."""
    pipeline: Pipeline
    target: TargetDeclaration
    source: StreamSource
    options: StreamOptions

    def load(self, end: Position) -> Counts:
        """Load the messages up to a position, and stand there."""
        end = onward(self.position, end)
        span = Span(self.source.source_id, as_text(self.position), as_text(end), self.known)
        decoder = decoder_for(self.source, self.target)
        beside = tuple(column.name for column in self.source.columns if column.name in _wanted(self.target))
        stretch = Stretch(self.source, span, decoder, beside)
        opened = OpenSource(SourceValue(self.pipeline.source_connection), self.source.name, stream=stretch, span=span)
        loaded = load_target(self.pipeline, self.target, opened, _slot(span), batch_options(self.options))
        self.position, self.known = end, True
        return loaded.committed.counts

    def tidy(self) -> None:
        """Forget old batches in the books of the target."""
        database = target_for(self.target.connection, self.target.table, session_for(batch_options(self.options)))
        history = history_name(self.pipeline, self.target.table)
        forget_batches(database, self.pipeline.name, history, self.options.clock.now())


def table_lane(
    stream: Stream, target: StreamTarget, source: StreamSource, begin: str, options: StreamOptions, name: str
) -> TableLane:
    """Give a target where it stands; one that stands nowhere begins where the stream begins."""
    declaration = declaration_of(target)
    books = books_of(stream, target, options, name)
    found = position_in(books.database, books.name, source.source_id)
    position = source.start(begin) if found is None else found
    if found is None and begin != EARLIEST:
        # The end of a topic is another one a second later.
        remember(books.database, books.name, source.source_id, position, options.clock)
    known = found is not None or begin != EARLIEST
    pipeline = pipeline_of(stream, (declaration,), name)
    return TableLane(stream.key_of(target), position, known, pipeline, declaration, source, options)


def books_of(stream: Stream, target: StreamTarget, options: StreamOptions, name: str) -> Books:
    """Give where a target remembers how far a stream has come."""
    declaration = declaration_of(target)
    pipeline = pipeline_of(stream, (declaration,), name)
    database = target_for(declaration.connection, declaration.table, session_for(batch_options(options)))
    return Books(database, history_name(pipeline, declaration.table))


def declaration_of(target: StreamTarget) -> TargetDeclaration:
    """Give a target of a stream as the load path knows targets."""
    table = target.declared_table
    if table is None:
        message = f"target {target.place!r} of a stream has no declared table"
        raise UnsupportedError(message, hint="give target_table= a table class.")
    return TargetDeclaration(
        table, target.write, target.connection, files=target.files, partition_by=target.partition_by
    )


def pipeline_of(stream: Stream, targets: tuple[TargetDeclaration, ...], name: str) -> Pipeline:
    """Give the pipeline whose loads are the batches of a stream."""
    return Pipeline(
        name=name,
        function=_no_function,
        targets=targets,
        fan_out=stream.fan_out,
        source_connection=stream.sources[0].connection,
        origin=stream.origin,
    )


def batch_options(options: StreamOptions) -> Options:
    """Give the options of the load of one batch."""
    return Options(bus=options.bus, clock=options.clock, spark=options.spark)


def decoder_for(source: StreamSource, target: TargetDeclaration) -> Decoder:
    """Give what turns the payloads of a source into the columns that a target wants."""
    beside = {column.name for column in source.columns}
    match source.payload_format:
        case "json":
            return JsonDecoder(tuple(name for name in _wanted(target) if name not in beside))
        case "raw_bytes":
            return RawDecoder()
        case other:
            message = f"source {source.name!r} has payloads of {other}, which cannot be read yet"
            raise UnsupportedError(message, hint="json and raw_bytes can.")


def _wanted(target: TargetDeclaration) -> tuple[str, ...]:
    """Give the names of the source columns that a target is made of."""
    mapped = target.column_map or {}
    event = target.write.event_timestamp_column
    names = [mapped.get(column.name, column.name) for column in target.table.columns]
    return tuple(dict.fromkeys([*names, *([event] if event else [])]))


def _slot(span: Span) -> str:
    return f"{span.source} {span.begin} {span.end}"


def _no_function() -> None:
    """Stand for the function of a pipeline that has none."""

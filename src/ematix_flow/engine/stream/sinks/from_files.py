"""Tables as targets of streams of files: a batch is a load of the files that are new by the target's metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.commit.stream_offsets import position_in
from ematix_flow.connect.base.stream_source import as_text
from ematix_flow.declare.pipeline.write import ERROR
from ematix_flow.engine.batch.load import SourceRows, load_target
from ematix_flow.engine.batch.source import OpenSource
from ematix_flow.engine.stream.sinks.base import StreamBatch, StreamSink
from ematix_flow.engine.stream.sinks.shaped_files import (
    loaded_into,
    open_shaped_file_sink,
    pipeline_of_files,
    position_among,
)
from ematix_flow.engine.stream.sinks.table import offset_store_of, requires_order
from ematix_flow.plan.source import SourceValue

if TYPE_CHECKING:
    from ematix_flow.connect.base.stream_source import Position
    from ematix_flow.connect.files.stream_source import FileStream
    from ematix_flow.declare.pipeline.pipeline import Pipeline
    from ematix_flow.declare.stream.stream import Stream, StreamTarget
    from ematix_flow.engine.batch.options import Options
    from ematix_flow.engine.stream.options import StreamOptions
    from ematix_flow.engine.stream.sinks.base import StreamContext
    from ematix_flow.records import Counts


@dataclass
class FileTableSink(StreamSink):
    """A declared table that takes new files."""

    key: str
    position: Position
    source: FileStream
    pipeline: Pipeline
    options: Options
    ordered: bool = False
    """Whether of several rows for one key the last has to be known."""
    previously_loaded: bool = False

    def load(self, end: Position) -> Counts:
        """Load the files that the target has not loaded; those that come meanwhile may be among them."""
        batch = self.batch(end)
        loaded = load_target(batch.pipeline, batch.target, SourceRows(batch.source, batch.slot), self.options)
        self.position, self.previously_loaded = end, True
        return loaded.committed.counts

    reads_first = False

    def batch(self, end: Position) -> StreamBatch:
        """Return the load of the files that the target has not loaded."""
        value = SourceValue(self.pipeline.source_connection, path=self.source.query)
        opened = OpenSource(
            value,
            self.source.name,
            files=self.source.files,
            previously_loaded=self.previously_loaded,
            ordered=self.ordered,
        )
        # What a batch has depends on what becomes of replaced files: a load that left them out is not one that takes them.
        policy = self.pipeline.targets[0].write.on_replaced
        chosen = "" if policy == ERROR else f" {policy}"
        slot = f"{self.source.source_id} {as_text(self.position)} {as_text(end)}{chosen}"
        return StreamBatch(self.pipeline, self.pipeline.targets[0], opened, slot)


def open_file_sink(context: StreamContext, target: StreamTarget, source: FileStream) -> StreamSink:
    """Return a target at its position."""
    if target.declared_table is None or context.rows.transforms:
        return open_shaped_file_sink(context, target, source)
    pipeline = pipeline_of_files(context.stream, target, context.name)
    loaded = loaded_into(
        context.stream,
        target,
        offset_store_of(context.stream, target, context.options, context.name).database,
        context.name,
    )
    return FileTableSink(
        context.stream.key_of(target),
        position_among(source, loaded),
        source,
        pipeline,
        context.options.load,
        requires_order(target),
        previously_loaded=bool(loaded.files),
    )


def file_position(
    stream: Stream, target: StreamTarget, source: FileStream, options: StreamOptions, name: str
) -> Position | None:
    """Return the position of a target in a folder; None where a stream with state has loaded nothing into it yet."""
    offset_store = offset_store_of(stream, target, options, name)
    if stream.is_stateful:
        return position_in(offset_store, source.source_id)
    return position_among(source, loaded_into(stream, target, offset_store.database, name))

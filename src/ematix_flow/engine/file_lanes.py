"""Tables as targets of streams of files: a batch is a load of the files that the target has not seen; its books know which."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ematix_flow.connect.stream import EARLIEST, as_text
from ematix_flow.declare.write import FILES
from ematix_flow.engine.choosing import loaded_before
from ematix_flow.engine.lanes import Lane
from ematix_flow.engine.loading import load_target
from ematix_flow.engine.options import Options
from ematix_flow.engine.shaped_files import shaped_file_lane
from ematix_flow.engine.sourcing import OpenSource
from ematix_flow.engine.spark import session_for
from ematix_flow.engine.table_lanes import declaration_of, pipeline_of, placeholder
from ematix_flow.engine.targets import target_for
from ematix_flow.plan.source import SourceValue

if TYPE_CHECKING:
    from ematix_flow.connect.file_stream import FileStream
    from ematix_flow.connect.stream import Position
    from ematix_flow.declare.pipeline import Pipeline, TargetDeclaration
    from ematix_flow.declare.stream import Stream, StreamTarget
    from ematix_flow.engine.lanes import Road
    from ematix_flow.records import Counts


@dataclass
class FileLane(Lane):
    """A declared table that takes new files."""

    key: str
    position: Position
    source: FileStream
    pipeline: Pipeline
    target: TargetDeclaration
    options: Options

    def load(self, end: Position) -> Counts:
        """Load the files that the target has not seen; those that come meanwhile may be among them."""
        value = SourceValue(self.pipeline.source_connection, path=self.source.query)
        opened = OpenSource(value, self.source.name, files=self.source.files)
        slot = f"{self.source.source_id} {as_text(self.position)} {as_text(end)}"
        loaded = load_target(self.pipeline, self.target, opened, slot, self.options)
        self.position = end
        return loaded.committed.counts


def file_lane(road: Road, target: StreamTarget, source: FileStream) -> Lane:
    """Give a target where it stands."""
    if target.declared_table is None or road.rows.transforms:
        return shaped_file_lane(road, target, source)
    pipeline, declared = _load_of(road.stream, target, road.name)
    options = Options(bus=road.options.bus, clock=road.options.clock, spark=road.options.spark)
    position = file_position(road.stream, target, source, options, road.name)
    return FileLane(road.stream.key_of(target), position, source, pipeline, declared, options)


def file_position(stream: Stream, target: StreamTarget, source: FileStream, options: Options, name: str) -> Position:
    """Give where a target stands: at the folder as it is where it has all files, before all of them otherwise."""
    pipeline, declared = _load_of(stream, target, name)
    database = target_for(declared.connection, declared.table, session_for(options))
    loaded = loaded_before(pipeline, declared, database, lambda one: one.session())
    known = set() if loaded is None else {(file.key, file.etag, file.size) for file in loaded.files.values()}
    seen = source.seen()
    has_all = all((file.key, file.etag, file.size) in known for file in seen)
    return source.look_at(seen) if has_all else source.start(EARLIEST)


def _load_of(stream: Stream, target: StreamTarget, name: str) -> tuple[Pipeline, TargetDeclaration]:
    """Give the load of new files that the batches of a stream are."""
    declared = declaration_of(stream, target, target.declared_table or placeholder(target))
    declared = replace(declared, write=replace(declared.write, incremental=FILES))
    return pipeline_of(stream, declared, name), declared

"""Targets of streams of files whose rows SQL or own types shape: new files are read, shaped, loaded and recorded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ematix_flow.connect.base.stream_source import EARLIEST, as_text
from ematix_flow.declare.pipeline.write import FILES
from ematix_flow.engine.batch.inspect import wait_for
from ematix_flow.engine.batch.load import SourceRows, load_target
from ematix_flow.engine.batch.new_files import loaded_before, refuse_changed
from ematix_flow.engine.batch.planner import away
from ematix_flow.engine.batch.source import OpenSource
from ematix_flow.engine.stream.sinks.base import StreamBatch, StreamSink
from ematix_flow.engine.stream.sinks.table import (
    framed_declaration,
    offset_store_of,
    pipeline_into,
    pipeline_of,
    requires_order,
    typed_declaration,
)
from ematix_flow.engine.stream.sinks.table_schema import is_there, name_of, refuse_without_keys
from ematix_flow.plan.new_files import choose_files, refused
from ematix_flow.plan.source import SourceValue
from ematix_flow.records import Counts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ematix_flow.connect.base.stream_source import Position
    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.connect.files.stream_source import FileStream
    from ematix_flow.declare.pipeline.pipeline import Pipeline
    from ematix_flow.declare.stream.stream import Stream, StreamTarget
    from ematix_flow.engine.batch.new_files import LoadedFiles
    from ematix_flow.engine.stream.sinks.base import StreamContext
    from ematix_flow.plan.steps import FileChoice
    from ematix_flow.records import SourceFile
    from ematix_flow.run.read.infer_messages import TypedRows
    from ematix_flow.run.transform.frame_sql import FrameRows

BYTES = 64 << 20
"""Bytes of files that one batch reads at most, unless one file has more: their rows are in memory together."""


@dataclass
class ShapedFileSink(StreamSink):
    """A table, or a folder of files, that takes the rows of new files."""

    key: str
    position: Position
    context: StreamContext
    target: StreamTarget
    source: FileStream
    database: TargetSystem
    previously_loaded: bool = False

    def load(self, end: Position) -> Counts:
        """Load files that the target has not loaded, some at a time; those that come meanwhile may be among them."""
        loaded, choice, paths = self._new()
        some = some_of(choice)
        if not some.chosen:
            self.position = end
            return Counts()
        batch = self._batch(some, paths, end)
        done = load_target(
            batch.pipeline, batch.target, SourceRows(batch.source, batch.slot), self.context.options.load
        )
        self.previously_loaded = True
        known = (*loaded.files.values(), *some.chosen)
        self.position = end if some == choice else self.source.position_of(known)
        return done.committed.counts

    def batch(self, end: Position) -> StreamBatch | None:
        """Return the load of the files that the target has not loaded, as many as one batch reads."""
        _, choice, paths = self._new()
        some = some_of(choice)
        return self._batch(some, paths, end) if some.chosen else None

    def _new(self) -> tuple[LoadedFiles, FileChoice, Mapping[SourceFile, str]]:
        """Return the files that the target has, the choice among those that are there, and the paths of these."""
        loaded = loaded_into(self.context.stream, self.target, self.database, self.context.name)
        paths = {file: path for path, file in self.source.files.list_files(self.source.query)}
        choice = choose_files(loaded.scope, loaded.policy, paths, loaded.files)
        error = refused(choice)
        if error is not None:
            raise error
        return loaded, choice, paths

    def _batch(self, choice: FileChoice, there: Mapping[SourceFile, str], end: Position) -> StreamBatch:
        from ematix_flow.run.read.infer_files import file_rows

        if self.previously_loaded and not is_there(self.target, self.database):
            raise away(".".join(name_of(self.target)))
        paths = tuple(there[file] for file in choice.chosen)
        files = self.source.files.described(paths, {})
        context = self.context
        parses_text = context.rows.transforms or not self.database.capabilities.constraints
        typed: TypedRows | FrameRows
        if context.rows.frames is not None:
            typed = context.rows.frames.of_files(files)
            declared, rows = framed_declaration(context.stream, self.target, typed.rows, self.database)
        else:
            typed = context.rows.transformed(file_rows(files, infer_values=parses_text))
            declared, rows = typed_declaration(
                context.stream, self.target, typed.rows, refuse=context.rows.transforms, database=self.database
            )
        refuse_changed(self.source.files, files.paths, choice.chosen)
        declared = replace(declared, write=replace(declared.write, incremental=FILES))
        value = SourceValue(self.source.name, path=self.source.query, frame=rows)
        known = OpenSource(value, self.source.name, files=self.source.files, rejects=typed.rejects, chosen=choice)
        opened = replace(known, ordered=requires_order(self.target), previously_loaded=self.previously_loaded)
        slot = f"{self.source.source_id} {as_text(self.source.position_of(choice.chosen))} {as_text(end)}"
        return StreamBatch(pipeline_of(context.stream, declared, context.name), declared, opened, slot)


def open_shaped_file_sink(context: StreamContext, target: StreamTarget, source: FileStream) -> ShapedFileSink:
    """Return a target at its position."""
    database = offset_store_of(context.stream, target, context.options, context.name).database
    refuse_without_keys(context.stream, target, database)
    loaded = loaded_into(context.stream, target, database, context.name)
    position, previously_loaded = position_among(source, loaded), bool(loaded.files)
    return ShapedFileSink(context.stream.key_of(target), position, context, target, source, database, previously_loaded)


def position_among(source: FileStream, loaded: LoadedFiles) -> Position:
    """Return the position of a target with some files: at the folder as it is where it has all, else before all."""
    files = source.list_files()
    return source.position_of(files) if set(loaded.files.values()).issuperset(files) else source.start(EARLIEST)


def pipeline_of_files(stream: Stream, target: StreamTarget, name: str) -> Pipeline:
    """Return the pipeline whose loads of new files are the batches of a stream."""
    pipeline = pipeline_into(stream, target, name)
    (declared,) = pipeline.targets
    return replace(pipeline, targets=(replace(declared, write=replace(declared.write, incremental=FILES)),))


def loaded_into(stream: Stream, target: StreamTarget, database: TargetSystem, name: str) -> LoadedFiles:
    """Return the files that a target has."""
    pipeline = pipeline_of_files(stream, target, name)
    loaded = loaded_before(pipeline, pipeline.targets[0], database, wait_for)
    assert loaded is not None  # noqa: S101 - it goes by files
    return loaded


def some_of(choice: FileChoice) -> FileChoice:
    """Return as many of the chosen files as one batch reads."""
    total = 0
    keys: set[str] = set()
    for file in choice.chosen:
        if keys and total + file.size > BYTES:
            break
        total += file.size
        keys.add(file.key)
    new = tuple(file for file in choice.new if file.key in keys)
    # What is replaced and refused is in the plan, whatever is chosen.
    replaced = tuple(file for file in choice.replaced if file.key in keys or choice.policy != "load")
    return replace(choice, new=new, replaced=replaced)

"""Tables as targets of streams with state: a range goes into the state, and what the state gives out through the load path.

The state is a query of Structured Streaming under a folder of its own. Every batch of it is one load, and the position
that the load moves names the query and the batch. So a batch that Spark works out again is recognised by its target.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING
from uuid import uuid4

from ematix_flow.commit.stream_offsets import STATE, advanced, position_in, without_state
from ematix_flow.connect.base.stream_source import as_text
from ematix_flow.connect.config.lookup import resolve_connection
from ematix_flow.engine.batch.load import SourceRows, load_target
from ematix_flow.engine.batch.source import OpenSource
from ematix_flow.engine.batch.stager import translate_spark_error
from ematix_flow.engine.spark.session import local_reason, session_for, spark_settings
from ematix_flow.engine.stream.sinks.base import StreamSink
from ematix_flow.engine.stream.sinks.broker import is_broker
from ematix_flow.engine.stream.sinks.table import (
    TableSink,
    framed_declaration,
    open_table_sink,
    pipeline_of,
    requires_order,
)
from ematix_flow.engine.stream.state.folder import DEPLOYMENT, state_folder
from ematix_flow.engine.stream.state.manifest import NOTHING, Manifest, manifest_of, write_manifest
from ematix_flow.engine.stream.state_rows import StateRows
from ematix_flow.errors import PositionMovedError, StreamLostError, UnsupportedError
from ematix_flow.failpoints import failpoint
from ematix_flow.plan.source import SourceValue
from ematix_flow.plan.steps import OffsetRange
from ematix_flow.plan.stream.state import changes_of_state, horizon, open_windows, remedy, state_definition
from ematix_flow.records import Counts
from ematix_flow.run.streams.query import NO_RANGE, RESET, StateFolder, damaged, range_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame

    from ematix_flow.connect.base.stream_source import Position
    from ematix_flow.declare.stream.stream import Stream, StreamTarget
    from ematix_flow.engine.stream.options import StreamOptions
    from ematix_flow.engine.stream.sinks.base import StreamContext
    from ematix_flow.plan.stream.state import StateChange
    from ematix_flow.run.streams.query import StateQuery

RETAINED_RANGES = 2
"""How many ranges keep their lines: the last one may have to be read again."""


@dataclass
class StatefulSink(StreamSink):
    """A table that takes what windows, sessions and joins give out."""

    table: TableSink
    """The table itself, at its position."""
    key: str
    position: Position
    state: StateRows | None = None
    query: StateQuery | None = None
    folder: StateFolder | None = None
    last: Manifest | None = None
    """The last range that was written."""
    name: str = NO_RANGE
    """Its name."""
    counts: Counts = field(default_factory=Counts)

    def load(self, end: Position) -> Counts:
        """Take the messages up to a position into the state, and load what it gives out."""
        if self.query is None:
            self.open()
        end = advanced(self.position, end)
        if without_state(self.position) != end:
            self._take_up(without_state(self.position), end)
        counts, self.counts = self.counts, Counts()
        return counts

    def idle(self) -> bool:
        """Let time go on where a silent source no longer holds it back; return whether it did."""
        if self.state is None or self.query is None:
            return False
        if self.last is None or self.state.watermark(self.last.times, self.last.watermark) == self.last.watermark:
            return False
        self._take_up(without_state(self.position), without_state(self.position))
        return True

    def clean_up(self) -> None:
        """Remove old batches from the metadata of the target."""
        self.table.clean_up()

    def close(self) -> None:
        """Stop the query; its state stays."""
        if self.query is not None:
            self.query.stop()
        self.query = None

    def open(self) -> None:
        """Start the query; a batch that was interrupted is worked out again, and loaded unless it was."""
        from ematix_flow.run.streams.query import StateQuery

        spark = session_for(self.table.context.options.load)()
        self.state = StateRows(self.table.context, spark, self.table.inspect_metadata_columns())
        self.folder = StateFolder(
            spark, state_folder(self.table.context.stream, self.table.target, self.table.context.name, self.position)
        )
        with self._working():
            self._agree(self.folder)
            begun = self.folder.last_batch()
            self.name = NO_RANGE if begun is None else self.folder.range_of(begun) or NO_RANGE
            self.last = manifest_of(self.folder, self.name)
            self._refuse_changed(self.last)
            if self.last is not None and begun != self.folder.last_done():
                self._refuse_missing_lines(self.folder, self.last)
            self.query = StateQuery(spark, self.folder, self.state.plan, self._apply)
            self.query.start()
        last = self.folder.last_batch()
        if self.last is not None and last and self.folder.range_of(last - 1) != self.name:
            # After a restart Spark lets nothing follow from a batch before there is another one.
            self._take_up(without_state(self.position), without_state(self.position))

    def _agree(self, folder: StateFolder) -> None:
        """Refuse a state that is not the one that the position names."""
        known = self.position.get(STATE)
        if known is None and not folder.last_done():
            self._forget_leftover(folder)
            return
        actual, name = folder.query_id(), self.table.context.stream.name
        if known is None:
            message = f"the state of stream {name!r} in {folder.path} is that of a target which had loads, and this one has none"
            raise StreamLostError(message, hint=RESET)
        if actual != known["id"]:
            what = "is gone" if not actual else "is that of another stream, or was begun anew"
            raise StreamLostError(f"the state of stream {name!r} in {folder.path} {what}", hint=RESET)
        begun, done = folder.last_batch() or 0, folder.last_done() or 0
        # A batch that was begun and not finished may be in the target or not.
        if known["batch"] not in {begun, done}:
            self._refuse_moved()
            raise self._disagreement(begun)

    def _forget_leftover(self, folder: StateFolder) -> None:
        """Remove a state that no load has followed from, where an operator has moved the target since.

        Otherwise it stays: the commit of its first load may still arrive, or be resolved by the next one.
        """
        begun = folder.last_batch()
        manifest = None if begun is None else manifest_of(folder, folder.range_of(begun) or NO_RANGE)
        if manifest is not None and self.table.known and as_text(manifest.begin) != as_text(self.position):
            folder.remove(folder.path)

    def _refuse_changed(self, last: Manifest | None) -> None:
        """Refuse a declaration that does not go with what is remembered."""
        stream = self.table.context.stream
        changes = [] if last is None else changes_of_state(last.definition, state_definition(stream))
        if changes:
            raise changed_state(stream, changes)

    def _refuse_moved(self) -> None:
        """Refuse a position that the target no longer has: another process has moved it since it was read."""
        source_id = self.table.context.source.source_id
        if position_in(self.table.offset_store, source_id) != self.position:
            message = f"the position of {source_id} in the target has moved since it was read"
            raise PositionMovedError(message, hint="another process runs this stream; nothing was changed.")

    def _disagreement(self, batch: int) -> StreamLostError:
        known = self.position.get(STATE, {"batch": 0})["batch"]
        name = self.table.context.stream.name
        message = f"the state of stream {name!r} is at batch {batch}, and its target at another one, {known}"
        return StreamLostError(message, hint=f"one of both is older than the other, or was restored; {RESET}")

    def _refuse_missing_lines(self, folder: StateFolder, manifest: Manifest) -> None:
        """Refuse a range that is to be read again, and of which files are gone."""
        there = folder.sizes(f"{folder.input}/{self.name}")
        wrong = sorted(file for file, size in manifest.files.items() if there.get(file) != size)
        if wrong:
            raise damaged(folder.path, f"input/{self.name}/{wrong[0]} is gone or cut")

    def _take_up(self, begin: Position, end: Position) -> None:
        """Write the lines of a range, and let the query read them."""
        assert self.query is not None  # noqa: S101 - opened before
        # No other process writes under this name, so whoever works a batch out again reads the same lines.
        name = f"{range_number(self.name) + 1}-{uuid4().hex[:8]}"
        with self._working():
            self.last = self._written(name, begin, end)
            failpoint("state.range_written")
            self.name = name
            self.query.advance(name)
        self._forget_ranges()

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Let an error of this block stop the query; it is started again where it was interrupted."""
        try:
            yield
        except Exception as error:
            self.close()
            raise translate_spark_error(error) from error

    def _written(self, name: str, begin: Position, end: Position) -> Manifest:
        assert self.state is not None  # noqa: S101 - opened before
        assert self.folder is not None  # noqa: S101
        before = self.last or NOTHING
        summary = self.state.write(self.folder, name, (begin, end), before.times, before.watermark, before.schemas)
        files = self.folder.sizes(f"{self.folder.input}/{name}")
        # What the target has may be by the watermark of the range before.
        needed = None if before.watermark is None else before.watermark - horizon(self.state.plan)
        manifest = Manifest(
            begin,
            end,
            summary.times,
            summary.watermark,
            summary.schemas,
            rejects=summary.rejects,
            files=files,
            definition=state_definition(self.table.context.stream),
            windows=open_windows([*before.windows, *summary.windows], summary.watermark),
            time_index=None if before.time_index is None else before.time_index.after(summary.newest, begin, needed),
        )
        write_manifest(self.folder, name, manifest)
        return manifest

    def _apply(self, results: DataFrame, batch: int, name: str) -> None:
        """Load what one batch of the query gives out, unless the target has it."""
        assert self.state is not None  # noqa: S101 - opened before
        cached = results.persist()
        try:
            # The whole frame, also where the target has it: the state of the batch is written by that.
            kinds = self.state.kinds(cached)
            failpoint("state.computed")
            known = self.position.get(STATE, {"batch": 0, "range": NO_RANGE})
            if name == NO_RANGE or (batch, name) == (known["batch"], known["range"]):
                return
            if batch != known["batch"] + 1:
                raise self._disagreement(batch)
            self._load_batch(cached, kinds, batch, name)
        finally:
            cached.unpersist()

    def _load_batch(self, results: DataFrame, kinds: dict[str, int], batch: int, name: str) -> None:
        assert self.state is not None  # noqa: S101 - opened before
        assert self.folder is not None  # noqa: S101
        manifest = self.last if name == self.name else manifest_of(self.folder, name)
        assert manifest is not None  # noqa: S101 - written before the range was read
        is_first = self.folder.range_of(batch - 1) != name
        if as_text(without_state(self.position)) != as_text(manifest.begin if is_first else manifest.end):
            raise self._disagreement(batch)
        given = self.state.given_out(
            results, kinds, manifest.schemas, self.folder if manifest.rejects and is_first else None, name
        )
        before = self.position.get(STATE, {})
        deployment = {DEPLOYMENT: before[DEPLOYMENT]} if DEPLOYMENT in before else {}
        end = manifest.end | {STATE: {"id": self.folder.query_id(), "batch": batch, "range": name} | deployment}
        offset_range = OffsetRange(
            self.table.context.source.source_id, as_text(self.position), as_text(end), self.table.known
        )
        declared, rows = framed_declaration(
            self.table.context.stream,
            self.table.target,
            given.rows,
            self.table.offset_store.database,
            # Rows that come as they are may have more fields than the table.
            refuse=self.table.context.stream.transform.sql is not None or self.table.context.stream.window is not None,
        )
        if given.keeps_late:
            declared = replace(declared, write=replace(declared.write, on_bad_row="reject"))
        source = OpenSource(
            SourceValue(self.table.context.source.name, frame=rows),
            self.table.context.source.name,
            span=offset_range,
            rejects=given.rejects,
            ordered=requires_order(self.table.target),
            previously_loaded=self.table.previously_loaded,
        )
        pipeline = pipeline_of(self.table.context.stream, declared, self.table.context.name)
        slot = f"{offset_range.source} {offset_range.begin} {offset_range.end}"
        try:
            # Views that the load makes are seen in the session of the frame only, which is the query's own.
            options = replace(self.table.context.options.load, spark=results.sparkSession)
            loaded = load_target(pipeline, declared, SourceRows(source, slot), options)
        finally:
            given.release()
        failpoint("state.loaded")
        self.position, self.previously_loaded = end, True
        self.table.known = self.table.previously_loaded = True
        self.counts = _sum(self.counts, loaded.committed.counts)

    def _forget_ranges(self) -> None:
        assert self.folder is not None  # noqa: S101 - opened before
        for name in self.folder.ranges():
            if range_number(name) <= range_number(self.name) - RETAINED_RANGES:
                for path in (f"{self.folder.input}/{name}", f"{self.folder.path}/rejects/{name}"):
                    self.folder.remove(path)
                self.folder.remove(f"{self.folder.path}/ranges/{name}.json")


def open_stateful_sink(context: StreamContext, target: StreamTarget, *, read_only: bool = False) -> StatefulSink:
    """Return a target at its position, with its state; with `read_only` nothing is changed or started."""
    table = open_table_sink(context, target, TableSink, read_only=read_only)
    sink = StatefulSink(table, table.key, table.position)
    if not read_only:
        sink.open()
    return sink


def changed_state(stream: Stream, changes: Sequence[StateChange]) -> StreamLostError:
    """Return the error for a declaration that does not go with what is remembered."""
    what = "; ".join(change.text for change in changes)
    message = f"stream {stream.name!r} remembers what another declaration of it needed: {what}"
    return StreamLostError(message, hint=remedy(stream.name, changes), origin=stream.origin)


def refuse_stateless(stream: Stream, options: StreamOptions) -> None:
    """Refuse a stream with state where nothing could hold it: state is Structured Streaming's."""
    declared = {"window=": stream.window, "join=": stream.join, "deduplicate=": stream.deduplicate}
    what = next(name for name, value in declared.items() if value is not None)
    reason = local_reason(options.load)
    if reason:
        message = f"stream {stream.name!r} uses {what}, whose state Spark keeps, and {reason}"
        raise UnsupportedError(message, hint='leave engine out, or say engine = "spark".', origin=stream.origin)
    if spark_settings().remote is not None:
        message = f"stream {stream.name!r} uses {what}, which a Spark Connect server cannot run for this command"
        raise UnsupportedError(message, hint="name a master= instead of remote= under [spark].", origin=stream.origin)
    for source in stream.sources:
        kind = resolve_connection(source.connection).kind
        if kind.startswith("object_store_"):
            message = f"stream {stream.name!r} uses {what} over files, which is not built yet"
            raise UnsupportedError(message, hint="read them from a topic or a lake table.", origin=stream.origin)
    for target in stream.targets:
        if is_broker(target):
            message = f"stream {stream.name!r} uses {what}, and {stream.key_of(target)!r} is no table"
            raise UnsupportedError(message, hint="write to a table of a database or a lake.", origin=stream.origin)


def _sum(one: Counts, other: Counts) -> Counts:
    return one.with_all(asdict(other).items())

"""Tables as targets of streams with state: a range goes into the state, and what the state gives out through the load path.

The state is a query of Structured Streaming under a folder of its own. Every batch of it is one load, and the position
that the load moves names the query and the batch. So a batch that Spark works out again is recognised by its target.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ematix_flow.commit.stream_offsets import STATE, advanced
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
from ematix_flow.engine.stream.state_rows import StateRows
from ematix_flow.errors import StreamLostError, UnsupportedError
from ematix_flow.failpoints import failpoint
from ematix_flow.plan.source import SourceValue
from ematix_flow.plan.steps import OffsetRange
from ematix_flow.records import Counts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from ematix_flow.connect.base.stream_source import Position
    from ematix_flow.declare.stream.stream import Stream, StreamTarget
    from ematix_flow.engine.stream.options import StreamOptions
    from ematix_flow.engine.stream.sinks.base import StreamContext
    from ematix_flow.run.streams.query import StateFolder, StateQuery

RETAINED_RANGES = 2
"""How many ranges keep their lines: the last one may have to be read again."""

RESET = "begin again: flow stream reset NAME --from ... --confirm-state-reset."


@dataclass(frozen=True, slots=True)
class Manifest:
    """What is known of a range besides its lines: where it ends, and what its events have shown."""

    end: Position
    times: dict[str, int]
    """The newest event time of every source, in microseconds."""
    watermark: int | None
    schemas: dict[str, str]
    """The types of remembered values, by side of a join."""
    rejects: bool = False
    """Whether messages of it were no rows."""

    def text(self) -> str:
        """Return it as it is written down."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})


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
    number: int = 0
    """Its number."""
    counts: Counts = field(default_factory=Counts)

    def load(self, end: Position) -> Counts:
        """Take the messages up to a position into the state, and load what it gives out."""
        if self.query is None:
            self.open()
        end = advanced(self.position, end)
        if self._plain(self.position) != end:
            self._take_up(self._plain(self.position), end)
        counts, self.counts = self.counts, Counts()
        return counts

    def idle(self) -> bool:
        """Let time go on where a silent source no longer holds it back; return whether it did."""
        if self.state is None or self.query is None:
            return False
        if self.last is None or self.state.watermark(self.last.times, self.last.watermark) == self.last.watermark:
            return False
        self._take_up(self._plain(self.position), self._plain(self.position))
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
        from ematix_flow.run.streams.query import StateFolder, StateQuery

        spark = session_for(self.table.context.options.load)()
        self.state = StateRows(self.table.context, spark)
        self.folder = StateFolder(
            spark, state_folder(self.table.context.stream, self.table.target, self.table.context.name)
        )
        self._refuse_foreign(self.folder)
        begun = self.folder.last_batch()
        self.number = 0 if begun is None else self.folder.range_of(begun) or 0
        self.last = self._manifest(self.number)
        self.query = StateQuery(spark, self.folder, self.state.plan, self._apply)
        with self._working():
            self.query.start()
        last = self.folder.last_batch()
        if self.number and last and self.folder.range_of(last - 1) != self.number:
            # After a restart Spark lets nothing follow from a batch before there is another one.
            self._take_up(self._plain(self.position), self._plain(self.position))

    def _refuse_foreign(self, folder: StateFolder) -> None:
        """Refuse the state of another stream, and a state that is gone."""
        known = self.position.get(STATE)
        if known is None:
            return
        actual = folder.query_id()
        if actual != known["id"]:
            name = self.table.context.stream.name
            what = "is gone" if not actual else "is that of another stream, or was begun anew"
            raise StreamLostError(f"the state of stream {name!r} in {folder.path} {what}", hint=RESET)

    def _take_up(self, begin: Position, end: Position) -> None:
        """Write the lines of a range, and let the query read them."""
        assert self.query is not None  # noqa: S101 - opened before
        number = self.number + 1
        with self._working():
            self.last = self._written(number, begin, end)
            failpoint("state.range_written")
            self.number = number
            self.query.advance(number)
        self._forget_ranges()

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Let an error of this block stop the query; it is started again where it was interrupted."""
        try:
            yield
        except Exception as error:
            self.close()
            raise translate_spark_error(error) from error

    def _written(self, number: int, begin: Position, end: Position) -> Manifest:
        assert self.state is not None  # noqa: S101 - opened before
        assert self.folder is not None  # noqa: S101
        self.folder.remove(f"{self.folder.path}/ranges/{number}.json")
        before = self.last or Manifest({}, {}, None, {})
        summary = self.state.write(self.folder, number, (begin, end), before.times, before.watermark, before.schemas)
        manifest = Manifest(end, summary.times, summary.watermark, summary.schemas, summary.rejects)
        self.folder.write(f"{self.folder.path}/ranges/{number}.json", manifest.text())
        return manifest

    def _manifest(self, number: int) -> Manifest | None:
        if number == 0:
            return None
        assert self.folder is not None  # noqa: S101 - opened before
        text = self.folder.read(f"{self.folder.path}/ranges/{number}.json")
        if text is None:
            raise StreamLostError(f"range {number} of the state in {self.folder.path} is gone", hint=RESET)
        return Manifest(**json.loads(text))

    def _apply(self, results: DataFrame, batch: int, number: int) -> None:
        """Load what one batch of the query gives out, unless the target has it."""
        assert self.state is not None  # noqa: S101 - opened before
        cached = results.persist()
        try:
            # The whole frame, also where the target has it: the state of the batch is written by that.
            kinds = self.state.kinds(cached)
            failpoint("state.computed")
            known = self.position.get(STATE, {"batch": 0})["batch"]
            if number == 0 or batch == known:
                return
            if batch != known + 1:
                name = self.table.context.stream.name
                message = f"the state of stream {name!r} is at batch {batch}, and its target at {known}"
                raise StreamLostError(message, hint=RESET)
            self._load_batch(cached, kinds, batch, number)
        finally:
            cached.unpersist()

    def _load_batch(self, results: DataFrame, kinds: dict[str, int], batch: int, number: int) -> None:
        assert self.state is not None  # noqa: S101 - opened before
        assert self.folder is not None  # noqa: S101
        manifest = self._manifest(number)
        assert manifest is not None  # noqa: S101 - written before the range was read
        is_first = self.folder.range_of(batch - 1) != number
        given = self.state.given_out(
            results, kinds, manifest.schemas, self.folder if manifest.rejects and is_first else None, number
        )
        end = manifest.end | {STATE: {"id": self.folder.query_id(), "batch": batch}}
        offset_range = OffsetRange(
            self.table.context.source.source_id, as_text(self.position), as_text(end), self.table.known
        )
        declared, rows = framed_declaration(
            self.table.context.stream, self.table.target, given.rows, self.table.offset_store.database
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
        for number in self.folder.ranges():
            if number <= self.number - RETAINED_RANGES:
                for path in (f"{self.folder.input}/{number}", f"{self.folder.path}/rejects/{number}"):
                    self.folder.remove(path)
                self.folder.remove(f"{self.folder.path}/ranges/{number}.json")

    @staticmethod
    def _plain(position: Position) -> Position:
        """Return a position without the state that belongs to it."""
        return {name: value for name, value in position.items() if name != STATE}


def open_stateful_sink(context: StreamContext, target: StreamTarget, *, read_only: bool = False) -> StatefulSink:
    """Return a target at its position, with its state; with `read_only` nothing is changed or started."""
    table = open_table_sink(context, target, TableSink, read_only=read_only)
    sink = StatefulSink(table, table.key, table.position)
    if not read_only:
        sink.open()
    return sink


def refuse_stateless(stream: Stream, options: StreamOptions) -> None:
    """Refuse a stream with state where nothing could hold it: state is Structured Streaming's."""
    what = "window=" if stream.window is not None else "join="
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


def state_folder(stream: Stream, target: StreamTarget, name: str) -> str:
    """Return where the state of a target is kept: below the root of checkpoints, under the stream's name and its own."""
    root = spark_settings().checkpoint_root
    if "://" not in root:
        root = str(Path(root).expanduser().absolute())
    where = f"{resolve_connection(target.connection)!r} {target.destination}"
    readable = re.sub(r"[^\w.-]+", "-", f"{name}-{stream.key_of(target)}")[:80]
    return f"{root}/{readable}-{hashlib.sha256(f'{name} {where}'.encode()).hexdigest()[:12]}"


def forget_state(stream: Stream, target: StreamTarget, name: str, options: StreamOptions) -> None:
    """Remove what a target of a stream remembers between batches."""
    path = state_folder(stream, target, name)
    if "://" not in path:
        shutil.rmtree(path, ignore_errors=True)
        return
    from ematix_flow.run.streams.query import StateFolder

    StateFolder(session_for(options.load)(), path).remove(path)


def _sum(one: Counts, other: Counts) -> Counts:
    names = ("staged", "inserted", "updated", "unchanged", "deleted", "closed", "rejected")
    return one.with_all((name, getattr(other, name)) for name in names)

"""Targets of streams with state: a range goes into the state, and what the state gives out into the target.

The state is a query of Structured Streaming under a folder of its own. Every batch of it is one load, and the position
that the load moves names the query and the batch. So a batch that Spark works out again is recognised by its target.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING
from uuid import uuid4

from ematix_flow.commit.stream_offsets import STATE, advanced, without_state
from ematix_flow.connect.base.stream_source import as_text
from ematix_flow.declare.stream.windows import DLQ
from ematix_flow.engine.batch.stager import translate_spark_error
from ematix_flow.engine.spark.session import local_reason, session_for, spark_settings
from ematix_flow.engine.stream.dead_letter_topic import has_dead_letter_topic
from ematix_flow.engine.stream.sinks.base import StreamSink
from ematix_flow.engine.stream.sinks.broker import is_broker
from ematix_flow.engine.stream.sinks.front import Front
from ematix_flow.engine.stream.sinks.outlets import open_outlet
from ematix_flow.engine.stream.sinks.ranges import RangeInput
from ematix_flow.engine.stream.sinks.read_files import as_digests, end_with, files_of_range
from ematix_flow.engine.stream.state.folder import naming, state_folder
from ematix_flow.engine.stream.state.manifest import (
    NOTHING,
    Manifest,
    manifest_of,
    refuse_missing_lines,
    write_manifest,
)
from ematix_flow.engine.stream.state.rows import StateRows
from ematix_flow.errors import PlanError, PositionMovedError, StreamLostError, UnsupportedError
from ematix_flow.events import RowsWithoutTime, StateChanged, WindowsOpen
from ematix_flow.failpoints import failpoint
from ematix_flow.plan.stream.state import changes_of_state, horizon, open_windows, remedy, state_definition
from ematix_flow.plan.stream.state_size import measured_warning, warning_limit
from ematix_flow.plan.stream.state_warnings import state_warnings
from ematix_flow.records import Counts
from ematix_flow.run.streams.query import MOVED, RESET, StateFolder, range_number
from ematix_flow.run.streams.ranges import NO_RANGE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame

    from ematix_flow.connect.base.stream_source import Position
    from ematix_flow.declare.stream.stream import Stream, StreamTarget
    from ematix_flow.engine.stream.options import StreamOptions
    from ematix_flow.engine.stream.sinks.base import StreamContext
    from ematix_flow.engine.stream.sinks.outlets import Outlet
    from ematix_flow.plan.stream.state import StateChange
    from ematix_flow.run.streams.query import StateQuery

RETAINED_RANGES = 2
"""How many ranges keep their lines: the last one may have to be read again."""

_IMPORTS = ("ematix_flow.run.read.message_frames", "ematix_flow.run.stage.tasks")
"""What tasks that read messages and stage rows need; workers fork from a process that has it already."""


@dataclass
class StatefulSink(StreamSink):
    """A target that takes what windows, sessions and joins give out."""

    outlet: Outlet
    """The target itself, at its position."""
    key: str
    position: Position
    state: StateRows | None = None
    query: StateQuery | None = None
    folder: StateFolder | None = None
    front: Front | None = None
    """What rows pass before, where they are deduplicated."""
    last: Manifest | None = None
    """The last range that was written."""
    name: str = NO_RANGE
    """Its name."""
    counts: Counts = field(default_factory=Counts)
    unfinished: bool = False
    """Whether time has gone on with the last range, and what is complete by that is given out with the range behind it."""
    reads_ahead: bool = True
    warned_bytes: int = 0
    """The size of the state that was warned of last."""

    def load(self, end: Position) -> Counts:
        """Take the messages up to a position into the state, and load what it gives out."""
        if self.query is None:
            self.open()
        begin, end = without_state(self.position), without_state(advanced(self.position, end))
        if begin != end or self.is_due():
            self._take_up(begin, end)
        counts, self.counts = self.counts, Counts()
        return counts

    def is_due(self) -> bool:
        """Return whether something follows from the last range, or a silent source no longer holds time back."""
        if self.state is None or self.query is None or self.last is None:
            return False
        return self.unfinished or self.state.watermark(self.last.times, self.last.watermark) != self.last.watermark

    def clean_up(self) -> None:
        """Remove old batches from the metadata of the target."""
        self.outlet.clean_up()

    def close(self) -> None:
        """Stop the query, whose state stays, and close the target."""
        self._stop()
        self.outlet.close()

    def _stop(self) -> None:
        for query in (self.query, self.front):
            if query is not None:
                query.stop()
        self.query = self.front = None
        if self.state is not None:
            self.state.close()

    def open(self) -> None:
        """Start the query; a batch that was interrupted is worked out again, and loaded unless it was."""
        from ematix_flow.run.streams.query import StateQuery

        spark = session_for(self.outlet.context.options.load)(_IMPORTS)
        self.state = StateRows(self.outlet.context, spark, self.outlet.metadata_columns())
        self.folder = StateFolder(
            spark, state_folder(self.outlet.context.stream, self.outlet.target, self.outlet.context.name, self.position)
        )
        with self._working():
            self._agree(self.folder)
            begun = self.folder.last_batch()
            self.name = NO_RANGE if begun is None else self.folder.range_of(begun) or NO_RANGE
            self.last = manifest_of(self.folder, self.name)
            self._refuse_changed(self.last)
            if self.last is not None and begun != self.folder.last_done():
                refuse_missing_lines(self.folder, self.name, self.last)
            if self.state.front is not None:
                self.front = Front(spark, self.folder, self.state, self.state.front)
                self.front.start(self.name)
            self.query = StateQuery(spark, self.folder, self.state.plan, self._apply, finishes=not self._closes_later)
            self.query.start()
        self._report_open_windows()
        if self.front is not None and self.front.name != self.name:
            with self._working():
                self._advance(self.front.name)
            self.unfinished = self._closes_later
            return
        last = self.folder.last_batch()
        if self.last is not None and last and self.folder.range_of(last - 1) != self.name:
            # After a restart Spark lets nothing follow from a batch before there is another one.
            self.unfinished = self._closes_later
            if not self._closes_later:
                self._take_up(without_state(self.position), without_state(self.position))

    def _agree(self, folder: StateFolder) -> None:
        """Refuse a state that is not the one that the position names."""
        known = self.position.get(STATE)
        if known is None and not folder.last_done():
            self._forget_leftover(folder)
            return
        actual, name = folder.query_id(), self.outlet.context.stream.name
        if known is None and self.outlet.was_reset and self.outlet.known:
            folder.remove(folder.path)
            return
        if known is None:
            message = f"the state of stream {name!r} in {folder.path} is that of a target which had loads, and this one has none"
            raise StreamLostError(message, hint=RESET)
        if actual != known["id"]:
            what, hint = ("is that of another stream, or was begun anew", RESET) if actual else ("is gone", MOVED)
            raise StreamLostError(f"the state of stream {name!r} in {folder.path} {what}", hint=hint)
        begun, done = folder.last_batch() or 0, folder.last_done() or 0
        # A batch that was begun and not finished may be in the target or not.
        if known["batch"] not in {begun, done}:
            raise self._disagreement(begun)

    def _forget_leftover(self, folder: StateFolder) -> None:
        """Remove a state that no load has followed from, where an operator has moved the target since.

        Otherwise it stays: the commit of its first load may still arrive, or be resolved by the next one.
        """
        begun = folder.last_batch()
        manifest = None if begun is None else manifest_of(folder, folder.range_of(begun) or NO_RANGE)
        if manifest is not None and self.outlet.known and as_text(manifest.begin) != as_text(self.position):
            folder.remove(folder.path)

    def _refuse_changed(self, last: Manifest | None) -> None:
        """Refuse a declaration that does not go with what is remembered."""
        stream = self.outlet.context.stream
        changes = [] if last is None else changes_of_state(last.definition, state_definition(stream))
        if changes:
            raise changed_state(stream, changes)

    def _refuse_moved(self) -> None:
        """Refuse a position that the target no longer has: another process has moved it since it was read."""
        source_id = self.outlet.context.source.source_id
        if self.outlet.stored() != self.position:
            message = f"the position of {source_id} in the target has moved since it was read"
            raise PositionMovedError(message, hint="another process runs this stream; nothing was changed.")

    def _disagreement(self, batch: int) -> StreamLostError:
        known = self.position.get(STATE, {"batch": 0})["batch"]
        name = self.outlet.context.stream.name
        message = f"the state of stream {name!r} is at batch {batch}, and its target at another one, {known}"
        return StreamLostError(message, hint=f"one of both is older than the other, or was restored; {RESET}")

    def _take_up(self, begin: Position, end: Position) -> None:
        """Write the lines of a range, and let the query read them."""
        assert self.query is not None  # noqa: S101 - opened before
        # No other process writes under this name, so whoever works a batch out again reads the same lines.
        name = f"{range_number(self.name) + 1}-{uuid4().hex[:8]}"
        watermark = (self.last or NOTHING).watermark
        with self._working():
            self.last = self._written(name, begin, end)
            self.unfinished = self._closes_later and self.last.watermark != watermark
            failpoint("state.range_written")
            self._read_ahead(end)
            if self.front is not None:
                self.front.advance(name)
            self._advance(name)
        self._forget_ranges()
        self._warn_of_size()

    @property
    def _closes_later(self) -> bool:
        return self.state is not None and self.state.plan.closes_later

    def _read_ahead(self, end: Position) -> None:
        """Begin to read the range behind this one, if there is one; Spark does so in the gaps of loading."""
        assert self.state is not None  # noqa: S101 - opened before
        if self.next_end is not None:
            self.state.read_ahead(end, self.next_end)

    def _warn_of_size(self) -> None:
        """Warn of a state that is large, and again whenever it has doubled."""
        assert self.query is not None  # noqa: S101 - opened before
        limit = warning_limit()
        measured = self.query.measured_bytes
        if limit and measured > max(limit, 2 * self.warned_bytes):
            self.warned_bytes = measured
            warnings.warn(measured_warning(self.outlet.context.stream.name, measured, limit), UserWarning, stacklevel=2)

    def _advance(self, name: str) -> None:
        """Let the query read a range."""
        assert self.query is not None  # noqa: S101 - opened before
        assert self.folder is not None  # noqa: S101
        self.name, self.last = name, manifest_of(self.folder, name)
        self.query.advance(name)
        self._report_open_windows()

    def _report_open_windows(self) -> None:
        assert self.state is not None  # noqa: S101 - opened before
        if self.state.plan.operator == "window":
            context = self.outlet.context
            windows = 0 if self.last is None else len(self.last.windows)
            context.options.bus.emit(WindowsOpen(context.stream.name, self.key, windows))

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Let an error of this block stop the query, which goes on where it was; a state that another process has is told as that."""
        try:
            yield
        except Exception as error:
            self._stop()
            if isinstance(known := translate_spark_error(error), StreamLostError):
                self._refuse_moved()
            raise known from error

    def _written(self, name: str, begin: Position, end: Position) -> Manifest:
        assert self.state is not None  # noqa: S101 - opened before
        assert self.folder is not None  # noqa: S101
        before = self.last or NOTHING
        context = self.outlet.context
        files = files_of_range(context, begin, end, None if self.last is None else before.digests)
        span = RangeInput(name, begin, end_with(context, end, files), f"{self.folder.path}/rejects/{name}", files)
        lines = self.folder if self.front is None else self.front.folder
        summary = self.state.write(lines, span, before.times, before.watermark, before.schemas)
        # What the target has may be by the watermark of the range before.
        needed = None if before.watermark is None else before.watermark - horizon(self.state.plan)
        manifest = Manifest(
            begin,
            span.end,
            summary.times,
            summary.watermark,
            summary.schemas,
            rejects=summary.rejects,
            files=lines.sizes(f"{lines.input}/{name}"),
            definition=state_definition(context.stream),
            windows=open_windows([*before.windows, *summary.windows], summary.watermark),
            digests=before.digests | {source: as_digests(one.digests_then) for source, one in files.items()},
            time_index=None if before.time_index is None else before.time_index.after(summary.newest, begin, needed),
        )
        write_manifest(lines, name, manifest)
        if summary.timeless:
            context.options.bus.emit(RowsWithoutTime(context.stream.name, self.key, summary.timeless))
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
        rejects_in = self._rejects_of(name) if manifest.rejects and is_first else []
        given = self.state.given_out(results, kinds, manifest.schemas, rejects_in)
        known = {"id": self.folder.query_id(), "batch": batch, "range": name} | naming(self.position.get(STATE))
        end = manifest.end | {STATE: known}
        try:
            counts = self.outlet.load(given, self.position, end, results.sparkSession)
        finally:
            given.release()
        failpoint("state.loaded")
        self.position, self.previously_loaded = end, True
        self.counts = _sum(self.counts, counts)
        if given.windows or given.late:
            changed = StateChanged(self.outlet.context.stream.name, self.key, given.windows, given.late, given.policy)
            self.outlet.context.options.bus.emit(changed)

    def _rejects_of(self, name: str) -> list[str]:
        """Return the folders with what of a range is no row: of its messages, and of what came through in front."""
        assert self.folder is not None  # noqa: S101 - opened before
        read = f"{self.folder.path}/rejects/{name}"
        folders = [read, *(() if self.front is None else (self.front.rejects_of(name),))]
        # Written down, and so not there only where the state is damaged: what reads them says so.
        return [folder for folder in folders if self.folder.sizes(folder)] or [read]

    def _forget_ranges(self) -> None:
        assert self.folder is not None  # noqa: S101 - opened before
        for folder in (self.folder, *((self.front.folder,) if self.front is not None else ())):
            for name in folder.ranges():
                if range_number(name) <= range_number(self.name) - RETAINED_RANGES:
                    for path in (f"input/{name}", f"rejects/{name}", f"ranges/{name}.json"):
                        folder.remove(f"{folder.path}/{path}")


def open_stateful_sink(context: StreamContext, target: StreamTarget, *, read_only: bool = False) -> StatefulSink:
    """Return a target at its position, with its state; with `read_only` nothing is changed or started."""
    for text in () if read_only else state_warnings(context.stream):
        warnings.warn(text, UserWarning, stacklevel=2)
    outlet = open_outlet(context, target, read_only=read_only)
    sink = StatefulSink(outlet, context.stream.key_of(target), outlet.position)
    try:
        if not read_only:
            sink.open()
    except BaseException:
        outlet.close()
        raise
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
    late = stream.window is not None and stream.window.late_data == DLQ
    if late and any(map(is_broker, stream.targets)) and not has_dead_letter_topic(stream):
        message = f"late rows of stream {stream.name!r} cannot be kept: {stream.key_of(stream.targets[0])!r} has no table for them"
        hint = "name a dead_letter_topic=, or say late_data='drop'."
        raise PlanError(message, hint=hint, origin=stream.origin)


def _sum(one: Counts, other: Counts) -> Counts:
    return one.with_all(asdict(other).items())

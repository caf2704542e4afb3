"""Computes what a stream gives out for a time of the past, from the messages of then, and writes it over what is there.

A state of its own is built for that and removed afterwards; that of the stream, and its position, stay as they are. What
is written has keys, so that it can be written again: an interrupted backfill is simply called again.
"""

from __future__ import annotations

import warnings
from bisect import bisect_left
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from ematix_flow.commit.stream_offsets import STATE, without_state
from ematix_flow.declare.pipeline.write import Replaced
from ematix_flow.declare.stream.feature_windows import window_columns
from ematix_flow.declare.stream.windows import SESSION
from ematix_flow.engine.batch.load import SourceRows, load_target
from ematix_flow.engine.batch.source import OpenSource
from ematix_flow.engine.batch.stager import translate_spark_error
from ematix_flow.engine.spark.session import OWN, require, session_for
from ematix_flow.engine.stream.names import filled_in
from ematix_flow.engine.stream.open import open_context, refuse_impossible
from ematix_flow.engine.stream.run import run_stream
from ematix_flow.engine.stream.sinks.broker import is_broker
from ematix_flow.engine.stream.sinks.table import (
    TableSink,
    framed_declaration,
    open_table_sink,
    pipeline_of,
    requires_order,
)
from ematix_flow.engine.stream.sinks.table_schema import key_columns
from ematix_flow.engine.stream.state.folder import state_folder
from ematix_flow.engine.stream.state.manifest import NOTHING, manifest_of
from ematix_flow.engine.stream.state.refused_rows import warn_of_bad
from ematix_flow.engine.stream.state.replay import Replay, beginning_of, refuse_files
from ematix_flow.engine.stream.state.rows import StateRows
from ematix_flow.errors import PlanError, RefusedError, StreamLostError, UnsupportedError
from ematix_flow.plan.source import SourceValue
from ematix_flow.plan.sql.modes.lake import DIALECT as LAKE
from ematix_flow.plan.stream.state import MICROS, horizon, instant_of, micros_of
from ematix_flow.run.streams.choices import (
    Choice,
    begun_at,
    begun_between,
    between,
    pairs_between,
    times_of,
    times_within,
    whole_runs,
)
from ematix_flow.run.streams.query import StateFolder
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession

    from ematix_flow.connect.base.stream_source import Position
    from ematix_flow.declare.stream.stream import Stream, StreamTarget
    from ematix_flow.engine.stream.options import StreamOptions
    from ematix_flow.engine.stream.sinks.base import StreamContext
    from ematix_flow.engine.stream.state.manifest import TimeIndex
    from ematix_flow.engine.stream.state.replay import Beginning


@dataclass(frozen=True, slots=True)
class StreamBackfill:
    """A target of a stream for which a time of the past is computed again, or would be."""

    target: str
    begin: Position
    end: Position
    """The range of messages that is read."""
    messages: int
    rows: int = 0
    """How many rows were written."""


@dataclass(frozen=True, slots=True)
class _Span:
    """The time that is computed, in microseconds: what begins in it, and is over by the time of the stream."""

    first: int
    last: int
    complete: int
    """Up to which time the stream has given everything out."""
    late: Mapping[str, int] = field(default_factory=dict)
    """Dead letters that are counted by that and marked by its load: the beginning of the window of each, of sessions its time.

    Of windows of a fixed length, only those that count one are computed then.
    """


@dataclass(frozen=True, slots=True)
class CountedRows:
    """What became of late rows whose windows were to be computed again."""

    ids: frozenset[str]
    """The dead letters that are counted now, and marked."""
    gone: str | None
    """Which messages are gone without which the windows of others would not be whole; None where none are."""


def backfill_stream(
    stream: Stream, first: datetime, last: datetime, options: StreamOptions, *, dry_run: bool = False
) -> list[StreamBackfill]:
    """Compute what begins between two instants again, and write it into every target of a stream."""
    stream = filled_in(stream)
    if last <= first:
        raise PlanError(f"the interval ends ({last.isoformat()}) before it begins ({first.isoformat()})")
    refuse_impossible(stream, options)
    require(OWN)
    with ExitStack() as resources:
        context = open_context(stream, options, resources)
        refuse_files(context)
        targets = [_upserting(context, target) for target in stream.targets]
        if not stream.is_stateful:
            return _messages(context, targets, first, last, dry_run=dry_run)
        return [_backfilled(context, target, first, last, dry_run=dry_run) for target in targets]


def count_late(
    stream: Stream, target: StreamTarget, late: Mapping[str, datetime], options: StreamOptions
) -> CountedRows:
    """Compute the windows of late rows again for one target, in a load that marks their dead letters, where that can be done.

    `late` says by the id of each when its window begins; of sessions, when the row itself was.
    """
    refuse_impossible(stream, options)
    require(OWN)
    with ExitStack() as resources:
        context = open_context(stream, options, resources)
        refuse_files(context)
        past = _past_of(context, _upserting(context, target))
        return _counted(past, {one: micros_of(time) for one, time in late.items()})


def _upserting(context: StreamContext, target: StreamTarget) -> StreamTarget:
    """Return a target into which rows can be written twice; one where they would be there twice is refused."""
    stream = context.stream
    name = stream.key_of(target)
    if stream.deduplicate is not None:
        message = f"stream {stream.name!r} leaves out rows that came before, and which did is not known for a time of the past"
        raise UnsupportedError(message, hint="flow consume --from --to reads messages again.", origin=stream.origin)
    if is_broker(target) or target.write.mode not in ("append", "merge"):
        what = "is no table" if is_broker(target) else f"is written with mode {target.write.mode!r}"
        message = f"{name!r} {what}, so what is there of a time of the past cannot be replaced"
        raise UnsupportedError(message, hint="a table with keys can be backfilled.", origin=stream.origin)
    keys = target.write.keys or key_columns(target, _table(context, target).offset_store.database)
    if not keys:
        message = f"{name!r} has no key, so rows that are there already would be there twice"
        hint = "declare target_primary_key=, for example the beginning of the window and its groups."
        raise RefusedError(message, hint=hint, origin=stream.origin)
    window = stream.window
    if window is None:
        return replace(target, write=replace(target.write, mode="merge"))
    times = window_columns(window)
    if not set(keys) & set(times):
        message = f"the key of {name!r} ({', '.join(keys)}) does not say which window a row is, so older ones would replace newer ones"
        raise RefusedError(message, hint=f"make {times[0]} a part of the key.", origin=stream.origin)
    if window.kind != SESSION:
        return replace(target, write=replace(target.write, mode="merge"))
    if _table(context, target).offset_store.database.dialect == LAKE:
        message = f"{name!r} is a lake table, in which sessions that now begin elsewhere would stay beside those of now"
        raise UnsupportedError(message, hint="sessions in a database can be backfilled.", origin=stream.origin)
    replaced = Replaced(window.group_by, window.window_start_column, window.window_end_column)
    return replace(target, write=replace(target.write, mode="merge", replaced=replaced))


def _table(context: StreamContext, target: StreamTarget) -> TableSink:
    """Return a target at its position, of which nothing is changed."""
    return open_table_sink(context, target, TableSink, read_only=True)


def _messages(
    context: StreamContext, targets: list[StreamTarget], first: datetime, last: datetime, *, dry_run: bool
) -> list[StreamBackfill]:
    """Load the messages of a stream without state once more that came between two instants."""
    source, stream = context.source, replace(context.stream, targets=tuple(targets))
    begin, end = source.start(first.isoformat()), source.start(last.isoformat())
    count = source.distance(begin, end)
    rows = 0
    if not dry_run:
        ranged = replace(context.options, begin=first.isoformat(), end=last.isoformat(), available_now=True)
        rows = run_stream(stream, ranged)["total_rows"]
    return [StreamBackfill(stream.key_of(target), begin, end, count, rows) for target in targets]


def _backfilled(
    context: StreamContext, target: StreamTarget, first: datetime, last: datetime, *, dry_run: bool
) -> StreamBackfill:
    past = _past_of(context, target)
    span = past.span(micros_of(first), micros_of(last))
    beginning = past.beginning(span.first)
    if beginning.gone is not None:
        message = f"what began in {context.stream.name!r} since {first.isoformat()} cannot be computed again as a whole: {beginning.gone}"
        hint = "what is there stays as it is; a later --from begins with messages that are there."
        raise StreamLostError(message, hint=hint, origin=context.stream.origin)
    count = context.source.distance(beginning.position, past.end)
    planned = StreamBackfill(context.stream.key_of(target), beginning.position, past.end, count)
    return planned if dry_run else replace(planned, rows=past.write(span, beginning.position).rows)


def _counted(past: _Past, late: Mapping[str, int]) -> CountedRows:
    """Return which late rows their windows count now; those of windows whose messages are not all there are left."""
    # A session may have begun earlier than the row that came late, by its longest duration.
    times, longest = sorted(set(late.values())), past.state.plan.longest
    whole = bisect_left(times, True, key=lambda time: past.beginning(time - longest).gone is None)  # noqa: FBT003
    gone = None if whole == 0 else past.beginning(times[0] - longest).gone
    if whole == len(times):
        return CountedRows(frozenset(), gone)
    countable = {one: time for one, time in late.items() if time >= times[whole]}
    span = replace(past.span(times[whole] - longest, times[-1] + MICROS), late=countable)
    return CountedRows(frozenset(past.write(span, past.beginning(span.first).position).counted), gone)


@dataclass(frozen=True, slots=True)
class _Past:
    """What a target of a stream has given out, and the messages of it."""

    context: StreamContext
    target: StreamTarget
    spark: SparkSession
    table: TableSink
    state: StateRows
    index: TimeIndex | None
    complete: int | None
    """Up to which time the stream has given everything out."""

    @property
    def end(self) -> Position:
        """Return up to where the stream has read."""
        return without_state(self.table.position)

    def span(self, first: int, last: int) -> _Span:
        """Return the time that is computed; one that the stream has not reached is refused."""
        if self.complete is None or first >= self.complete:
            stream = self.context.stream
            until = "nothing" if self.complete is None else f"everything before {instant_of(self.complete).isoformat()}"
            message = f"stream {stream.name!r} has given out {until}; what begins later will come by itself"
            raise PlanError(message, origin=stream.origin)
        return _Span(first, last, self.complete)

    def beginning(self, first: int) -> Beginning:
        """Return where the messages begin that matter for what begins at a time or later."""
        plan = self.state.plan
        needed = first - (0 if plan.operator == "window" else horizon(plan))
        return beginning_of(self.context.source, needed, self.end, self.index, unread=True)

    def write(self, span: _Span, begin: Position) -> _Writer:
        """Compute a time again from the messages since a position, and write it over what is there."""
        name = f"{self.context.name}@backfill {instant_of(span.first).isoformat()} {instant_of(span.last).isoformat()}"
        folder = StateFolder(self.spark, state_folder(self.context.stream, self.target, name))
        writer = _Writer(self.context, self.target, self.table, self.state, span)
        _run(self.context, folder, self.spark, writer, begin, self.end)
        return writer


def _past_of(context: StreamContext, target: StreamTarget) -> _Past:
    """Return what a target has given out; one that has given nothing out is refused."""
    spark, table, stream = session_for(context.options.load)(), _table(context, target), context.stream
    known = table.position.get(STATE)
    if known is None:
        message = f"target {stream.key_of(target)!r} of stream {stream.name!r} has given nothing out yet"
        raise PlanError(message, hint="start the stream: flow consume; it begins with its oldest message.")
    own = StateFolder(spark, state_folder(stream, target, context.name, table.position))
    state = StateRows(context, spark, table.inspect_metadata_columns())
    index = (manifest_of(own, known["range"]) or NOTHING).time_index
    return _Past(context, target, spark, table, state, index, own.watermark_of(known["batch"]))


def _run(
    context: StreamContext, folder: StateFolder, spark: SparkSession, writer: _Writer, begin: Position, end: Position
) -> None:
    """Build a state, let it give everything out, and remove it; one that was interrupted may have left something."""
    folder.remove(folder.path)
    replay = Replay(context, spark, writer.state, folder, writer.write)
    try:
        with closing(replay):
            replay.begin()
            replay.messages(begin, end, writer.choice)
            replay.time(writer.until)
            warn_of_bad(context.stream, replay.bad)
            writer.state.refuse_missing()
    except Exception as error:
        raise translate_spark_error(error) from error
    finally:
        folder.remove(folder.path)


class _Writer:
    """Writes what a state gives out that begins in a time; every batch of it is one load."""

    def __init__(
        self, context: StreamContext, target: StreamTarget, table: TableSink, state: StateRows, span: _Span
    ) -> None:
        self._context = context
        self._target = target
        self._table = table
        self.state = state
        self.span = span
        self.rows = 0
        self.counted: set[str] = set()
        """The dead letters whose windows were written."""
        reach = horizon(state.plan)
        self._read = (span.first - reach, span.last + reach)
        """The time of the events that are read, where they are not those of windows of a fixed length."""

    @property
    def choice(self) -> Choice:
        """Return which events are needed for what begins in the time."""
        if self.state.plan.operator == "window":
            return Choice(self._chosen)
        return Choice(partial(between, *self._read))

    @property
    def until(self) -> int:
        """Return the time up to which the state gives everything out; of sessions also those that the stream has not."""
        plan = self.state.plan
        return self._read[1] + plan.gap if plan.operator == "session" else self.span.complete

    def write(self, results: DataFrame, schemas: dict[str, str]) -> None:
        """Write the rows of one batch, if there are some."""
        written = self._written(results) if schemas else None  # without types no message was a row so far
        rows = None if written is None else self._rows(written, schemas)
        if written is None or rows is None or rows.isEmpty():
            return
        replays = self._late_in(written)
        stream, context = self._context.stream, self._context
        declared, fitted = framed_declaration(
            stream, self._target, rows, self._table.offset_store.database, refuse=stream.window is not None
        )
        source = OpenSource(
            SourceValue(context.source.name, frame=fitted), context.source.name, ordered=requires_order(self._target)
        )
        pipeline = pipeline_of(stream, declared, f"{context.name}@backfill")
        options = replace(context.options.load, spark=results.sparkSession, replays=replays)
        loaded = load_target(pipeline, declared, SourceRows(source, f"backfill {uuid4().hex}"), options)
        self.rows += loaded.committed.counts.staged
        self.counted.update(replays)

    def _chosen(self, windows: DataFrame) -> DataFrame:
        """Return windows of a fixed length, or events of them, that are computed."""
        if self.span.late:
            return begun_at(set(self.span.late.values()), windows)
        return begun_between(self.span.first, self.span.last, windows)

    def _written(self, results: DataFrame) -> DataFrame:
        """Return what of the results of a batch is written."""
        window = self._context.stream.window
        if window is None:
            return results
        closed = results.where("kind = 'close'")
        return self._sessions(closed) if window.kind == SESSION else self._chosen(closed)

    def _rows(self, written: DataFrame, schemas: dict[str, str]) -> DataFrame | None:
        window, join = self._context.stream.window, self._context.stream.join
        if window is not None:
            # Sessions that are none would be typed in vain.
            return None if window.kind == SESSION and written.isEmpty() else self.state.rows(written, schemas)
        assert join is not None  # noqa: S101 - one of them
        return pairs_between(self.span.first, self.span.last, self.state.rows(written, schemas), join)

    def _late_in(self, written: DataFrame) -> tuple[str, ...]:
        """Return the dead letters whose windows are among those that are written."""
        late = self.span.late
        if not late:
            return ()
        counted = (times_within if self.state.plan.operator == "session" else times_of)(late.values(), written)
        return tuple(one for one, time in late.items() if time in counted)

    def _sessions(self, closed: DataFrame) -> DataFrame:
        """Return the sessions that are written; of groups without a pause nothing is, and that is told."""
        span, stream = self.span, self._context.stream
        begun = (span.first, span.last)
        whole, partial_runs = whole_runs(closed, self.state.plan.gap, self._read, begun, span.complete)
        left = partial_runs.orderBy("start").collect()
        if left:
            message = (
                f"stream {stream.name!r}: {quantity(len(left), 'group')} had no pause before or after the interval by which it"
                f" could be known where sessions begin, first {left[0]['key']} at {instant_of(left[0]['start']).isoformat()}"
            )
            if span.late:
                raise RefusedError(message, hint="flow backfill with a longer interval has one.", origin=stream.origin)
            warnings.warn(f"{message}; what is there of it is left as it is", UserWarning, stacklevel=2)
        return whole

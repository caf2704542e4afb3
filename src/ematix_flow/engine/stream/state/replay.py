"""Builds a state from messages that were read before; what it gives out meanwhile goes to whoever builds it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import uuid4

from ematix_flow.connect.base.stream_source import EARLIEST
from ematix_flow.connect.files.stream_source import FileStream
from ematix_flow.engine.stream.loop import MOST
from ematix_flow.errors import RunError, StreamLostError, UnsupportedError
from ematix_flow.failpoints import failpoint
from ematix_flow.plan.stream.state import instant_of
from ematix_flow.run.streams.choices import write_events
from ematix_flow.run.streams.input import write_watermark
from ematix_flow.run.streams.query import StateQuery, range_number
from ematix_flow.run.streams.ranges import NO_RANGE

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from ematix_flow.connect.base.stream_source import Position, StreamSource
    from ematix_flow.engine.stream.sinks.base import StreamContext
    from ematix_flow.engine.stream.state.manifest import TimeIndex
    from ematix_flow.engine.stream.state.rows import StateRows
    from ematix_flow.run.streams.choices import Choice
    from ematix_flow.run.streams.query import StateFolder


def position_of_time(source: StreamSource, time: int | None) -> Position:
    """Return the position of a time by the source's own means; where it has none, that of the oldest message."""
    if time is None:
        return source.start(EARLIEST)
    try:
        return source.start(instant_of(time).isoformat())
    except RunError:
        return source.start(EARLIEST)


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where the messages of a time begin."""

    position: Position
    gone: str | None
    """What of them the source has no longer; None where all are there."""


def beginning_of(
    source: StreamSource, time: int, end: Position, index: TimeIndex | None, *, unread: bool = False
) -> Beginning:
    """Return where the messages of a time begin, by what the state knows and else by the source; those up to `end` are read.

    With `unread` those before the first one that the state has read count, too; none that it has read is left out, as a
    message can be of a time after which it was sent. A source gives the oldest message that it has where those of the time
    are gone, so that has to be told apart.
    """
    known = None if index is None else index.position(time)
    begin = known or position_of_time(source, time)
    if unread and index is not None and known is not None and index.begins_at(known):
        by_time = position_of_time(source, time)
        if known != source.start(EARLIEST) and source.distance(by_time, known):
            begin = source.earlier(known, by_time)
            known = None
    try:
        for position in (begin, end):
            source.ahead(position, 1, end)
    except StreamLostError as error:
        return Beginning(begin, error.what)
    return Beginning(begin, None if known is not None else source.gone_before(begin))


def refuse_files(context: StreamContext) -> None:
    """Refuse sources without positions: which files of a folder belong to a time of the past is not known."""
    source = context.source
    if any(isinstance(part, FileStream) for part in source.parts):
        message = f"stream {context.stream.name!r} reads a folder of files, which have no order of messages to begin in"
        hint = "begin again with all files: flow stream reset NAME --from earliest --confirm-state-reset."
        raise UnsupportedError(message, hint=hint, origin=context.stream.origin)


@dataclass
class Replay:
    """A state that is built anew in a folder of its own."""

    context: StreamContext
    spark: SparkSession
    state: StateRows
    folder: StateFolder
    results: Callable[[DataFrame, dict[str, str]], None]
    """Receives what every batch of the state gives out, and the types of remembered values."""
    name: str = NO_RANGE
    """The last range."""
    schemas: dict[str, str] = field(default_factory=dict)
    windows: list[tuple[int, int]] = field(default_factory=list)
    newest: int | None = None
    bad: Counter[str] = field(default_factory=Counter)
    """How many rows are bad ones, by the column that is to blame; they are left out."""
    _query: StateQuery | None = None

    def begin(self) -> None:
        """Start the query of the state."""
        self._query = StateQuery(self.spark, self.folder, self.state.plan, self._apply)
        self._query.start()

    def messages(self, begin: Position, end: Position, choice: Choice) -> None:
        """Take up the messages between two positions, without letting time go on; `choice` chooses their events."""
        source, at = self.context.source, begin
        most = self.context.options.most or self.context.stream.max_rows_per_batch or MOST
        while source.distance(at, end):
            upto = source.ahead(at, most, end)
            if not source.distance(at, upto):
                break
            name = self._next()
            summary = self.state.write_again(self.folder, name, (at, upto), self.schemas, choice)
            self.schemas = summary.schemas
            self.windows += summary.windows
            self.bad.update(summary.bad)
            self.newest = max((one for one in (self.newest, summary.newest) if one is not None), default=None)
            self._advance(name)
            failpoint("redeploy.replayed")
            at = upto

    def lines(self, events: DataFrame) -> None:
        """Take up events that no message has."""
        name = self._next()
        write_events(self.folder, name, events)
        self._advance(name)

    def time(self, watermark: int | None) -> None:
        """Let time go on to a watermark."""
        name = self._next()
        write_watermark(self.folder, name, watermark)
        self._advance(name)

    def close(self) -> None:
        """Stop the query; its state stays."""
        if self._query is not None:
            self._query.stop()
        self._query = None

    def _next(self) -> str:
        return f"{range_number(self.name) + 1}-{uuid4().hex[:8]}"

    def _advance(self, name: str) -> None:
        assert self._query is not None  # noqa: S101 - begun before
        before, self.name = self.name, name
        self._query.advance(name)
        if before != NO_RANGE:
            self.folder.remove(f"{self.folder.input}/{before}")

    def _apply(self, results: DataFrame, batch: int, name: str) -> None:
        del batch, name
        cached = results.persist()
        try:
            # The whole frame, whatever becomes of it: the state of the batch is written by that.
            cached.count()
            self.results(cached, self.schemas)
        finally:
            cached.unpersist()

"""Runs a stream: stretch after stretch goes down the load path of every target; the only place of this order."""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.registry import SINKS, open_stream
from ematix_flow.connect.resolve import resolve_connection
from ematix_flow.connect.stream import EARLIEST, LATEST
from ematix_flow.engine.broker_lanes import broker_lane
from ematix_flow.engine.stream_options import StreamOptions
from ematix_flow.engine.stream_rows import StreamRows
from ematix_flow.engine.table_lanes import table_lane
from ematix_flow.errors import FencedError, UnsupportedError
from ematix_flow.events import StreamIdle, StretchLoaded
from ematix_flow.failpoints import failpoint
from ematix_flow.plan.guarantees import refuse_unkept

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ematix_flow.connect.stream import Position, StreamSource
    from ematix_flow.declare.stream import Stream
    from ematix_flow.engine.lanes import Lane

MOST = 100_000
"""Messages of a batch, where nobody says."""


def run_stream(stream: Stream, options: StreamOptions | None = None) -> dict[str, Any]:
    """Run a stream until it is asked to stop or, where that was asked for, has reached its end; gives what it did."""
    options = options or StreamOptions()
    _refuse_unbuilt(stream)
    _refuse_unkept(stream)
    with ExitStack() as kept:
        kept.enter_context(finishing(options.stop))
        one = stream.sources[0]
        source = kept.enter_context(closing(open_stream(one.connection, one.query)))
        rows = StreamRows(stream, source, options, kept)
        lanes = _lanes(stream, source, rows, options, kept)
        loop = _Loop(stream, source, options, lanes, _goal(source, options))
        loop.run()
    return {
        "total_rows": loop.rows,
        "iterations": loop.batches,
        "shutdown_triggered": options.stop.is_set(),
    }


def _lanes(
    stream: Stream, source: StreamSource, rows: StreamRows, options: StreamOptions, kept: ExitStack
) -> list[Lane]:
    begin = options.begin or _beginning(stream)
    # A range has positions of its own, so that a run over it that was killed goes on and the stream is not moved.
    name = f"{stream.name}@{options.begin or ''}..{options.end or ''}" if options.ranged else stream.name
    lanes: list[Lane] = []
    for target in stream.targets:
        if resolve_connection(target.connection).kind in SINKS:
            lane: Lane = broker_lane(stream, target, source, rows, begin, name)
        else:
            lane = table_lane(stream, target, source, rows, begin, options, name)
        lanes.append(kept.enter_context(closing(lane)))
    return lanes


def _beginning(stream: Stream) -> str:
    """Give where a stream begins that was never run: with everything that is there, unless the connection says otherwise."""
    connection = resolve_connection(stream.sources[0].connection)
    return getattr(connection, "auto_offset_reset", None) or EARLIEST


def _goal(source: StreamSource, options: StreamOptions) -> Position | None:
    if options.end is not None:
        return source.start(options.end)
    return source.start(LATEST) if options.available_now or options.ranged else None


@dataclass
class _Loop:
    """A stream that runs."""

    stream: Stream
    source: StreamSource
    options: StreamOptions
    lanes: list[Lane]
    goal: Position | None
    rows: int = 0
    batches: int = 0
    pauses: dict[str, float] = field(default_factory=dict)
    """How long a target rests that failed."""

    def run(self) -> None:
        """Load until there is a reason to stop."""
        while not self.options.stop.is_set():
            if self._round():
                continue
            if self.goal is not None and self._arrived():
                return
            self.options.bus.emit(StreamIdle(self.stream.name, ""))
            self.options.stop.wait(self.stream.idle_pause_ms / 1000)

    def _round(self) -> bool:
        """Load what is new into every target; one that fails does not keep the others from theirs."""
        failed: list[BaseException] = []
        moved = False
        for lane in self.lanes:
            if self.options.stop.is_set():
                break
            try:
                moved |= self._advance(lane)
            except Exception as error:
                failed.append(error)
                if len(self.lanes) == 1 or isinstance(error, FencedError):
                    raise
        if moved:
            self.batches += 1
            self.source.settled([lane.position for lane in self.lanes])
        if failed:
            raise failed[0]
        return moved

    def _advance(self, lane: Lane) -> bool:
        most = self.options.most or self.stream.max_rows_per_batch or MOST
        end = self.source.ahead(lane.position, most, self.goal)
        if not self.source.distance(lane.position, end):
            return False
        begun = self.options.clock.now()
        counts = lane.load(end)
        failpoint("stream.after_batch")
        self.rows += counts.staged + counts.rejected
        seconds = (self.options.clock.now() - begun).total_seconds()
        self.options.bus.emit(StretchLoaded(self.stream.name, lane.key, counts, seconds, self._lag(lane)))
        return True

    def _lag(self, lane: Lane) -> int | None:
        return None if self.goal is None else self.source.distance(lane.position, self.goal)

    def _arrived(self) -> bool:
        assert self.goal is not None  # noqa: S101 - asked only where there is one
        return all(not self.source.distance(lane.position, self.goal) for lane in self.lanes)


def _refuse_unbuilt(stream: Stream) -> None:
    """Refuse what streams cannot do yet, instead of doing something else."""
    for what, value in (("window=", stream.window), ("join=", stream.join), ("cdc=", stream.cdc)):
        if value is not None:
            message = f"stream {stream.name!r} uses {what}, which is not built yet"
            raise UnsupportedError(message, origin=stream.origin)
    if len(stream.sources) > 1:
        message = f"stream {stream.name!r} has several sources, which only a join would put together"
        raise UnsupportedError(message, origin=stream.origin)


def _refuse_unkept(stream: Stream) -> None:
    """Refuse a promise that a target cannot keep."""
    source = resolve_connection(stream.sources[0].connection).kind
    for target in stream.targets:
        refuse_unkept(source, resolve_connection(target.connection).kind, stream.delivery, stream.origin)


@contextmanager
def finishing(stop: threading.Event) -> Iterator[None]:
    """Let SIGTERM and Ctrl-C end a stream after its batch, and the second one at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def hear(number: int, frame: Any) -> None:
        del frame
        if stop.is_set():
            raise KeyboardInterrupt(signal.Signals(number).name)
        stop.set()

    before = {number: signal.signal(number, hear) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

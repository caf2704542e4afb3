"""Runs a stream: stretch after stretch goes down the load path of every target; the only place of this order."""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.file_stream import FileStream
from ematix_flow.connect.lake_stream import LakeStream
from ematix_flow.connect.redact import safe_text
from ematix_flow.connect.resolve import resolve_connection
from ematix_flow.connect.stream import EARLIEST, LATEST
from ematix_flow.engine.broker_lanes import BrokerLane, broker_lane, is_broker
from ematix_flow.engine.conductor import as_ours
from ematix_flow.engine.file_lanes import file_lane
from ematix_flow.engine.file_messages import FileMessagesLane
from ematix_flow.engine.lake_lanes import LakeLane
from ematix_flow.engine.lanes import Road
from ematix_flow.engine.stream_loop import Loop, Tally, Track
from ematix_flow.engine.stream_observing import observed
from ematix_flow.engine.stream_options import StreamOptions
from ematix_flow.engine.stream_rows import StreamRows
from ematix_flow.engine.stream_sources import source_of
from ematix_flow.engine.supervising import Patience
from ematix_flow.engine.table_lanes import TableLane, table_lane
from ematix_flow.errors import UnsupportedError
from ematix_flow.events import StreamFailed
from ematix_flow.plan.guarantees import refuse_unkept

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ematix_flow.connect.stream import Position, StreamSource
    from ematix_flow.declare.stream import Stream, StreamTarget
    from ematix_flow.engine.lanes import Lane


def run_stream(stream: Stream, options: StreamOptions | None = None) -> dict[str, Any]:
    """Run a stream until it is asked to stop or, where that was asked for, has reached its end; gives what it did."""
    options = options or StreamOptions()
    with finishing(options.stop), observed((stream,), options):
        return follow(stream, options)


def follow(stream: Stream, options: StreamOptions) -> dict[str, Any]:
    """Run a stream, and again after errors where that was asked for; signals and watchers are the caller's business."""
    _refuse_unbuilt(stream)
    _refuse_unkept(stream)
    tally = Tally()
    patience = Patience(f"stream {stream.name!r}", options.max_backoff)
    while True:
        before = tally.batches
        try:
            _run_once(stream, options, tally)
            break
        except Exception as error:  # noqa: BLE001 - the engine's boundary: what it means is decided here
            if tally.batches > before:
                patience.got_on()
            pause = _pause(stream, options, patience, error)
        if options.stop.wait(pause):
            break
    return {"total_rows": tally.rows, "iterations": tally.batches, "shutdown_triggered": options.stop.is_set()}


def _pause(stream: Stream, options: StreamOptions, patience: Patience, error: Exception) -> float:
    """Give the seconds to wait after an error; one that is the end is raised."""
    ours = as_ours(error, stream.origin)
    last = patience.end_of(ours) if options.restart else ours
    if last is not None:
        options.bus.emit(StreamFailed(stream.name, "", safe_text(last)))
        raise last from (None if last is error else error)
    pause = patience.pause()
    options.bus.emit(StreamFailed(stream.name, "", safe_text(ours), pause))
    return pause


def _run_once(stream: Stream, options: StreamOptions, tally: Tally) -> None:
    with ExitStack() as kept:
        source = kept.enter_context(closing(source_of(stream, options)))
        source.begin()
        if tally.goal is None:
            tally.goal = _goal(source, options)
        rows = StreamRows(stream, source, options, kept)
        road = Road(stream, source, rows, options.begin or _beginning(stream), options, kept_as(stream, options))
        loop = Loop(stream, source, options, tally, _tracks(road))
        kept.callback(loop.close)
        loop.run()


def _tracks(road: Road) -> list[Track]:
    stream = road.stream
    return [
        Track(
            stream.key_of(target),
            partial(_lane, road, target),
            Patience(f"target {stream.key_of(target)!r} of stream {stream.name!r}", road.options.max_backoff),
        )
        for target in stream.targets
    ]


def kept_as(stream: Stream, options: StreamOptions) -> str:
    """Give the name under which targets remember how far a run has come.

    A range has positions of its own, so that a run over it that was killed goes on and the stream is not moved.
    """
    return f"{stream.name}@{options.begin or ''}..{options.end or ''}" if options.ranged else stream.name


def _lane(road: Road, target: StreamTarget) -> Lane:
    """Give a target as what it is."""
    if is_broker(target):
        return broker_lane(road, target, FileMessagesLane if isinstance(road.source, FileStream) else BrokerLane)
    if isinstance(road.source, FileStream):
        return file_lane(road, target, road.source)
    return table_lane(road, target, LakeLane if isinstance(road.source, LakeStream) else TableLane)


def _beginning(stream: Stream) -> str:
    """Give where a stream begins that was never run: with everything that is there, unless the connection says otherwise."""
    connection = resolve_connection(stream.sources[0].connection)
    return getattr(connection, "auto_offset_reset", None) or EARLIEST


def _goal(source: StreamSource, options: StreamOptions) -> Position | None:
    if options.end is not None:
        return source.start(options.end)
    return source.start(LATEST) if options.available_now or options.ranged else None


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

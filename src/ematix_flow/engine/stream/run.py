"""Runs a stream: stretch after stretch goes down the load path of every target; the only place of this order."""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.redact import safe_text
from ematix_flow.connect.registry import LAKES
from ematix_flow.connect.resolve import resolve_connection
from ematix_flow.connect.stream import LATEST
from ematix_flow.engine.batch.run import translate_error
from ematix_flow.engine.spark.session import LONG, OWN, need
from ematix_flow.engine.stream.loop import Loop, Tally, Track
from ematix_flow.engine.stream.metrics import observed
from ematix_flow.engine.stream.names import filled_in
from ematix_flow.engine.stream.open import lane_for, refuse_impossible, road_of
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.restart_policy import Patience
from ematix_flow.events import StreamFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ematix_flow.connect.stream import Position, StreamSource
    from ematix_flow.declare.stream.stream import Stream
    from ematix_flow.engine.stream.sinks.base import Road


MANY = 500_000
"""Messages that are long work."""


def run_stream(stream: Stream, options: StreamOptions | None = None) -> dict[str, Any]:
    """Run a stream until it is asked to stop or, where that was asked for, has reached its end; gives what it did."""
    options, stream = options or StreamOptions(), filled_in(stream)
    with finishing(options.stop), observed((stream,), options):
        return follow(stream, options)


def follow(stream: Stream, options: StreamOptions) -> dict[str, Any]:
    """Run a stream, and again after errors where that was asked for; signals and watchers are the caller's business."""
    stream = filled_in(stream)
    refuse_impossible(stream)
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
    ours = translate_error(error, stream.origin)
    last = patience.end_of(ours) if options.restart else ours
    if last is not None:
        options.bus.emit(StreamFailed(stream.name, "", safe_text(last)))
        raise last from (None if last is error else error)
    pause = patience.pause()
    options.bus.emit(StreamFailed(stream.name, "", safe_text(ours), pause))
    return pause


def _run_once(stream: Stream, options: StreamOptions, tally: Tally) -> None:
    with ExitStack() as kept:
        road = road_of(stream, options, kept)
        road.source.begin()
        if tally.goal is None:
            tally.goal = _goal(road.source, options)
        need(OWN)
        if _runs_long(road, tally.goal):
            need(LONG)
        loop = Loop(stream, road.source, options, tally, _tracks(road))
        kept.callback(loop.close)
        loop.run()


def _tracks(road: Road) -> list[Track]:
    stream = road.stream
    return [
        Track(
            stream.key_of(target),
            partial(lane_for, road, target),
            Patience(f"target {stream.key_of(target)!r} of stream {stream.name!r}", road.options.max_backoff),
        )
        for target in stream.targets
    ]


def _runs_long(road: Road, goal: Position | None) -> bool:
    """Say whether a run starts Spark, and that had better run quickly than start quickly."""
    lakes = any(resolve_connection(target.connection).kind in LAKES for target in road.stream.targets)
    if not (lakes or road.rows.reads_rows):
        return False
    return goal is None or road.source.distance(road.source.start(road.begin), goal) >= MANY


def _goal(source: StreamSource, options: StreamOptions) -> Position | None:
    if options.end is not None:
        return source.start(options.end)
    return source.start(LATEST) if options.available_now or options.ranged else None


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

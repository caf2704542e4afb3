"""Runs a stream: range after range goes through the load path of every target; this order is defined here only."""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base.stream_source import LATEST
from ematix_flow.connect.config.lookup import resolve_connection
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.connect.registry import LAKES
from ematix_flow.engine.batch.events import emitting_attempt, traceback_of
from ematix_flow.engine.errors import translate_error
from ematix_flow.engine.spark.session import LONG, OWN, require
from ematix_flow.engine.stream.loop import Loop, Tally, TargetState
from ematix_flow.engine.stream.metrics import stream_observers
from ematix_flow.engine.stream.mover import mover_of
from ematix_flow.engine.stream.names import filled_in
from ematix_flow.engine.stream.open import open_context, refuse_impossible, sink_for
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.restart_policy import RestartPolicy
from ematix_flow.engine.stream.sinks.changes import refuse_many_tables
from ematix_flow.events import StreamFailed, StreamStarted, StreamWarning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ematix_flow.connect.base.stream_source import Position, StreamSource
    from ematix_flow.declare.stream.stream import Stream
    from ematix_flow.engine.stream.sinks.base import StreamContext


MANY = 500_000
"""Number of messages that are long work."""


def run_stream(stream: Stream, options: StreamOptions | None = None) -> dict[str, Any]:
    """Run a stream until it is stopped or, where that was requested, has reached its end; return what it did."""
    options, stream = options or StreamOptions(), filled_in(stream)
    with finishing(options.stop), stream_observers((stream,), options) as run_ids:
        return follow(stream, options, run_ids[stream.name])


def follow(stream: Stream, options: StreamOptions, run_id: str) -> dict[str, Any]:
    """Run a stream, and again after errors where that was requested; the caller handles signals and observers."""
    with emitting_attempt(stream.name, run_id, 1, options.bus, of_stream=True):
        return _followed(stream, options)


def _followed(stream: Stream, options: StreamOptions) -> dict[str, Any]:
    stream = filled_in(stream)
    refuse_impossible(stream, options)
    mover = mover_of(stream, options)
    options.bus.emit(StreamStarted(stream.name, "", mover.value, mover.reason))
    tally = Tally()
    policy = RestartPolicy(f"stream {stream.name!r}", options.max_backoff)
    while True:
        before = tally.batches
        try:
            _run_once(stream, options, tally)
            break
        except Exception as error:  # noqa: BLE001 - the engine's boundary: what it means is decided here
            if tally.batches > before:
                policy.reset()
            pause = _pause(stream, options, policy, error)
        if options.stop.wait(pause):
            break
    return {"total_rows": tally.rows, "iterations": tally.batches, "shutdown_triggered": options.stop.is_set()}


def _pause(stream: Stream, options: StreamOptions, policy: RestartPolicy, error: Exception) -> float:
    """Return the seconds to wait after an error; one that is the end is raised."""
    ours = translate_error(error, stream.origin)
    last = policy.end_of(ours) if options.restart else ours
    if last is not None:
        options.bus.emit(StreamFailed(stream.name, "", safe_text(last)))
        raise last from (None if last is error else error)
    pause = policy.pause()
    options.bus.emit(StreamFailed(stream.name, "", safe_text(ours), pause, traceback_of(error)))
    return pause


def _run_once(stream: Stream, options: StreamOptions, tally: Tally) -> None:
    with ExitStack() as resources:
        context = open_context(stream, options, resources)
        refuse_many_tables(stream, context.source)  # before the server keeps its log for the stream
        context.source.begin()
        _warn_once(context, tally)
        if tally.end_offset is None:
            tally.end_offset = _end_offset(context.source, options)
        require(OWN)
        if _runs_long(context, tally.end_offset):
            require(LONG)
        loop = Loop(stream, context.source, options, tally, _target_states(context))
        resources.callback(loop.close)
        loop.run()


def _warn_once(context: StreamContext, tally: Tally) -> None:
    """Emit what an operator should know of the source, also where the stream is started again."""
    for message in context.source.warnings():
        if message not in tally.warned:
            tally.warned.add(message)
            context.options.bus.emit(StreamWarning(context.stream.name, "", message))


def _target_states(context: StreamContext) -> list[TargetState]:
    stream = context.stream
    return [
        TargetState(
            stream.key_of(target),
            partial(sink_for, context, target),
            RestartPolicy(f"target {stream.key_of(target)!r} of stream {stream.name!r}", context.options.max_backoff),
        )
        for target in stream.targets
    ]


def _runs_long(context: StreamContext, end_offset: Position | None) -> bool:
    """Return whether Java itself has rows in its hands, and should run fast rather than start fast."""
    lakes = any(resolve_connection(target.connection).kind in LAKES for target in context.stream.targets)
    if not (lakes or context.rows.reads_rows or context.stream.is_stateful):
        return False  # Python workers move the rows, and Java only gives them their tasks
    return end_offset is None or context.source.distance(context.source.start(context.begin), end_offset) >= MANY


def _end_offset(source: StreamSource, options: StreamOptions) -> Position | None:
    if options.end is not None:
        return source.start(options.end)
    return source.start(LATEST) if options.available_now or options.ranged else None


@contextmanager
def finishing(stop: threading.Event) -> Iterator[None]:
    """End a stream on SIGTERM and Ctrl-C after its batch, on the second one at once."""
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

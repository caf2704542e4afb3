"""Runs several streams in one process, each in a thread of its own; they get signals together."""

from __future__ import annotations

from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

from ematix_flow.engine.stream.metrics import stream_observers
from ematix_flow.engine.stream.run import finishing, follow, run_stream
from ematix_flow.errors import DeclareError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Future

    from ematix_flow.declare.stream.stream import Stream
    from ematix_flow.engine.stream.options import StreamOptions

StreamOutcome = dict[str, Any] | Exception
"""What a stream did, or why it ended."""


def run_streams(streams: Sequence[Stream], options: StreamOptions) -> dict[str, StreamOutcome]:
    """Run streams until all have ended and return for each what it did.

    A stream that fails ends the others after their batch; where streams are to go on after errors, they do so without it.
    """
    _refuse_duplicate_targets(streams)
    if len(streams) == 1:
        return {streams[0].name: run_stream(streams[0], options)}
    with finishing(options.stop), stream_observers(streams, options) as run_ids:
        with ThreadPoolExecutor(len(streams), "stream") as threads:
            running = {stream.name: threads.submit(follow, stream, options, run_ids[stream.name]) for stream in streams}
            try:
                if not options.restart:
                    wait(running.values(), return_when=FIRST_EXCEPTION)
                    if any(one.done() and one.exception() for one in running.values()):
                        options.stop.set()
                wait(running.values())
            finally:
                options.stop.set()
        return _outcomes(running)


def _outcomes(running: Mapping[str, Future[dict[str, Any]]]) -> dict[str, StreamOutcome]:
    outcomes: dict[str, StreamOutcome] = {}
    for name, future in running.items():
        error = future.exception()
        if error is not None and not isinstance(error, Exception):
            raise error
        outcomes[name] = future.result() if error is None else error
    return outcomes


def _refuse_duplicate_targets(streams: Sequence[Stream]) -> None:
    names = [stream.name for stream in streams]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        message = f"stream {twice[0]!r} is named twice"
        raise DeclareError(message, hint="a stream runs once; two streams need two names.")

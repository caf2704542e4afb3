"""What an operator may do with a stream that does not run: show where each target is, and move it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ematix_flow.commit.stream_offsets import position_in, remember, without_state
from ematix_flow.connect.base.sink import SinkCheckpointKey
from ematix_flow.connect.base.stream_source import TURN
from ematix_flow.connect.files.stream_source import FileStream
from ematix_flow.engine.stream.names import filled_in
from ematix_flow.engine.stream.sinks.broker import is_broker, sink_of
from ematix_flow.engine.stream.sinks.broker_from_files import displayed_position
from ematix_flow.engine.stream.sinks.from_files import file_position
from ematix_flow.engine.stream.sinks.table import offset_store_of
from ematix_flow.engine.stream.sources import source_of
from ematix_flow.engine.stream.state.folder import forget_state
from ematix_flow.engine.stream.state.status import state_status
from ematix_flow.errors import PlanError, StreamLostError, UnknownNameError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ematix_flow.connect.base.stream_source import Position, StreamSource
    from ematix_flow.declare.stream.stream import Stream, StreamTarget
    from ematix_flow.engine.stream.options import StreamOptions
    from ematix_flow.engine.stream.state.status import StateStatus

LEDGER = "ledger"
"""The name of the positions that the targets store."""


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """The position of one target of a stream."""

    target: str
    position: Position | None
    """None before the first load."""
    waiting: Mapping[str, int]
    """Messages that wait for it, by part of the source."""
    problem: str | None = None
    """Why it cannot go on from there."""
    state: StateStatus | None = None
    """What is remembered between batches, where something is."""
    source: Mapping[str, object] = field(default_factory=dict)
    """What else is to know of the source, such as what it retains for the stream."""

    @property
    def lag(self) -> int:
        """Return how many messages wait in all."""
        return sum(self.waiting.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the status as plain data."""
        return {
            "target": self.target,
            "position": self.position,
            "lag": self.lag,
            "waiting": dict(self.waiting),
            "problem": self.problem,
            "state": None if self.state is None else self.state.to_dict(),
            **({"source": dict(self.source)} if self.source else {}),
        }


@dataclass(frozen=True, slots=True)
class Moved:
    """A target of a stream that was moved to another position."""

    target: str
    before: Position | None
    after: Position


def stream_status(stream: Stream, options: StreamOptions) -> list[StreamStatus]:
    """Return the position of every target of a stream and what waits for it."""
    stream = filled_in(stream)
    with closing(source_of(stream, options)) as source:
        return [_status_of(stream, target, source, options) for target in stream.targets]


def _status_of(stream: Stream, target: StreamTarget, source: StreamSource, options: StreamOptions) -> StreamStatus:
    key = stream.key_of(target)
    details = source.details()
    try:
        position = position_of(stream, target, source, options)
        if position is None:
            return StreamStatus(key, None, source.waiting(source.start("earliest")), source=details)
        source.ahead(position, 1)  # refuses a position whose messages are gone
    except StreamLostError as error:
        return StreamStatus(key, None, {}, error.what, source=details)
    state = state_status(stream, target, position)
    return StreamStatus(key, without_state(position), source.waiting(position), state=state, source=details)


def move_stream(
    stream: Stream, where: str, options: StreamOptions, only: Sequence[str] = (), *, healthy: bool = False
) -> list[Moved]:
    """Move targets to another position: a name, an instant, or a position as JSON; all targets, or some.

    With `healthy`, only targets that have a position can be moved. The name `ledger` moves nothing; what a target
    remembers between batches is forgotten in any case.
    """
    stream = filled_in(stream)
    chosen = chosen_targets(stream, only)
    with closing(source_of(stream, options)) as source:
        stays = where == LEDGER
        before = [_before(stream, t, source, options, healthy=healthy or stays, stays=stays) for t in chosen]
        if stays and not stream.is_stateful:
            return [Moved(stream.key_of(t), at, at) for t, at in zip(chosen, before, strict=True) if at is not None]
        after = [_chosen_position(at or {}) if stays else source.seek(at, where) for at in before]
        for target, was, position in zip(chosen, before, after, strict=True):
            _move(stream, target, source, was, position, options)
    return [Moved(stream.key_of(t), was, now) for t, was, now in zip(chosen, before, after, strict=True)]


def chosen_targets(stream: Stream, only: Sequence[str]) -> list[StreamTarget]:
    """Return the targets of a stream with these names, or all."""
    keys = {stream.key_of(target): target for target in stream.targets}
    for key in only:
        if key not in keys:
            message = f"stream {stream.name!r} has no target {key!r}"
            raise UnknownNameError(message, hint=did_you_mean(key, keys))
    return [target for key, target in keys.items() if not only or key in only]


def _before(
    stream: Stream, target: StreamTarget, source: StreamSource, options: StreamOptions, *, healthy: bool, stays: bool
) -> Position | None:
    """Return the position of a target; None where it has none of this source; one that stays must have one."""
    try:
        position = position_of(stream, target, source, options)
    except StreamLostError:
        if stays:
            raise
        return None
    if position is None and healthy:
        message = f"target {stream.key_of(target)!r} of stream {stream.name!r} has loaded nothing yet"
        raise PlanError(message, hint="flow stream reset NAME --from ... says where a stream begins.")
    return position


def position_of(stream: Stream, target: StreamTarget, source: StreamSource, options: StreamOptions) -> Position | None:
    """Return the position that a target of a stream has stored; None before its first load."""
    if is_broker(target):
        with closing(sink_of(stream, target)) as sink:
            position = sink.position(SinkCheckpointKey(stream.name, source.source_id))
            return None if position is None else displayed_position(position)
    if isinstance(source, FileStream):
        return file_position(stream, target, source, options, stream.name)
    offset_store = offset_store_of(stream, target, options, stream.name)
    return position_in(offset_store, source.source_id)


def _move(
    stream: Stream,
    target: StreamTarget,
    source: StreamSource,
    before: Position | None,
    position: Position,
    options: StreamOptions,
) -> None:
    if is_broker(target):
        with closing(sink_of(stream, target)) as sink:
            sink.remember(SinkCheckpointKey(stream.name, source.source_id), position)
        return
    offset_store = offset_store_of(stream, target, options, stream.name)
    remember(offset_store, source.source_id, position, options.clock)
    if stream.is_stateful:
        # A run that is under way is fenced by now, and cannot load what it still works out.
        forget_state(stream, target, stream.name, options, before)


def _chosen_position(position: Position) -> Position:
    return {name: value for name, value in without_state(position).items() if name != TURN}

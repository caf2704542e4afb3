"""The loop of a stream that runs: rounds over its targets; one that is backing off does not delay the others."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from ematix_flow.connect.base.event_time import forget_events, newest_event
from ematix_flow.connect.base.retry import TARGET_AWAY, attempts
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.engine.batch.events import traceback_of
from ematix_flow.engine.stream.change_lag import log_lag
from ematix_flow.errors import FencedError, FlowError, PositionMovedError, RefusedError, TargetAwayError
from ematix_flow.events import BatchLoaded, LogLagMeasured, StreamFailed, StreamIdle, StreamLag, StreamWatermark
from ematix_flow.failpoints import failpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from ematix_flow.connect.base.stream_source import Position, StreamSource
    from ematix_flow.declare.stream.stream import Stream
    from ematix_flow.engine.stream.options import StreamOptions
    from ematix_flow.engine.stream.restart_policy import RestartPolicy
    from ematix_flow.engine.stream.sinks.base import StreamSink
    from ematix_flow.records import Counts

MOST = 100_000
"""Messages of a batch, unless declared."""

CLEAN_UP_AFTER = 100
"""Batches after which the metadata of a target is cleaned up."""

_MISSING = re.compile(r"does not exist|doesn't exist|no such table|not found", re.IGNORECASE)
"""How databases report that a table went away between the plan and the commit."""

MOVES = 3
"""How often a target may have moved on before its first load; a process that goes on moving it is alive."""

LAG_EVERY = 5.0
"""Seconds: how often the lag of a source is measured."""


@dataclass
class Tally:
    """What a stream has done, over all of its restarts, and where it ends."""

    rows: int = 0
    batches: int = 0
    end_offset: Position | None = None
    warned: set[str] = field(default_factory=set)
    """What was warned of the source; once is enough."""


@dataclass
class TargetState:
    """A target of a stream and its state."""

    key: str
    open: Callable[[], StreamSink]
    """Opens the target at its position."""
    policy: RestartPolicy
    sink: StreamSink | None = None
    position: Position | None = None
    """Its last known position."""
    until: float | None = None
    """When a target that failed is tried again, in ticks of the clock."""
    loads: int = 0
    loads_before: int = 0
    """How many loads there were when the position was last read."""
    moves: int = 0
    """How often it had moved on before the first load after that."""
    measured: float | None = None

    def reread_position(self) -> bool:
        """Read the position of the target again; return False where another process goes on moving it.

        The commit of a process that was killed counts when the next one resolves it, or arrives when that waits for it:
        between reading the position and the first load.
        """
        if self.loads > self.loads_before or self.moves >= MOVES:
            return False
        self.moves += 1
        self.close()
        return True

    def close(self) -> None:
        """Close the target; its position is read again before it goes on."""
        if self.sink is not None:
            self.sink.close()
        self.sink = None


@dataclass
class Loop:
    """A stream that runs."""

    stream: Stream
    source: StreamSource
    options: StreamOptions
    tally: Tally
    target_states: list[TargetState]
    max_offset: Position | None = None
    """How far the target has come that is ahead of the others."""
    newest: datetime | None = None
    """The newest event time that was emitted."""
    committed_offsets: list[Position] = field(default_factory=list)
    """The positions that were committed to the source."""

    def run(self) -> None:
        """Load until there is a reason to stop."""
        while not self.options.stop.is_set():
            if self._round():
                continue
            if self._arrived():
                return
            self.options.bus.emit(StreamIdle(self.stream.name, ""))
            self.options.stop.wait(self.stream.idle_pause_ms / 1000)

    def close(self) -> None:
        """Close all targets."""
        for target_state in self.target_states:
            target_state.close()
        forget_events(self.source)

    def _round(self) -> bool:
        """Load what is new into every target; one that fails does not keep the others from theirs."""
        failed: list[tuple[TargetState, Exception]] = []
        changed = False
        for target_state in self.target_states:
            if self.options.stop.is_set():
                break
            if target_state.until is not None and target_state.until > self.options.clock.ticks():
                continue
            try:
                changed |= self._advance(target_state)
            except Exception as error:
                if len(self.target_states) == 1 or isinstance(error, FencedError):
                    raise
                failed.append((target_state, error))
            else:
                self._measure(target_state)
        self._commit_offsets()
        for target_state, reason in failed:
            self._back_off(target_state, reason)
        return changed

    def _advance(self, target_state: TargetState) -> bool:
        try:
            # A target with state may have an interrupted batch, which is loaded when it is opened.
            sink = self._open_sink(target_state)
        except PositionMovedError:
            if not target_state.reread_position():
                raise
            return True
        end = self._next_end(sink)
        if end is None:
            return False
        messages = self.source.distance(sink.position, end)
        begun = self.options.clock.ticks()
        try:
            counts = self._loaded(target_state, sink, end)
        except PositionMovedError:
            if not target_state.reread_position():
                raise
            return True
        failpoint("stream.after_batch")
        seconds = self.options.clock.ticks() - begun
        new_messages = self._further(sink.position)
        target_state.position, target_state.loads, target_state.moves = sink.position, target_state.loads + 1, 0
        self.tally.rows += counts.staged + counts.rejected
        self.tally.batches += bool(new_messages)
        target_state.policy.reset()
        self.options.bus.emit(BatchLoaded(self.stream.name, target_state.key, counts, seconds, messages, new_messages))
        self._watermark()
        if target_state.loads % CLEAN_UP_AFTER == 0:
            sink.clean_up()
        return True

    def _next_end(self, sink: StreamSink) -> Position | None:
        """Return how far the next load of a target goes: to its own position where that is due; None where nothing is."""
        most = self.options.most or self.stream.max_rows_per_batch or MOST
        end, sink.next_end = sink.next_end, None
        if end is None:
            end = self.source.ahead(sink.position, most, self.tally.end_offset)
        if not self.source.distance(sink.position, end):
            return sink.position if sink.is_due() else None
        if self.source.reads_ahead and sink.reads_ahead:
            sink.next_end = self._full_range(end, most)
        return end

    def _full_range(self, begin: Position, most: int) -> Position | None:
        """Return where the range behind a position ends, if it is full; what else comes until it is loaded cannot change it."""
        # What is wrong there is told when that range is loaded.
        with suppress(FlowError):
            end = self.source.ahead(begin, most, self.tally.end_offset)
            return end if self.source.distance(begin, end) >= most else None
        return None

    def _loaded(self, target_state: TargetState, sink: StreamSink, end: Position) -> Counts:
        """Load, and again after a pause while the table of the target is gone, as it is when another one takes its name."""

        def is_gone(error: Exception) -> bool:
            missing = isinstance(error, RefusedError) and sink.previously_loaded and _MISSING.search(error.what)
            return isinstance(error, TargetAwayError) or bool(missing)

        def report(error: Exception, seconds: float) -> None:
            self.options.bus.emit(StreamFailed(self.stream.name, target_state.key, safe_text(error), seconds))

        for attempt in attempts(TARGET_AWAY, on=is_gone, stop=self.options.stop, waiting=report):
            with attempt:
                counts = sink.load(end)
        return counts

    def _watermark(self) -> None:
        """Emit how far event time has come: the newest event that was seen, less what may come late.

        A stream with state has a watermark of its own, by the column that it declares.
        """
        if self.stream.is_stateful:
            return
        newest = newest_event(self.source)
        if newest is not None and newest != self.newest:
            self.newest = newest
            declared = self.stream.watermark
            late = timedelta(milliseconds=(declared.lateness_ms or 0) if declared is not None else 0)
            self.options.bus.emit(StreamWatermark(self.stream.name, "", self.source.query, newest - late))

    def _open_sink(self, target_state: TargetState) -> StreamSink:
        if target_state.sink is None:
            target_state.sink, target_state.until = target_state.open(), None
            target_state.position, target_state.loads_before = target_state.sink.position, target_state.loads
            self._further(target_state.position)
        return target_state.sink

    def _further(self, position: Position) -> int:
        """Store how far a target has come and return how many messages no other one had before."""
        new_messages = 0 if self.max_offset is None else self.source.distance(self.max_offset, position)
        if new_messages or self.max_offset is None:
            self.max_offset = position
        return new_messages

    def _commit_offsets(self) -> None:
        """Commit to the source how far all targets are; with a target that was never reached, or a range, nothing."""
        if self.options.ranged:
            return
        positions = [target_state.position for target_state in self.target_states if target_state.position is not None]
        if len(positions) == len(self.target_states) and positions != self.committed_offsets:
            self.source.commit_offsets(positions)
            self.committed_offsets = positions

    def _back_off(self, target_state: TargetState, error: Exception) -> None:
        """Pause a target for a while; when none is left, or the error stays, it is the stream's error."""
        target_state.close()
        last = target_state.policy.end_of(error) if self.options.restart else error
        if last is not None:
            raise last
        pause = target_state.policy.pause()
        target_state.until = self.options.clock.ticks() + pause
        if all(other.sink is None for other in self.target_states):
            raise error
        trace = traceback_of(error)
        self.options.bus.emit(StreamFailed(self.stream.name, target_state.key, safe_text(error), pause, trace))

    def _measure(self, target_state: TargetState) -> None:
        """Emit how much waits for a target; a source that does not answer now fails when it is read."""
        now = self.options.clock.ticks()
        if target_state.sink is None or (target_state.measured is not None and now - target_state.measured < LAG_EVERY):
            return
        target_state.measured = now
        with suppress(FlowError):
            self.options.bus.emit(
                StreamLag(self.stream.name, target_state.key, self._waiting(target_state.sink.position))
            )
            lag = log_lag(self.source, target_state.sink.position)
            if lag is not None and lag.bytes is not None and lag.seconds is not None:
                measured = LogLagMeasured(
                    self.stream.name, target_state.key, lag.bytes, lag.seconds, lag.retained_bytes
                )
                self.options.bus.emit(measured)

    def _waiting(self, position: Position) -> Mapping[str, int]:
        if self.tally.end_offset is not None:
            return {self.source.query: self.source.distance(position, self.tally.end_offset)}
        return self.source.waiting(position)

    def _arrived(self) -> bool:
        end_offset = self.tally.end_offset
        sinks = [target_state.sink for target_state in self.target_states]
        return end_offset is not None and all(
            sink and not self.source.distance(sink.position, end_offset) for sink in sinks
        )

"""Targets that confirm messages and remember nothing: messages are sent first and the position is moved when all are confirmed.

A process that dies in between sends some messages again, with the same ids. No broker is known here.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from ematix_flow.connect.base.local_offsets import LocalPositions
from ematix_flow.connect.base.sink import AT_LEAST_ONCE, Sink
from ematix_flow.failpoints import failpoint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ematix_flow.connect.base.sink import OutgoingMessage, SinkCheckpointKey
    from ematix_flow.connect.base.stream_source import Position


class ConfirmedSink(Sink):
    """A target of a broker whose confirmation is all there is."""

    guarantee = AT_LEAST_ONCE

    @abstractmethod
    def probe(self) -> None:
        """Refuse a target that is not there."""

    @abstractmethod
    def send(self, messages: Sequence[OutgoingMessage]) -> None:
        """Send messages in their order; comes back when all are confirmed."""

    def position(self, checkpoint_key: SinkCheckpointKey) -> Position | None:
        """Return how far a stream has come, as this machine remembers it."""
        return self._positions.position(checkpoint_key)

    def take_over(self, checkpoint_key: SinkCheckpointKey) -> Position | None:
        """Return how far a stream has come; a target that is not there is refused."""
        self.probe()
        return self.position(checkpoint_key)

    def write(
        self, checkpoint_key: SinkCheckpointKey, before: Position, after: Position, messages: Sequence[OutgoingMessage]
    ) -> None:
        """Send messages, then move the position."""
        failpoint("sink.begun")
        if messages:
            self.send(messages)
        failpoint("sink.before_position")
        self._positions.move(checkpoint_key, before, after)
        failpoint("sink.after_commit")

    def remember(self, checkpoint_key: SinkCheckpointKey, position: Position) -> None:
        """Move the position without messages."""
        self._positions.remember(checkpoint_key, position)

    @property
    def _positions(self) -> LocalPositions:
        return LocalPositions(f"{self.kind}:{self.address}")


def requests_of(messages: Sequence[OutgoingMessage], most: int, most_bytes: int) -> Iterator[list[OutgoingMessage]]:
    """Return messages in their order as parts that one request can hold."""
    request: list[OutgoingMessage] = []
    size = 0
    for message in messages:
        length = len(message.value or b"")
        if request and (len(request) == most or size + length > most_bytes):
            yield request
            request, size = [], 0
        request.append(message)
        size += length
    if request:
        yield request

"""What every target of a stream that is no table offers: it takes messages and remembers how far its stream has come.

A sink that can do both in one commit keeps messages from being doubled; the others send first and remember afterwards.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.connect.base.stream_source import Position

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly_once", "at_least_once"

ID_HEADER = "ematix-flow-id"
"""Header of a message's id, where the broker has no field for it."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """What is sent: the payload, and the id that a second copy of the message would carry too."""

    value: bytes | None
    id: str
    key: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SinkCheckpointKey:
    """A stream on its way into a target: the name that positions are stored under, and the source they belong to."""

    name: str
    source: str


class Sink(ABC):
    """One topic, queue or stream of a broker that a stream writes to."""

    kind: ClassVar[str]
    guarantee: str
    """What a reader of the target sees of each message: `exactly_once` or `at_least_once`."""

    @property
    @abstractmethod
    def address(self) -> str:
        """Return the target's address without its secrets; positions are stored per address."""

    @abstractmethod
    def position(self, checkpoint_key: SinkCheckpointKey) -> Position | None:
        """Return how far the stream has come, None before its first messages; no writer is disturbed by it."""

    @abstractmethod
    def take_over(self, checkpoint_key: SinkCheckpointKey) -> Position | None:
        """Get ready to write, and return how far the stream has come.

        A process that wrote for the same stream before is fenced off, where the broker can do that.
        """

    @abstractmethod
    def write(
        self, checkpoint_key: SinkCheckpointKey, before: Position, after: Position, messages: Sequence[OutgoingMessage]
    ) -> None:
        """Send the messages between two positions and remember the second; comes back when both are durable."""

    @abstractmethod
    def remember(self, checkpoint_key: SinkCheckpointKey, position: Position) -> None:
        """Move the position without messages: the beginning of a stream, or where an operator resumes it."""

    def close(self) -> None:  # noqa: B027 - some hold none
        """Let go of connections."""

"""Messages that are at hand, as a source that can be read like a range of a stream; it has no position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ematix_flow.connect.base.stream_source import MESSAGE_OFFSET, VALUE, MessagePartition, StreamSource

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from ematix_flow.connect.base.columns import SourceColumn
    from ematix_flow.connect.base.stream_source import Position


@dataclass(frozen=True, slots=True)
class _Messages:
    """Reads the messages; it travels to the task that does."""

    messages: tuple[tuple[bytes, str], ...]

    def __call__(self) -> Iterator[pa.Table]:
        """Return the payloads with the places they had in their stream."""
        import pyarrow as pa

        payloads = pa.array([payload for payload, _ in self.messages], pa.binary())
        yield pa.table({VALUE: payloads, MESSAGE_OFFSET: pa.array([at for _, at in self.messages], pa.string())})


class MessageList(StreamSource):
    """Messages with the places that they had in their stream."""

    kind: ClassVar[str] = "messages"
    columns: ClassVar[tuple[SourceColumn, ...]] = ()

    def __init__(self, name: str, messages: Sequence[tuple[bytes, str]]) -> None:
        super().__init__(name, name)
        self._messages = tuple(messages)

    def start(self, where: str) -> Position:
        """Return the only position there is."""
        del where
        return {}

    def ahead(self, position: Position, most: int, end_offset: Position | None = None) -> Position:
        """Return the only position there is."""
        del most, end_offset
        return position

    def plan_partitions(self, begin: Position, end: Position, requested: Sequence[str]) -> tuple[MessagePartition, ...]:
        """Return all messages."""
        del begin, end, requested
        return (MessagePartition(self.name, len(self._messages), _Messages(self._messages)),)

    def distance(self, begin: Position, end: Position) -> int:
        """Return how many messages there are."""
        del begin, end
        return len(self._messages)

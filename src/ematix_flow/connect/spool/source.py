"""Queues that forget as sources of streams: what was received is stored in a spool, and numbers in it are positions."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from ematix_flow.connect.base.columns import SourceColumn
from ematix_flow.connect.base.stream_source import EARLIEST, LATEST, REWIND, MessagePartition, StreamSource, from_text
from ematix_flow.connect.spool.log import Spool, spool_folder
from ematix_flow.connect.spool.receiver import Receiver
from ematix_flow.connect.spool.segments import read_batches
from ematix_flow.errors import RunError, StreamLostError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ematix_flow.connect.base.stream_source import Position
    from ematix_flow.connect.spool.receiver import Broker
    from ematix_flow.connect.spool.segments import SegmentBatch

PARTITION_MESSAGES = 25_000
"""About how many messages are read together."""

_NEXT, _SPOOL, _EMPTY = "next", "spool", "until_empty"


class SpooledSource(StreamSource):
    """One queue or subscription."""

    queue_column: ClassVar[str]
    """Name of the column with the name of the queue."""
    quiet: ClassVar[float] = 1.0
    """Seconds without a message after which the queue is taken for empty."""

    def __init__(self, name: str, query: str) -> None:
        super().__init__(name, query)
        self._spool: Spool | None = None
        self._receiver: Receiver | None = None

    @property
    @abstractmethod
    def address(self) -> str:
        """Return the address of the queue, without a login; the same name at another address is another queue."""

    @abstractmethod
    def broker(self) -> Broker:
        """Return a connection to the queue that is not open yet."""

    @property
    def read_paths(self) -> tuple[str, ...]:
        """Return the folder in which received messages wait."""
        return (str(self._spool_folder),)

    @property
    def _spool_folder(self) -> Path:
        return spool_folder(f"{self.kind}:{self.query}@{self.address}")

    def begin(self) -> None:
        """Own the spool, and receive."""
        self._spool = self._open_spool(own=True)
        self._receiver = Receiver(self.broker(), self._spool)

    def start(self, where: str) -> Position:
        """Return the position of the oldest message that is retained, the one after the newest, or a given number."""
        spool = self._open_spool()
        if where == EARLIEST:
            return {_SPOOL: spool.id, _NEXT: spool.first}
        if where == LATEST:
            # The end of a queue is not known before it has been received.
            return {_SPOOL: spool.id, _NEXT: spool.end, _EMPTY: True}
        if where.lstrip().startswith("{"):
            return self._requested_position(from_text(where), spool)
        message = f"{where!r} is no place in a queue, which keeps no past"
        raise RunError(message, hint='say earliest, latest or a number as {"next": 120}.')

    def ahead(self, position: Position, most: int, end_offset: Position | None = None) -> Position:
        """Return the number up to which messages are safe in the spool."""
        spool = self._open_spool()
        at, end = self._next_number(position, spool), spool.end
        if end_offset is not None and not end_offset.get(_EMPTY):
            end = max(at, min(end, int(end_offset[_NEXT])))
        if self._receiver is not None:
            self._receiver.check(idle=end == at)
        return {_SPOOL: spool.id, _NEXT: min(end, at + most)}

    def gone_before(self, position: Position) -> str | None:
        """Return the messages that were removed from the spool because every target had them, where none is before a position."""
        first = self._open_spool().first
        if int(position[_NEXT]) > first or first == 0:
            return None
        return f"messages 0 to {first - 1} of the spool of {self.query!r} are gone: every target had them"

    def plan_partitions(
        self, begin: Position, end: Position, column_names: Sequence[str]
    ) -> tuple[MessagePartition, ...]:
        """Return the messages between two numbers."""
        spool, first, last = self._open_spool(), int(begin[_NEXT]), int(end[_NEXT])
        queue = (self.queue_column, self.query)
        groups = _groups(spool.batches(first, last))
        return tuple(
            MessagePartition(
                f"{self.query}/{max(first, group[0].first)}-{min(last, group[-1].end) - 1}",
                min(last, group[-1].end) - max(first, group[0].first),
                partial(read_batches, tuple(group), first, last, queue, tuple(column_names)),
            )
            for group in groups
        )

    def distance(self, begin: Position, end: Position) -> int:
        """Return the difference of two numbers; the end of a queue is not reached before it has been empty for a while."""
        if not end.get(_EMPTY):
            return max(0, int(end[_NEXT]) - int(begin[_NEXT]))
        spool = self._open_spool()
        left = spool.end - int(begin[_NEXT])
        quiet = self._receiver is not None and self._receiver.silence >= self.quiet
        # Read again: a message may have come between the two reads.
        return left or spool.end - int(begin[_NEXT]) if quiet else max(1, left)

    def waiting(self, position: Position) -> Mapping[str, int]:
        """Return how many messages wait in the spool; what still lies in the queue is not known here."""
        return {self.query: max(0, self._open_spool().end - int(position[_NEXT]))}

    def commit_offsets(self, positions: Sequence[Position]) -> None:
        """Remove what every target has."""
        if self._receiver is not None and self._spool is not None and positions:
            self._spool.trim(min(int(position[_NEXT]) for position in positions))

    def close(self) -> None:
        """End the receiving and release the spool."""
        if self._receiver is not None:
            self._receiver.close()
        if self._spool is not None:
            self._spool.close()
        self._receiver = self._spool = None

    def _open_spool(self, *, own: bool = False) -> Spool:
        if self._spool is None:
            self._spool = Spool(self._spool_folder, own=own)
        return self._spool

    def _next_number(self, position: Position, spool: Spool) -> int:
        """Return the number of a position; one of another spool, or whose messages are gone, is refused."""
        at = int(position[_NEXT])
        if position.get(_SPOOL) != spool.id:
            message = f"the spool of {self.query!r} is not the one that was read before"
            raise StreamLostError(message, hint=f"give back its folder, or {REWIND}")
        if not spool.first <= at <= spool.end:
            message = f"the spool of {self.query!r} has messages {spool.first} to {spool.end - 1}, and {at} is next"
            raise StreamLostError(message, hint=REWIND)
        return at

    def _requested_position(self, requested: Position, spool: Spool) -> Position:
        number = requested.get(_NEXT)
        if not isinstance(number, int) or not spool.first <= number <= spool.end:
            message = f"{number!r} is no place in the spool of {self.query!r}, which has {spool.first} to {spool.end}"
            raise RunError(message, hint=f'for example {{"next": {spool.first}}}.')
        return {_SPOOL: spool.id, _NEXT: number}


def metadata_columns(queue: str) -> tuple[SourceColumn, ...]:
    """Return what messages have besides their payload, with the column that names their queue."""
    return (
        SourceColumn("_key", "text"),
        SourceColumn("_headers", "text"),
        SourceColumn("_event_ts", "timestamp_tz"),
        SourceColumn("_message_id", "text"),
        SourceColumn(queue, "text"),
    )


def _groups(batches: Sequence[SegmentBatch]) -> list[list[SegmentBatch]]:
    """Put neighbours together until they are worth a partition of their own."""
    groups: list[list[SegmentBatch]] = []
    for batch in batches:
        if not groups or sum(one.count for one in groups[-1]) >= PARTITION_MESSAGES:
            groups.append([])
        groups[-1].append(batch)
    return groups

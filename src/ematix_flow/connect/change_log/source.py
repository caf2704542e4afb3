"""What sources have in common that read the log of a database; positions and reading are up to each."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from ematix_flow.connect.base.stream_source import TURN, StreamSource
from ematix_flow.connect.change_log.lag import LagLimits
from ematix_flow.connect.change_log.messages import COLUMNS
from ematix_flow.errors import StreamLostError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ematix_flow.connect.base.columns import SourceColumn
    from ematix_flow.connect.base.database import Database
    from ematix_flow.connect.base.stream_source import Position
    from ematix_flow.connect.change_log.lag import LogLag
    from ematix_flow.connect.change_log.tables import TableId


REWIND = "say where to go on with: flow stream rewind NAME --to earliest | latest | a position in the log as JSON."
"""What becomes of a stream whose place is lost; logs are not asked for instants."""

EPOCH = "epoch"
"""Key in a position that an operator chose in the log that was read before: its epoch, which goes on."""


def epoch_of(position: Position) -> int:
    """Return in which epoch the messages behind a position are: those of a later one are later, whatever their places.

    The log behind a position that an operator chose may be another one than before, with lower places. So every turn is an
    epoch of its own, unless the position says otherwise.
    """
    return int(position[EPOCH] if EPOCH in position else position.get(TURN, 0))


def in_epoch(position: Position, end: Position) -> Position:
    """Return the end of a range with the epoch that the position before it says."""
    return end | {EPOCH: position[EPOCH]} if EPOCH in position else end


class ChangeLogSource(StreamSource):
    """Tables of a database whose log is read."""

    columns: ClassVar[tuple[SourceColumn, ...]] = COLUMNS

    limits: LagLimits = LagLimits()
    """How far a target may be behind."""

    @abstractmethod
    def lag(self, position: Position | None) -> LogLag:
        """Return how far a position is behind the log, and what the server keeps for the stream; None: before the first load."""

    @abstractmethod
    def catalog(self) -> Database:
        """Return the database whose log is read, which knows the types of columns."""

    @abstractmethod
    def tables(self) -> tuple[TableId, ...]:
        """Return the tables that the query names and that are there."""

    def unlogged_columns(self) -> Mapping[TableId, frozenset[str]]:
        """Return the columns whose values the log does not have, by their table."""
        return {}

    @abstractmethod
    def refuse_other_log(self, position: Position) -> None:
        """Refuse a position in a log that is not the one of this server, or no longer."""

    def is_snapshot(self, begin: Position, end: Position) -> bool:
        """Return whether a range has all rows that a table had at one position, and no change behind it is older."""
        del begin, end
        return False

    def seek(self, position: Position | None, where: str) -> Position:
        """Return the position that an operator means; only one that is written out for the same log stays in its epoch."""
        chosen = self.first_position(where)
        if position is None or not where.lstrip().startswith("{"):
            return chosen
        try:
            self.refuse_other_log(position)
        except StreamLostError:
            return chosen
        return chosen | {EPOCH: epoch_of(position)}

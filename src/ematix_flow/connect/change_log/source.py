"""What sources have in common that read the log of a database; positions and reading are up to each."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from ematix_flow.connect.base.stream_source import StreamSource
from ematix_flow.connect.change_log.lag import LagLimits
from ematix_flow.connect.change_log.messages import COLUMNS

if TYPE_CHECKING:
    from ematix_flow.connect.base.columns import SourceColumn
    from ematix_flow.connect.base.stream_source import Position
    from ematix_flow.connect.change_log.lag import LogLag
    from ematix_flow.connect.change_log.tables import TableId


class ChangeLogSource(StreamSource):
    """Tables of a database whose log is read."""

    columns: ClassVar[tuple[SourceColumn, ...]] = COLUMNS

    limits: LagLimits = LagLimits()
    """How far a target may be behind."""

    @abstractmethod
    def lag(self, position: Position | None) -> LogLag:
        """Return how far a position is behind the log, and what the server keeps for the stream; None: before the first load."""

    @abstractmethod
    def tables(self) -> tuple[TableId, ...]:
        """Return the tables that the query names and that are there."""

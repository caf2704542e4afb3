"""What sources have in common that read the log of a database; positions and reading are up to each."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from ematix_flow.connect.base.stream_source import StreamSource
from ematix_flow.connect.change_log.messages import COLUMNS

if TYPE_CHECKING:
    from ematix_flow.connect.base.columns import SourceColumn
    from ematix_flow.connect.change_log.tables import TableId


class ChangeLogSource(StreamSource):
    """Tables of a database whose log is read."""

    columns: ClassVar[tuple[SourceColumn, ...]] = COLUMNS

    @abstractmethod
    def tables(self) -> tuple[TableId, ...]:
        """Return the tables that the query names and that are there."""

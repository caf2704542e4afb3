"""What a load needs of a warehouse: a query, a relation with staged rows, and a transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ematix_flow.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Staged:
    """Rows in the warehouse that no reader of the target sees yet."""

    relation: str
    """Its name in SQL."""
    rows: int


class WarehouseSession(ABC):
    """One connection to a warehouse."""

    kind: ClassVar[str]
    transaction_suffix: ClassVar[str] = ""
    """What follows BEGIN, COMMIT and ROLLBACK."""

    @abstractmethod
    def read(self, sql: str) -> pa.RecordBatchReader:
        """Return the rows of a query, some at a time."""

    @abstractmethod
    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows; none for a statement that has no result."""

    @abstractmethod
    def columns_sql(self, schema: pa.Schema) -> str:
        """Return the columns of CREATE TABLE for rows of these types."""

    @abstractmethod
    def stage(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch], token: str) -> Staged:
        """Write rows to a relation of their own, which this session drops at its end; an earlier attempt's are not in it."""

    def begin(self) -> None:
        """Begin a transaction."""
        self.query(f"BEGIN{self.transaction_suffix}")

    def commit(self) -> None:
        """Commit it; an error here leaves open whether it happened."""
        self.query(f"COMMIT{self.transaction_suffix}")

    def rollback(self) -> None:
        """Undo it; a connection that is gone has done so."""
        with suppress(RunError):
            self.query(f"ROLLBACK{self.transaction_suffix}")

    @abstractmethod
    def close(self) -> None:
        """Drop what was staged and end the connection."""

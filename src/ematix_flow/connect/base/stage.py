"""What staging is made of: what a task needs to know, the columns it writes, and the writer that a system provides."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from ematix_flow.declare.table.types import ColumnType

ATTEMPT = "_attempt"
"""Column of a staging table that names the task attempt a row came from."""

FAILED = "_flow_failed"
"""Column in which a read or a shape says why a row cannot be carried, as `column: reason`; NULL for good rows."""

UNREAD = "_flow_unread"
"""Column in which a read gives the values that it could not carry, as an object of texts; their columns have NULL."""

NULL_REASON = "is NULL but the column is NOT NULL"
UNPARSED = "could not be parsed"
"""Why a row without a value that it needs is rejected."""


@dataclass(frozen=True, slots=True)
class StageSpec:
    """Everything a task needs to stage rows of one load."""

    name: str
    """Unique for the load and this driver's incarnation."""
    schema: bytes
    """Serialised Arrow schema of the staged rows."""
    folder: str = ""
    """Where file-staging systems put their parts."""
    columns: tuple[StageColumn, ...] = ()
    lookup: bool = True
    """False when no statement of the commit looks staged rows up by their key, so that an index would not pay."""
    required: frozenset[str] = frozenset()
    """Columns that are never NULL; staging may hold its writers to that."""
    stamp: tuple[str, str] = ("", "")
    """The instant of the load in ISO form and its batch id, for systems whose tasks write the final rows."""
    options: tuple[tuple[str, Any], ...] = ()
    """How files are written, where the target is one of files."""
    final: bool = False
    """The staged files become files of the table as they are."""


@dataclass(frozen=True, slots=True)
class StageColumn:
    """A column that is staged: its declared type, or that of a carried framework column."""

    name: str
    type: ColumnType
    in_key: bool = False
    native: str = ""
    """What the database calls the column's type where no declared type is the same: it casts the values itself."""


@dataclass(frozen=True, slots=True)
class WorkTable:
    """A scratch table that a mode's program fills inside the commit."""

    name: str
    columns: tuple[StageColumn, ...]
    key: tuple[str, ...] = ()


class Stager(ABC):
    """Writes the rows of one task attempt into staging; runs inside a task."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Stage rows that fit the staged schema."""

    @abstractmethod
    def reject(self, batch: pa.RecordBatch) -> None:
        """Stage rejected rows (schema `REJECTS` of `connect.types.arrow`)."""

    @abstractmethod
    def finish(self) -> tuple[str, str]:
        """Make the attempt durable and return the paths of rows and rejects where the system stages in files."""

    @abstractmethod
    def abandon(self) -> None:
        """Drop what was staged, as far as that is possible."""

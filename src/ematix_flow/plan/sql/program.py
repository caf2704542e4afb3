"""The statements of a load as data: what is executed in the commit, in order, and what each one's row count means."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from ematix_flow.connect.base.columns import TableName
    from ematix_flow.connect.base.session import Statement
    from ematix_flow.connect.base.stage import StageColumn, WorkTable
    from ematix_flow.declare.pipeline.write import Replaced


INCOMING = "_flow_incoming"
"""Scratch table for the rows of the source query on the same-database path."""


@dataclass(frozen=True, slots=True)
class DuplicateChecks:
    """How a load with several rows for one key is detected."""

    repeated_keys: str
    """Query that names keys which occur more than once among the rows of the staged relation."""
    distinct: str
    """Relation of the distinct staged rows, or of those that count; a key that is still repeated there is refused."""
    ordered: bool = False
    """True when the rows have an order, so that one of each key counts."""


@dataclass(frozen=True, slots=True)
class Program:
    """A mode as SQL over the staged relation and the target."""

    label: str
    statements: tuple[Statement, ...]
    work_tables: tuple[WorkTable, ...] = ()
    reads_staged_once: bool = True
    """True when staging is read by one statement, so that it need not be stored in a scratch table."""
    duplicates: DuplicateChecks | None = None
    """None where several rows for one key are allowed."""
    points: TableName | None = None
    """Where scd2 with event time remembers folded events."""
    tally: str = ""
    """Query for names of counts and the counts that the program would have, where it cannot be rolled back."""
    adds: bool = False
    """True when the staged files become files of the table as they are; the one statement only registers them."""
    tells: bool = False
    """True when the final statement itself returns its counts, so that a run need not query them."""
    retaining: Program | None = None
    """What runs instead where rows were rejected: it takes no key for absent. None where no key ever is."""

    def materializes_incoming(self, *, marked: bool, audited: bool) -> bool:
        """Return whether the rows of a source query are stored in INCOMING first, to be read more than once."""
        return marked or audited or not self.reads_staged_once or self.duplicates is not None


@dataclass(frozen=True, slots=True)
class ChangeRules:
    """How changes are applied to a table, and where its keys have their versions."""

    scope: str
    """The name under which versions are remembered: another stream into the same table has versions of its own."""
    versions: TableName | None = None
    """The table of versions by key; None where rows have their version in a column of their own."""
    soft: str = ""
    """Column that says since when a row is deleted; empty where rows are deleted."""
    inserts: bool = True
    """Whether an update inserts a row that is not there."""
    required: tuple[str, ...] = ()
    """Columns that are never NULL."""
    casts: tuple[tuple[str, str], ...] = ()
    """Columns of types that only the database knows, with what casts a value of `s` to them, in its dialect."""
    is_snapshot: bool = False
    """Whether the changes are all rows that the table had at one position of the log, and no change is older."""
    tolerated_ms: int = 0
    """By how much a change may be older than what its key has before it counts as late."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a mode's program is built from: the table, its columns and the constants of this load."""

    dialect: str
    target: TableName
    columns: tuple[StageColumn, ...]
    loaded_at: datetime
    batch_id: str
    keys: tuple[str, ...] = ()
    update: tuple[str, ...] = ()
    compare: tuple[str, ...] = ()
    event: str = ""
    """Staged column with the event time, for scd2 by event time."""
    points: TableName | None = None
    delete_absent: bool = False
    replaced: Replaced | None = None
    """Rows without a staged key that staged rows take the place of; None where there are none."""
    expire_before: datetime | None = None
    """Current versions that are older than this are closed (ttl)."""
    forget_before: datetime | None = None
    """Remembered events that were loaded before this are pruned."""
    extra: tuple[StageColumn, ...] = field(default=())
    """Staged columns that the target does not have."""
    order: tuple[str, ...] = ()
    """Staged columns with the position of a row in its source, the greatest is the last; empty where rows have none."""
    order_by: tuple[str, ...] = ()
    """Columns by which the greatest row of a key counts, before its position."""
    stamped: bool = True
    """False where rows have no column for the load that brought them."""
    folder: str = ""
    """Where the files of the table go, where it is a list of files."""
    changes: ChangeRules | None = None
    """How staged changes are applied; None where rows are staged."""

    @property
    def stamps(self) -> tuple[str, ...]:
        """Return the columns for when and by which load a row came."""
        return ("_loaded_at", "_batch_id") if self.stamped else ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return the declared column names."""
        return tuple(column.name for column in self.columns)

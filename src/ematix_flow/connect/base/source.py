"""What a batch source is: rows that tasks read, and for databases how a query over them is divided and read."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import nullcontext
from typing import TYPE_CHECKING

from ematix_flow.connect.base.catalog import Catalog
from ematix_flow.connect.base.system import System

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from ematix_flow.connect.base.columns import SourceColumn
    from ematix_flow.connect.base.session import Opened, Session, Split


class SourceSystem(System):
    """Rows of a batch pipeline, whichever component reads them."""

    @property
    def read_paths(self) -> tuple[str, ...]:
        """Return what of this machine's disk a task needs that reads from here; servers need nothing."""
        return ()


class SqlSource(SourceSystem, Catalog):
    """A source that answers queries of its own SQL, which tasks read in parts."""

    timezone: str | None = None
    """The zone of this database's timestamps without one; UTC when it declares none."""

    @abstractmethod
    def describe(self, session: Session, sql: str) -> tuple[SourceColumn, ...]:
        """Return the columns of a query without reading rows."""

    @abstractmethod
    def interchange(self, column: SourceColumn, expression: str) -> str:
        """Return the expression that reads a column so that Arrow carries it exactly."""

    @abstractmethod
    def open_read(self, session: Session, sql: str, parallel: int) -> Opened:
        """Prepare a repeatable read of a query as splits: about `parallel` of them, fewer of little, more of much."""

    def open_reads(self, session: Session, queries: Sequence[str], parallel: int) -> tuple[Opened, ...]:
        """Prepare the reads of several queries; all of them in one state of the database where it can show one to many tasks."""
        return tuple(self.open_read(session, sql, parallel) for sql in queries)

    @abstractmethod
    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Read one split; runs inside a task."""

    def read_in_order(self, session: Session, sql: str) -> Iterator[pa.RecordBatch]:
        """Read a whole query in one state of the database, in the order of its rows."""
        opened = self.open_read(session, sql, 1)
        with opened.resources or nullcontext():
            for split in opened.splits:
                yield from self.read(split)

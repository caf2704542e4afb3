"""As much of a database as our own tables need; every database is one, and so is an SQLite file in a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.connect.base.columns import TableName, TableSchema
    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.stage import StageColumn
    from ematix_flow.declare.table.partitions import Partition
    from ematix_flow.declare.table.types import ColumnType


class MetadataStore(Protocol):
    """As much of a database as our own tables need."""

    @property
    def dialect(self) -> str:
        """Return the name by which sqlglot knows its SQL."""

    @property
    def errors(self) -> tuple[type[BaseException], ...]:
        """Return the exception classes of the driver."""

    def is_duplicate_key(self, error: BaseException) -> bool:
        """Return whether the error is a violation of a unique constraint."""

    def metadata_table(self, name: str) -> TableName:
        """Return the location of one of our own tables."""

    def create_schema(self, session: Session, schema: str) -> None:
        """Create a schema when it is missing and this system has schemas."""

    def find_table(self, session: Session, table: TableName) -> TableSchema | None:
        """Describe a table, or None when it does not exist."""

    def ddl_type(self, column_type: ColumnType, *, in_key: bool = False) -> str:
        """Return the type of a declared column in this database's DDL."""

    def check_clause(self, column: StageColumn) -> str:
        """Return a CHECK condition for limits that this database does not enforce by type."""

    def table_options(self, partitions: Sequence[Partition] = ()) -> str:
        """Return what follows the column list in CREATE TABLE."""

"""Our own tables in SQLite, for targets whose metadata is an SQLite database in a store."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, ClassVar

from ematix_flow.connect.base.columns import TableName
from ematix_flow.connect.sqlite import catalog as sqlite_catalog
from ematix_flow.connect.sqlite import types as sqlite_types
from ematix_flow.connect.sqlite.session import primary_code
from ematix_flow.connect.types.identifiers import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from ematix_flow.connect.base.columns import TableSchema
    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.stage import StageColumn
    from ematix_flow.connect.sqlite.session import SQLiteSession
    from ematix_flow.declare.table.partitions import Partition
    from ematix_flow.declare.table.types import ColumnType

STAGED_REJECTS = "_flow_stage_rejects"


class SQLiteMetadataTables:
    """The rules by which our own tables are created and reflected."""

    dialect: ClassVar[str] = "sqlite"

    @property
    def errors(self) -> tuple[type[BaseException], ...]:
        """Return what SQLite raises."""
        return (sqlite3.Error,)

    def is_duplicate_key(self, error: BaseException) -> bool:
        """Return whether a unique constraint was violated."""
        return isinstance(error, sqlite3.Error) and primary_code(error) == sqlite3.SQLITE_CONSTRAINT

    def metadata_table(self, name: str) -> TableName:
        """Our own tables have a prefix."""
        return TableName("", f"ematix_flow_{name}")

    def create_schema(self, session: Session, schema: str) -> None:
        """Do nothing: there are no schemas."""

    def find_table(self, session: Session, table: TableName) -> TableSchema | None:
        """Describe a table."""
        return sqlite_catalog.find_table(session, table.name)

    def ddl_type(self, column_type: ColumnType, *, in_key: bool = False) -> str:
        """Return the DDL type."""
        del in_key
        return sqlite_types.ddl_type(column_type)

    def check_clause(self, column: StageColumn) -> str:
        """Check nothing: only we write here."""
        del column
        return ""

    def table_options(self, partitions: Sequence[Partition] = ()) -> str:
        """Nothing follows the column list."""
        del partitions
        return ""


def load_rejects(session: SQLiteSession, names: Sequence[str], batches: Iterable[pa.RecordBatch]) -> str:
    """Load staged rejects into a temporary table of a session and return its name."""
    session.execute(f"DROP TABLE IF EXISTS temp.{quoted(STAGED_REJECTS)}")
    session.execute(f"CREATE TEMP TABLE {quoted(STAGED_REJECTS)} ({', '.join(f'{quoted(n)} TEXT' for n in names)})")
    table = f"temp.{quoted(STAGED_REJECTS)}"
    for batch in batches:
        session.fill(table, len(names), zip(*(column.to_pylist() for column in batch.columns), strict=True))
    return table

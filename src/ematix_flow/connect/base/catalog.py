"""What a system of tables declares about itself: sessions, errors, and how its tables are named, typed and listed."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from ematix_flow.connect.base.system import System
from ematix_flow.connect.types.existing import ExistingTypes
from ematix_flow.errors import TransientError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.connect.base.capabilities import Capabilities
    from ematix_flow.connect.base.columns import TableName, TableSchema
    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.stage import StageColumn
    from ematix_flow.declare.table.partitions import Partition
    from ematix_flow.declare.table.types import ColumnType


class Catalog(System):
    """A system with tables, whichever component reads or writes their rows."""

    capabilities: Capabilities
    existing: ClassVar[ExistingTypes] = ExistingTypes()
    """How values get into columns of types that no declaration spells."""
    task_imports: ClassVar[tuple[str, ...]] = ()
    """Modules that its reads and stagers load inside tasks, which workers may have at hand."""

    @abstractmethod
    def identity(self) -> tuple[str, ...]:
        """Return what makes two connections the same database."""

    @abstractmethod
    def session(self) -> Session:
        """Open a control connection with deadlines set."""

    def exists(self) -> bool:
        """Return whether there is a database to open; opening one that is a missing file would create it."""
        return True

    def read_only_session(self) -> Session:
        """Open a read-only session: it waits for no lock, and the database stays as it is."""
        return self.session()

    def confined_session(self) -> Session:
        """Open a read-only session for queries of strangers, which cannot open other files and databases where a query could."""
        return self.read_only_session()

    def explain(self, session: Session, sql: str) -> None:
        """Have the database check a query without running it."""
        session.query(f"EXPLAIN {sql}")

    # Errors

    @property
    @abstractmethod
    def errors(self) -> tuple[type[BaseException], ...]:
        """Return the exception classes of the driver."""

    @property
    def failures(self) -> tuple[type[BaseException], ...]:
        """Return what a query of this database may raise when it is away: the driver's exceptions and the system's."""
        return (*self.errors, OSError, TransientError)

    @abstractmethod
    def is_transient(self, error: BaseException) -> bool:
        """Return whether the same work may succeed when it is tried again."""

    @abstractmethod
    def is_duplicate_key(self, error: BaseException) -> bool:
        """Return whether the error is a violation of a unique constraint."""

    # Tables

    @abstractmethod
    def table_name(self, schema: str, name: str) -> TableName:
        """Apply the naming rules of this system to a declared table."""

    @abstractmethod
    def find_table(self, session: Session, table: TableName) -> TableSchema | None:
        """Describe a table, or None when it does not exist."""

    def table_names(self, session: Session) -> list[tuple[str, str]]:
        """Return schema and name of the tables and views that a person may mean; for hints."""
        rows = session.query("SELECT table_schema, table_name FROM information_schema.tables")
        ours = ("information_schema", "pg_catalog", "performance_schema", "mysql", "sys")
        return [(str(schema), str(name)) for schema, name in rows if str(schema).lower() not in ours]

    @abstractmethod
    def create_schema(self, session: Session, schema: str) -> None:
        """Create a schema when it is missing and this system has schemas."""

    def table_options(self, partitions: Sequence[Partition] = ()) -> str:
        """Return what follows the column list in CREATE TABLE; most databases have no partitions."""
        del partitions
        return ""

    # Types of columns

    @abstractmethod
    def ddl_type(self, column_type: ColumnType, *, in_key: bool = False) -> str:
        """Return the type of a declared column in this database's DDL."""

    def check_clause(self, column: StageColumn) -> str:
        """Return a CHECK condition for limits that this database does not enforce by type."""
        del column
        return ""

    def same_type(self, existing: str, declared: str) -> bool:
        """Return whether a reflected type is what the DDL of a declaration creates."""
        return existing.replace(" ", "").upper() == declared.replace(" ", "").upper()

    def widening(self, existing: str, declared: str) -> bool:
        """Return whether a column can be altered from one type to the other without losing a value."""
        del existing, declared
        return False

    def alter_type_sql(self, table: str, column: str, declared: str, *, nullable: bool) -> str:
        """Return the statement that widens a column; empty where no type can be widened."""
        del table, column, declared, nullable
        return ""

"""The interface of a system: what every file in this folder gives; no system is named here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from ematix_flow.connect.base.lake_engine import SparkRequirements
from ematix_flow.connect.base.maintenance import Maintainable
from ematix_flow.connect.types.existing import ExistingTypes
from ematix_flow.errors import TransientError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from ematix_flow.connect.base.capabilities import Capabilities
    from ematix_flow.connect.base.columns import FoundColumn, FoundTable, SourceColumn, TableName
    from ematix_flow.connect.base.lake_engine import LakeEngine
    from ematix_flow.connect.base.metadata_store import MetadataStore
    from ematix_flow.connect.base.session import Opened, Session, Split
    from ematix_flow.connect.base.stage import StageColumn, Stager, StageSpec, WorkTable
    from ematix_flow.declare.table.partitions import Partition
    from ematix_flow.declare.table.types import ColumnType
    from ematix_flow.records import Part


class Database(Maintainable, ABC):
    """A SQL database as a source and as a target."""

    kind: ClassVar[str]
    dialect: ClassVar[str]
    """The name by which sqlglot knows its SQL."""
    capabilities: Capabilities
    task_imports: ClassVar[tuple[str, ...]] = ()
    """Modules that its reads and stagers load inside tasks, which workers may have at hand."""
    spark_requirements: ClassVar[SparkRequirements] = SparkRequirements()
    existing: ClassVar[ExistingTypes] = ExistingTypes()
    """How values get into columns of types that no declaration spells."""
    timezone: str | None = None
    """The zone of this database's timestamps without one; UTC when it says nothing."""

    @property
    def read_paths(self) -> tuple[str, ...]:
        """Return what of this machine's disk a task needs that reads from here; servers need nothing."""
        return ()

    @property
    def write_paths(self) -> tuple[str, ...]:
        """Return the folders of this machine that tasks write to when rows are loaded into this target."""
        return ()

    @property
    def part_paths(self) -> tuple[str, ...]:
        """Return the folders of this machine in which parts wait for the driver, who could also fetch them elsewhere."""
        return ()

    @abstractmethod
    def identity(self) -> tuple[str, ...]:
        """Return what makes two connections the same database."""

    @abstractmethod
    def info(self) -> Mapping[str, object]:
        """Return host, port, dbname and user for people; no secret."""

    @abstractmethod
    def probe(self) -> str:
        """Ask the system for a sign of life and give a sentence about it; no secret."""

    @abstractmethod
    def session(self) -> Session:
        """Open a control connection with deadlines set."""

    def exists(self) -> bool:
        """Return whether there is a database to open; opening one that is a missing file would create it."""
        return True

    def look(self) -> Session:
        """Open a session that is only for looking: it waits for no lock, and the database stays as it is."""
        return self.session()

    @property
    def books(self) -> MetadataStore:
        """Return what keeps our own tables: this database, unless its tables cannot hold them."""
        return self

    def use(self, engine: Callable[[], LakeEngine]) -> None:
        """Take the engine that reads and writes the rows; most systems have one of their own."""
        del engine

    def make_table(self, columns: Sequence[FoundColumn]) -> bool:
        """Make a table, without partitions, in which these columns are found; False where that needs a statement, or where one is there."""
        del columns
        return False

    def add_staged(self, session: Session, spec: StageSpec, parts: Sequence[Part]) -> None:
        """Make the staged files part of the table, in the transaction of the books."""
        del session, spec, parts
        raise NotImplementedError(f"{self.kind} takes rows, not files")

    def data(self, session: Session) -> Session:
        """Return the session over the rows of tables that belongs to a session: the same one, unless these lie elsewhere."""
        return session

    @abstractmethod
    def is_transient(self, error: BaseException) -> bool:
        """Return whether the same work may succeed when it is tried again."""

    @abstractmethod
    def is_duplicate_key(self, error: BaseException) -> bool:
        """Return whether the error is a violation of a unique constraint."""

    @property
    @abstractmethod
    def errors(self) -> tuple[type[BaseException], ...]:
        """Return the exception classes of the driver."""

    @property
    def failures(self) -> tuple[type[BaseException], ...]:
        """Return what asking this database may raise when it is away: the driver's exceptions and the system's."""
        return (*self.errors, OSError, TransientError)

    # Tables

    @abstractmethod
    def place(self, schema: str, name: str) -> TableName:
        """Apply the naming rules of this system to a declared table."""

    @abstractmethod
    def bookkeeping(self, name: str) -> TableName:
        """Return the place of one of our own tables."""

    @abstractmethod
    def ddl_type(self, column_type: ColumnType, *, in_key: bool = False) -> str:
        """Return the type of a declared column in this database's DDL."""

    @abstractmethod
    def find_table(self, session: Session, table: TableName) -> FoundTable | None:
        """Describe a table, or None when it does not exist."""

    def table_names(self, session: Session) -> list[tuple[str, str]]:
        """Return schema and name of the tables and views that a person may mean; for hints."""
        rows = session.query("SELECT table_schema, table_name FROM information_schema.tables")
        ours = ("information_schema", "pg_catalog", "performance_schema", "mysql", "sys")
        return [(str(schema), str(name)) for schema, name in rows if str(schema).lower() not in ours]

    @abstractmethod
    def fingerprint(self, session: Session, table: TableName, columns: Sequence[str]) -> str:
        """Return a text that is another one when rows of a table change in these columns; EMPTY when it has none."""

    def begin_alone(self, session: Session, tables: Sequence[TableName]) -> None:
        """Open a transaction in which nobody else changes these tables, as far as that needs anything more."""
        del tables
        session.begin()

    @abstractmethod
    def create_schema(self, session: Session, schema: str) -> None:
        """Create a schema when it is missing and this system has schemas."""

    def table_options(self, partitions: Sequence[Partition] = ()) -> str:
        """Return what follows the column list in CREATE TABLE; most databases are never asked for partitions."""
        del partitions
        return ""

    def check_files(self, options: Mapping[str, Any]) -> None:
        """Refuse options of files that this system does not take; here all of them."""
        for name in options:
            message = f"{name}= is an option of files, and the target is {self.kind}"
            raise UnsupportedError(message, hint="leave it out, or write to an object store.")

    def check_clause(self, column: StageColumn) -> str:
        """Return a CHECK condition for limits that this database does not enforce by type."""
        del column
        return ""

    def same_type(self, found: str, wanted: str) -> bool:
        """Return whether a reflected type is what the DDL of a declaration asks for."""
        return found.replace(" ", "").upper() == wanted.replace(" ", "").upper()

    def widening(self, found: str, wanted: str) -> bool:
        """Return whether a column can be altered from one type to the other without losing a value."""
        del found, wanted
        return False

    def alter_type_sql(self, table: str, column: str, wanted: str, *, nullable: bool) -> str:
        """Return the statement that widens a column."""
        raise NotImplementedError

    # Reading

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

    # Staging

    @abstractmethod
    def open_stage(self, session: Session, spec: StageSpec) -> StageSpec:
        """Create the staging of a load with a plain create, so that a name clash is an error."""

    @abstractmethod
    def stager(self, spec: StageSpec, partition: int, attempt: int) -> Stager:
        """Open staging for one task attempt; runs inside a task."""

    def relays(self, source: Database, session: Session, split: Split, spec: StageSpec) -> bool:
        """Return whether `relay` can stage a split of this source; `session` is one of the source's."""
        del source, session, split, spec
        return False

    def relay(self, source: Database, split: Split, spec: StageSpec, attempt: int, count: Callable[[int], None]) -> int:
        """Stage a split without looking at its values and give the rows; `count` hears of them; runs inside a task."""
        raise NotImplementedError

    @abstractmethod
    def verify_stage(self, session: Session, spec: StageSpec, parts: Sequence[Part]) -> None:
        """Compare staging with the reports of the winning attempts; raises StagingLostError on any difference."""

    @abstractmethod
    def staged_relation(self, session: Session, spec: StageSpec, parts: Sequence[Part]) -> str:
        """Return SQL for a relation with exactly the named attempts' rows, in the target's types."""

    @abstractmethod
    def reject_relation(self, session: Session, spec: StageSpec, parts: Sequence[Part]) -> str:
        """Return SQL for the relation of rejected rows of the named attempts."""

    @abstractmethod
    def drop_stage(self, session: Session, spec: StageSpec) -> None:
        """Remove the staging of a load that is known to be over."""

    @abstractmethod
    def stages(self, session: Session) -> Iterable[tuple[str, float]]:
        """List all staging names with their age in seconds."""

    @abstractmethod
    def create_work_table(self, session: Session, table: WorkTable, incarnation: str) -> str:
        """Create a scratch table before the transaction begins and give its SQL name."""

    def explain(self, session: Session, sql: str) -> None:
        """Have the database check a query without running it."""
        session.query(f"EXPLAIN {sql}")

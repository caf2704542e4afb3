"""The interface of a system: what every file in this folder gives; no system is named here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ematix_flow.connect.base.cancellation import watch
from ematix_flow.connect.base.lake_engine import SparkRequirements
from ematix_flow.connect.base.maintenance import Upkeep
from ematix_flow.connect.types.existing import ExistingTypes
from ematix_flow.errors import TransientError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from ematix_flow.connect.base.capabilities import Capabilities
    from ematix_flow.connect.base.lake_engine import LakeEngine
    from ematix_flow.connect.base.metadata_store import Bookkeeper
    from ematix_flow.declare.table.partitions import Partition
    from ematix_flow.declare.table.types import ColumnType
    from ematix_flow.records import Part

ATTEMPT = "_attempt"
"""Column of a staging table that names the task attempt a row came from."""

FAILED = "_flow_failed"
"""Column in which a read or a shape says why a row cannot be carried, as `column: reason`; NULL for good rows."""

NULL_REASON = "is NULL but the column is NOT NULL"
UNPARSED = "could not be parsed"
"""Why a row without a value that it needs is rejected."""


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column of a source query: its name, its family and what the system calls its type."""

    name: str
    family: str
    """One of the families of `plan.sql.shape.SourceType`."""
    native: str = ""


@dataclass(frozen=True, slots=True)
class FoundColumn:
    """A column of a table as the database describes it, with its type written as the DDL of a declaration."""

    name: str
    type: str
    nullable: bool
    base: str = ""
    """The type that a domain is made of; empty for any other column."""


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table as the database describes it."""

    columns: tuple[FoundColumn, ...]
    primary_key: tuple[str, ...]
    unique: tuple[tuple[str, ...], ...]
    problem: str = ""
    """Why loads into this table must be refused, for example a storage engine without transactions."""
    partitions: tuple[str, ...] = ()
    takes_files: bool = False
    """Whether staged files can become part of the table as they are."""


@dataclass(frozen=True, slots=True)
class TableName:
    """Where a table lives inside its database, after the system's naming rules."""

    schema: str
    """Empty where the system has no schemas."""
    name: str
    catalog: str = ""
    """Empty where the system has no catalogs."""


@dataclass(frozen=True, slots=True)
class Split:
    """One part of a read, small enough to send to a task."""

    sql: str
    snapshot: str = ""
    """Name of an exported snapshot that every split reads from."""


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


@dataclass(slots=True)
class Opened:
    """A read prepared on the driver: its splits, and what must stay open until they are read."""

    splits: tuple[Split, ...]
    keep_open: AbstractContextManager[object] | None = None


class Session(ABC):
    """One control connection of the driver, with explicit transactions; never used in a task."""

    numbers: Mapping[str, int] = MappingProxyType({})
    """What the last statement did, by the names of `records.Counts`, where the system tells more than one number."""

    def __new__(cls, *_arguments: Any, **_keywords: Any) -> Self:
        """Make a session that is interrupted when the work that opened it is to stop."""
        session = super().__new__(cls)
        watch(session)
        return session

    def interrupt(self) -> None:  # noqa: B027 - not every system can
        """End the statement that runs, from another thread, where the driver can; harmless when none does."""

    @abstractmethod
    def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        """Run a statement and give the rows it changed (0 where the statement has no such count)."""

    @abstractmethod
    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a query and give its rows; for bookkeeping and samples, never for data."""

    def free_connections(self) -> int | None:
        """Return how many more connections this user may open now; None where tasks connect to no server."""
        return None

    @abstractmethod
    def begin(self) -> None:
        """Open a transaction that takes its write lock now, where the database has one lock."""

    @abstractmethod
    def commit(self) -> None:
        """Commit; any error here means that the outcome is unknown."""

    @abstractmethod
    def rollback(self) -> None:
        """Roll back, also when the connection is already broken."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""


class Stager(ABC):
    """Writes the rows of one task attempt into staging; runs inside a task."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Stage rows that fit the staged schema."""

    @abstractmethod
    def reject(self, batch: pa.RecordBatch) -> None:
        """Stage rejected rows (schema `REJECTS` of `connect.arrow`)."""

    @abstractmethod
    def finish(self) -> tuple[str, str]:
        """Make the attempt durable; gives the paths of rows and rejects where the system stages in files."""

    @abstractmethod
    def abandon(self) -> None:
        """Drop what was staged, as far as that is possible."""


class Database(Upkeep, ABC):
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
        """Give what makes two connections the same database."""

    @abstractmethod
    def info(self) -> Mapping[str, object]:
        """Give host, port, dbname and user for people; no secret."""

    @abstractmethod
    def probe(self) -> str:
        """Ask the system for a sign of life and give a sentence about it; no secret."""

    @abstractmethod
    def session(self) -> Session:
        """Open a control connection with deadlines set."""

    def exists(self) -> bool:
        """Say whether there is a database to open; opening one that is a missing file would create it."""
        return True

    def look(self) -> Session:
        """Open a session that is only for looking: it waits for no lock, and the database stays as it is."""
        return self.session()

    @property
    def books(self) -> Bookkeeper:
        """Give what keeps our own tables: this database, unless its tables cannot hold them."""
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
        """Give the session over the rows of tables that belongs to a session: the same one, unless these lie elsewhere."""
        return session

    @abstractmethod
    def is_transient(self, error: BaseException) -> bool:
        """Say whether the same work may succeed when it is tried again."""

    @abstractmethod
    def is_duplicate_key(self, error: BaseException) -> bool:
        """Say whether the error is a violation of a unique constraint."""

    @property
    @abstractmethod
    def errors(self) -> tuple[type[BaseException], ...]:
        """Give the exception classes of the driver."""

    @property
    def failures(self) -> tuple[type[BaseException], ...]:
        """Give what asking this database may raise when it is away: the driver's exceptions and the system's."""
        return (*self.errors, OSError, TransientError)

    # Tables

    @abstractmethod
    def place(self, schema: str, name: str) -> TableName:
        """Apply the naming rules of this system to a declared table."""

    @abstractmethod
    def bookkeeping(self, name: str) -> TableName:
        """Give the place of one of our own tables."""

    @abstractmethod
    def ddl_type(self, column_type: ColumnType, *, in_key: bool = False) -> str:
        """Give the type of a declared column in this database's DDL."""

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
        """Give a text that is another one when rows of a table change in these columns; EMPTY when it has none."""

    def begin_alone(self, session: Session, tables: Sequence[TableName]) -> None:
        """Open a transaction in which nobody else changes these tables, as far as that needs anything more."""
        del tables
        session.begin()

    @abstractmethod
    def create_schema(self, session: Session, schema: str) -> None:
        """Create a schema when it is missing and this system has schemas."""

    def table_options(self, partitions: Sequence[Partition] = ()) -> str:
        """Give what follows the column list in CREATE TABLE; most databases are never asked for partitions."""
        del partitions
        return ""

    def check_files(self, options: Mapping[str, Any]) -> None:
        """Refuse options of files that this system does not take; here all of them."""
        for name in options:
            message = f"{name}= is an option of files, and the target is {self.kind}"
            raise UnsupportedError(message, hint="leave it out, or write to an object store.")

    def check_clause(self, column: StageColumn) -> str:
        """Give a CHECK condition for limits that this database does not enforce by type."""
        del column
        return ""

    def same_type(self, found: str, wanted: str) -> bool:
        """Say whether a reflected type is what the DDL of a declaration asks for."""
        return found.replace(" ", "").upper() == wanted.replace(" ", "").upper()

    def widening(self, found: str, wanted: str) -> bool:
        """Say whether a column can be altered from one type to the other without losing a value."""
        del found, wanted
        return False

    def alter_type_sql(self, table: str, column: str, wanted: str, *, nullable: bool) -> str:
        """Give the statement that widens a column."""
        raise NotImplementedError

    # Reading

    @abstractmethod
    def describe(self, session: Session, sql: str) -> tuple[SourceColumn, ...]:
        """Give the columns of a query without reading rows."""

    @abstractmethod
    def interchange(self, column: SourceColumn, expression: str) -> str:
        """Give the expression that reads a column so that Arrow carries it exactly."""

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
        """Say whether `relay` can stage a split of this source; `session` is one of the source's."""
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
        """Give SQL for a relation with exactly the named attempts' rows, in the target's types."""

    @abstractmethod
    def reject_relation(self, session: Session, spec: StageSpec, parts: Sequence[Part]) -> str:
        """Give SQL for the relation of rejected rows of the named attempts."""

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

"""What every lake target has in common: tables that Spark reads and writes, metadata in a store, a change per load."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from ematix_flow.connect.base.columns import ColumnSchema, TableSchema
from ematix_flow.connect.base.lake_engine import EngineError
from ematix_flow.connect.base.maintenance import guarded
from ematix_flow.connect.base.target import SqlTarget
from ematix_flow.connect.lake import types as lake_types
from ematix_flow.connect.lake.leftovers import leftovers_task
from ematix_flow.connect.lake.transaction import LakeSession
from ematix_flow.connect.lake.types import LakeTypes
from ematix_flow.connect.metadata.session import HOME
from ematix_flow.connect.metadata.tables import SQLiteMetadataTables
from ematix_flow.connect.metadata.target import StoreTarget
from ematix_flow.connect.staging.files import FileStager
from ematix_flow.connect.storage.base import parse_staged_path
from ematix_flow.connect.types.fingerprint import EMPTY
from ematix_flow.connect.types.identifiers import backticked
from ematix_flow.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from ematix_flow.connect.base.columns import TableName
    from ematix_flow.connect.base.lake_engine import LakeEngine
    from ematix_flow.connect.base.maintenance import MaintenanceTask
    from ematix_flow.connect.base.metadata_store import MetadataStore
    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.stage import Stager, StageSpec, WorkTable
    from ematix_flow.connect.lake.change import Applier
    from ematix_flow.connect.lake.location import LakeLocation
    from ematix_flow.declare.table.maintenance import Maintenance
    from ematix_flow.declare.table.types import ColumnType
    from ematix_flow.records import TaskReport


_LARGE = 128 << 20
_MANY = 10_000
"""So many files are long work whatever their size, and enough to list."""


class LakeTable(StoreTarget, SqlTarget):
    """One lake table with its metadata; the table is named when it is opened, because each has metadata of its own."""

    dialect = "spark"
    existing = LakeTypes()
    metadata_per_table = True

    def __init__(self, name: str, table: tuple[str, str], location: LakeLocation) -> None:
        self.name = name
        self.table = table
        self.location = location
        self.store = location.store
        self._engine: Callable[[], LakeEngine] | None = None

    # What a kind of lake implements

    @abstractmethod
    def applier(self) -> Applier:
        """Return the way in which a change of this table is made once."""

    @abstractmethod
    def create_table(self, columns: Sequence[ColumnSchema]) -> bool:
        """Create a table, without partitions, that has these columns.

        False where that needs a statement, or where one is there.
        """

    @abstractmethod
    def add_staged(self, session: Session, spec: StageSpec, parts: Sequence[TaskReport]) -> None:
        """Make the staged files part of the table, in the transaction of the metadata."""

    # Identity and health

    @property
    def folder(self) -> str:
        """Return where the files of the table are, unless a catalog chose another location."""
        schema, name = self.table
        return f"{schema or 'default'}/{name}/"

    @property
    def home(self) -> str:
        """Return where the metadata and the staging of this table are."""
        schema, name = self.table
        return f"{HOME}{schema}.{name}/" if schema else f"{HOME}{name}/"

    @property
    def errors(self) -> tuple[type[BaseException], ...]:
        """Return what the metadata store, the object store and the engine may raise."""
        return (*super().errors, EngineError)

    def is_large(self) -> bool:
        """Return whether the files below the table's folder are so many that reading them takes long."""
        files = self.store.listed(self.folder)
        size = 0
        try:
            for count, file in enumerate(files, 1):
                size += file.size
                if size >= _LARGE or count >= _MANY:
                    return True
        except self.errors:
            return False  # a store that does not answer fails again when the load needs it
        return False

    def use(self, engine: Callable[[], LakeEngine]) -> None:
        """Set the engine that reads and writes the table; it is started when it is needed."""
        self._engine = engine

    def __getstate__(self) -> dict[str, Any]:
        """Return what a task is sent: it stages, and has no engine to change the table with."""
        return {**self.__dict__, "_engine": None}

    def engine(self) -> LakeEngine:
        """Return the engine, which knows the location of the table."""
        if self._engine is None:
            message = f"{self.kind} tables are read and written by Spark, which is not started here"
            raise UnsupportedError(message)
        engine = self._engine()
        self.location.prepare(engine)
        return engine

    @property
    def task_imports(self) -> tuple[str, ...]:  # type: ignore[override]
        """Return the modules that tasks load when they stage."""
        return self.location.task_imports

    def info(self) -> Mapping[str, object]:
        """Return where the tables lie."""
        return self.location.info()

    def is_transient(self, error: BaseException) -> bool:
        """Return True for conflicts with other writers, and for transient errors of the store."""
        return error.transient if isinstance(error, EngineError) else super().is_transient(error)

    def is_duplicate_key(self, error: BaseException) -> bool:
        """Return whether a unique constraint of the metadata was violated."""
        return self.metadata_store.is_duplicate_key(error)

    @property
    def metadata_store(self) -> MetadataStore:
        """Return what keeps our own tables."""
        return SQLiteMetadataTables()

    def session(self) -> LakeSession:
        """Open the newest metadata."""
        return LakeSession(self.store, self.home, self.applier(), self.engine)

    def begin_alone(self, session: Session, tables: Sequence[TableName]) -> None:
        """Hold the lock of the metadata, and have the change refused if a program without the lock is quicker."""
        del tables
        own = cast("LakeSession", session)
        own.begin()
        own.watch(self.last_change)

    def data(self, session: Session) -> Session:
        """Return the session over the table's rows."""
        return cast("LakeSession", session).rows

    def maintenance_tasks(self, session: Session, rules: Maintenance, now: datetime) -> Sequence[MaintenanceTask]:
        """Return what the table needs, if there is one, and the clean-up of its metadata."""
        mine = cast("LakeSession", session)
        of_table = self.table_tasks(rules, now) if self.columns() is not None else ()
        held = (guarded(task, mine.check_held) for task in (*of_table, leftovers_task(mine)))
        return (*held, *super().maintenance_tasks(session, rules, now))

    @abstractmethod
    def table_tasks(self, rules: Maintenance, now: datetime) -> Sequence[MaintenanceTask]:
        """Return what the table needs."""

    # Tables

    def metadata_table(self, name: str) -> TableName:
        """Our own tables are in the metadata store."""
        return self.metadata_store.metadata_table(name)

    def ddl_type(self, column_type: ColumnType, *, in_key: bool = False) -> str:
        """Return the DDL type."""
        del in_key
        return lake_types.ddl_type(column_type)

    def same_type(self, existing: str, declared: str) -> bool:
        """Compare types by one spelling."""
        return lake_types.normal(existing) == lake_types.normal(declared)

    def create_schema(self, session: Session, schema: str) -> None:
        """Do nothing: most lakes have folders only."""

    @abstractmethod
    def partitions(self) -> tuple[str, ...]:
        """Return how the table is divided, as a declaration spells it."""

    @abstractmethod
    def columns(self) -> list[tuple[str, str, bool]] | None:
        """Return name, type and nullability of the table's columns, or None where there is no table."""

    def find_table(self, session: Session, table: TableName) -> TableSchema | None:
        """Describe the table, or one of the metadata tables."""
        if table.name.startswith("ematix_flow_") and not table.schema:
            return self.metadata_store.find_table(session, table)
        return self.layout()

    def layout(self) -> TableSchema | None:
        """Return the table's columns and partitions, or None where there is no table."""
        columns = self.columns()
        return None if columns is None else TableSchema(column_schemas(columns), (), (), partitions=self.partitions())

    def fingerprint(self, session: Session, table: TableName, columns: Sequence[str]) -> str:
        """Return the last change of rows that the table knows, and which events were folded by then."""
        del table, columns
        last = self.last_change()
        return f"{last}:{cast('LakeSession', session).value('points')}" if last else EMPTY

    @abstractmethod
    def last_change(self) -> str:
        """Return the name of the newest commit that added or removed rows; empty where there was none yet."""

    # Staging

    def open_stage(self, session: Session, spec: StageSpec) -> StageSpec:
        """Reserve a folder next to the metadata; rows get their stamp from the table, unless it takes the files."""
        return replace(super().open_stage(session, spec), stamp=spec.stamp if spec.final else ("", ""))

    def stager(self, spec: StageSpec, partition: int, attempt: int) -> Stager:
        """Write Parquet files named by attempt."""
        return FileStager(
            self.store,
            "parquet",
            replace(spec, options=(("parquet_compression", "zstd"), *self.stage_options(spec))),
            partition,
            attempt,
        )

    def stage_options(self, spec: StageSpec) -> tuple[tuple[str, str], ...]:
        """Return how else the staged files are written."""
        del spec
        return ()

    def staged_relation(self, session: Session, spec: StageSpec, reports: Sequence[TaskReport]) -> str:
        """Show exactly the named files to Spark."""
        name = f"_flow_{spec.name}"
        columns = ", ".join(f"{backticked(c.name)} {self.ddl_type(c.type)}" for c in spec.columns)
        paths = [self.store.path(parse_staged_path(report.path)[0]) for report in reports if report.path]
        cast("LakeSession", session).rows.register_view(name, paths, columns)
        return name

    def create_work_table(self, session: Session, table: WorkTable, incarnation: str) -> str:
        """Expect the folded events under a name; they are the only relation that outlives a load."""
        del incarnation
        columns = ", ".join(f"{backticked(c.name)} {self.ddl_type(c.type)}" for c in table.columns)
        cast("LakeSession", session).rows.expect_points(table.name, columns)
        return backticked(table.name)

    def explain(self, session: Session, sql: str) -> None:
        """Have Spark check a statement without running it."""
        cast("LakeSession", session).rows.query(f"EXPLAIN {sql}")


def column_schemas(listed: Iterable[tuple[str, str, bool]]) -> tuple[ColumnSchema, ...]:
    """Return columns of a lake's own words in those of all lakes."""
    return tuple(ColumnSchema(name, lake_types.normal(kind), nullable) for name, kind, nullable in listed)

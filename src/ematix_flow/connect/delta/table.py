"""Delta tables: one folder each, changed by one commit per load that carries the load's number and name.

Of two commits with the same number one wins: a file by its name, an object by the condition under which it is written.
"""

from __future__ import annotations

import json
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ematix_flow.connect.base.columns import TableName, TableSchema
from ematix_flow.connect.base.lake_engine import JAR, SparkRequirements
from ematix_flow.connect.delta import DELTA_LOCAL
from ematix_flow.connect.delta import commit as delta_commit
from ematix_flow.connect.delta import log as delta_log
from ematix_flow.connect.delta.commit import NewFile
from ematix_flow.connect.delta.copy import snapshot
from ematix_flow.connect.delta.maintenance import delta_tasks
from ematix_flow.connect.delta.statistics import stats_of
from ematix_flow.connect.lake import types as lake_types
from ematix_flow.connect.lake.change import Applier
from ematix_flow.connect.lake.location import in_bucket, in_folder
from ematix_flow.connect.lake.source import LakeSource
from ematix_flow.connect.lake.table import LakeTable, column_schemas
from ematix_flow.connect.storage.base import parse_staged_path
from ematix_flow.connect.types.identifiers import backticked
from ematix_flow.errors import FlowError, RunError, TransientError, UnsupportedError
from ematix_flow.failpoints import failpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from ematix_flow.connect.base.columns import ColumnSchema
    from ematix_flow.connect.base.lake_engine import LakeEngine
    from ematix_flow.connect.base.maintenance import MaintenanceTask
    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.stage import StageSpec
    from ematix_flow.connect.delta.copy import Snapshot
    from ematix_flow.connect.lake.change import Change
    from ematix_flow.connect.lake.location import LakeLocation
    from ematix_flow.connect.lake.transaction import LakeSession
    from ematix_flow.connect.storage.base import Store
    from ematix_flow.declare.connection.registry import Connection
    from ematix_flow.declare.table.maintenance import Maintenance
    from ematix_flow.declare.table.partitions import Partition
    from ematix_flow.records import TaskReport

PACKAGE = "io.delta:delta-spark_4.1_2.13:4.4.0"
GATHERED = "'delta.autoOptimize.optimizeWrite' = 'true'"
"""Lets Delta bring the rows of a partition together first; every task would write a file of its own for each otherwise."""

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Delta works out the files of a table in so many tasks; its own default of 50 is for tables of millions of files.
    "spark.databricks.delta.snapshotPartitions": "4",
}
REQUIREMENTS = SparkRequirements((PACKAGE,), tuple(SETTINGS.items()))

LOG_STORE = ("spark.delta.logStore.s3a.impl", "ematix.flow.ConditionalLogStore")
"""What writes the commits of tables in buckets; Delta's own checks whether there is one and writes then."""
LOG_STORE_REQUIREMENTS = SparkRequirements(settings=(LOG_STORE,), jars=(JAR,))


class Delta(LakeTable):
    """One Delta table below a folder."""

    kind = "delta_local"
    capabilities = DELTA_LOCAL.capabilities

    def __init__(self, connection: Connection, table: tuple[str, str]) -> None:
        super().__init__(connection.name, table, _location(connection))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.location.written!r})"

    @property
    def spark_requirements(self) -> SparkRequirements:  # type: ignore[override]
        """Return the packages of Delta and of the location."""
        return REQUIREMENTS + self.location.spark_requirements

    @property
    def folder(self) -> str:
        """Return the table's folder below the root: `schema/name`."""
        return _folder(*self.table)

    def applier(self) -> Applier:
        """Return the way to change the table."""
        return _Changes(self.store, self.folder)

    def identity(self) -> tuple[str, ...]:
        """Two connections are the same when they name the same location."""
        return ("delta", *self.location.identity())

    def table_name(self, schema: str, name: str) -> TableName:
        """Return the table's folder as Spark takes it."""
        for part in (schema, name):
            if part in (".", "..") or "/" in part or "\0" in part or part.startswith("_"):
                message = f"{part!r} cannot be the name of a Delta table's folder"
                raise UnsupportedError(message)
        return TableName("delta", self.store.path(_folder(schema, name).rstrip("/")))

    def table_options(self, partitions: Sequence[Partition] = ()) -> str:
        """Return the clauses for the format and the partitions."""
        listed = ", ".join(backticked(partition.column) for partition in partitions)
        return " USING delta" + (f" PARTITIONED BY ({listed}) TBLPROPERTIES ({GATHERED})" if partitions else "")

    def table_tasks(self, rules: Maintenance, now: datetime) -> Sequence[MaintenanceTask]:
        """Return the compaction and the removal of old files."""
        return delta_tasks(self.store, self.folder, self.engine, rules, now)

    def layout(self) -> TableSchema | None:
        """Read the table's log once; staged files become part of a table that requires nothing more of its writers."""
        table_snapshot = self._snapshot()
        if table_snapshot is None:
            return None
        columns = column_schemas(table_snapshot.columns)
        return TableSchema(
            columns, (), (), partitions=table_snapshot.partitions, takes_files=table_snapshot.takes_files
        )

    def columns(self) -> list[tuple[str, str, bool]] | None:
        """Read the columns from the table's log."""
        table_snapshot = self._snapshot()
        return None if table_snapshot is None else table_snapshot.columns

    def partitions(self) -> tuple[str, ...]:
        """Read the partitions from the table's log."""
        table_snapshot = self._snapshot()
        return () if table_snapshot is None else table_snapshot.partitions

    def _snapshot(self) -> Snapshot | None:
        return snapshot(self.store, self.folder)

    def create_table(self, columns: Sequence[ColumnSchema]) -> bool:
        """Write the first commit of the table's log."""
        return delta_commit.create_table(self.store, self.folder, columns)

    def add_staged(self, session: Session, spec: StageSpec, reports: Sequence[TaskReport]) -> None:
        """Place the staged files in the table's folder, and write the commit that names them."""
        moves = [(parse_staged_path(report.path), report.rows) for report in reports if report.path]
        files = [
            NewFile(f"part-{uuid.uuid4()}.zstd.parquet", size, rows, self._stats(staged))
            for (staged, size), rows in moves
        ]
        lake = cast("LakeSession", session)
        change = lake.begin_change()
        for ((staged, _), _), file in zip(moves, files, strict=True):
            self.store.publish_as(staged, f"{self.folder}{file.path}")
        failpoint("store.files_placed")
        with lake.committing(change):
            try:
                delta_commit.add_files(self.store, self.folder, change, files, partial(self._fits, spec))
            except FlowError:  # refused, so nothing names them
                for file in files:
                    self.store.delete(f"{self.folder}{file.path}")
                raise

    def _stats(self, staged: str) -> str:
        with self.store.reader(staged) as file:
            return stats_of(file)

    def _fits(self, spec: StageSpec, table_snapshot: Snapshot) -> None:
        """Refuse files for a table that has other columns than they were planned for."""
        required = {column.name: self.ddl_type(column.type) for column in spec.columns}
        known = {name: lake_types.normal(kind) for name, kind, _ in table_snapshot.columns}
        stamps = {"_loaded_at": "TIMESTAMP", "_batch_id": "STRING"} if spec.stamp[0] else {}
        if not table_snapshot.takes_files or not (required | stamps).items() <= known.items():
            message = f"the Delta table at {self.store.address(self.folder)} was altered while it was loaded"
            raise TransientError(message, hint="it is tried again by itself, or run it again.")

    def last_change(self) -> str:
        """Read the newest version with other files than the one before."""
        return delta_log.last_change(self.store, self.folder)


class DeltaS3(Delta):
    """One Delta table below a prefix of a bucket."""

    kind = "delta_s3"

    @property
    def spark_requirements(self) -> SparkRequirements:  # type: ignore[override]
        """Return the packages of Delta and of the location, and what writes its commits."""
        return super().spark_requirements + LOG_STORE_REQUIREMENTS

    def engine(self) -> LakeEngine:
        """Return the engine, which writes a commit only where there is none; a session that does not is refused."""
        engine = super().engine()
        setting, required = LOG_STORE
        if engine.setting(setting) != required:
            message = "this Spark session would let two loads replace each other's commits of a Delta table in a bucket"
            raise UnsupportedError(message, hint=f"start it with spark.jars={JAR} and {setting}={required}.")
        return engine

    def applier(self) -> Applier:
        """Return the way to change the table."""
        return _Changes(self.store, self.folder, may_commit_late=True)


class DeltaSource(LakeSource):
    """The Delta tables below a folder."""

    kind = "delta_local"

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection.name, _location(connection))

    @property
    def spark_requirements(self) -> SparkRequirements:
        """Return the packages of Delta and of the location."""
        return REQUIREMENTS + self.location.spark_requirements

    def identity(self) -> tuple[str, ...]:
        """Two connections are the same when they name the same location."""
        return ("delta", *self.location.identity())

    def relation(self, schema: str, name: str) -> tuple[str, ...]:
        """Return the table's folder as Spark takes it."""
        return ("delta", self.location.store.path(_folder(schema, name).rstrip("/")))

    def newest(self, engine: LakeEngine, schema: str, name: str) -> str:
        """Read the newest version from the table's log."""
        del engine
        folder = _folder(schema, name)
        version = delta_log.version(self.location.store, folder)
        if version is None:
            message = f"there is no Delta table at {self.location.store.address(folder)}"
            raise RunError(message)
        return str(version)


class DeltaS3Source(DeltaSource):
    """The Delta tables below a prefix of a bucket."""

    kind = "delta_s3"


class _Changes(Applier):
    def __init__(self, store: Store, folder: str, *, may_commit_late: bool = False) -> None:
        self._store = store
        self._folder = folder
        self.may_commit_late = may_commit_late

    def change(self, engine: LakeEngine, sql: str, change: Change) -> dict[str, int]:
        return engine.run(sql, _transaction(change, "ematix_flow"))

    def is_committed(self, engine: Callable[[], LakeEngine], change: Change) -> bool:
        del engine
        return delta_log.remembers(self._store, self._folder, change.id)

    def refuse(self, engine: Callable[[], LakeEngine], change: Change) -> None:
        # A commit with the same number: Delta lets each number through once.
        table_snapshot = snapshot(self._store, self._folder)
        if table_snapshot is not None and table_snapshot.takes_files:
            delta_commit.refuse(self._store, self._folder, change)
            return
        table = f"delta.{backticked(self._store.path(self._folder).rstrip('/'))}"
        engine().run(f"INSERT INTO {table} SELECT * FROM {table} WHERE FALSE", _transaction(change, "refused"))


def _location(connection: Any) -> LakeLocation:
    return in_folder(connection.path) if connection.kind == "delta_local" else in_bucket(connection)


def _folder(schema: str, name: str) -> str:
    return "".join(f"{part}/" for part in (schema, name) if part)


def _transaction(change: Change, key: str) -> dict[str, str]:
    return {
        "spark.databricks.delta.write.txnAppId": delta_commit.application(change),
        "spark.databricks.delta.write.txnVersion": str(change.number),
        "spark.databricks.delta.commitInfo.userMetadata": json.dumps({key: change.id}),
    }

"""Iceberg tables of one catalog: a load is written to a branch, and the table is moved to it in one step.

A branch can only be moved to what follows it. So a load that comes late, or that others have given up, is refused by
the table itself. Where the catalog allows it, an append is one commit that names the staged files; it is made only on
top of the snapshot that the table had before the intent of the load was written.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from ematix_flow.connect.base.columns import TableName, TableSchema
from ematix_flow.connect.iceberg import ICEBERG
from ematix_flow.connect.iceberg.catalog import IcebergCatalog
from ematix_flow.connect.iceberg.changes import IcebergChanges, loaded, table_name
from ematix_flow.connect.iceberg.maintenance import iceberg_tasks
from ematix_flow.connect.iceberg.partitions import described_partitions
from ematix_flow.connect.lake import types as lake_types
from ematix_flow.connect.lake.source import LakeSource
from ematix_flow.connect.lake.table import LakeTable, column_schemas
from ematix_flow.connect.metadata.session import HOME
from ematix_flow.connect.staging.files import FIELD_IDS
from ematix_flow.connect.storage.base import parse_staged_path
from ematix_flow.connect.types.identifiers import backticked
from ematix_flow.errors import FlowError, RunError, TransientError
from ematix_flow.failpoints import failpoint

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ematix_flow.connect.base.columns import ColumnSchema
    from ematix_flow.connect.base.lake_engine import LakeEngine, SparkRequirements
    from ematix_flow.connect.base.maintenance import MaintenanceTask
    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.stage import StageSpec
    from ematix_flow.connect.iceberg.files import IcebergFiles, LoadedTable
    from ematix_flow.connect.lake.change import Applier
    from ematix_flow.connect.lake.transaction import LakeSession
    from ematix_flow.declare.connection.registry import IcebergConnection
    from ematix_flow.declare.table.maintenance import Maintenance
    from ematix_flow.declare.table.partitions import Partition
    from ematix_flow.declare.table.types import ColumnType
    from ematix_flow.records import TaskReport


class Iceberg(LakeTable):
    """One Iceberg table of a catalog."""

    kind = "iceberg"
    capabilities = ICEBERG.capabilities

    def __init__(self, connection: IcebergConnection, table: tuple[str, str]) -> None:
        self.catalog = IcebergCatalog(connection)
        super().__init__(connection.name, table, self.catalog.location)
        self._connection = connection
        self._files: IcebergFiles | None = None
        rewrites = self.catalog.left_to_spark
        self.capabilities = replace(self.capabilities, adds_files=not rewrites, rewrites=rewrites)

    def __repr__(self) -> str:
        return f"Iceberg({self.name!r})"

    def __getstate__(self) -> dict[str, Any]:
        """Return what a task is sent: it stages, and queries no catalog."""
        return {**super().__getstate__(), "_files": None}

    def files(self) -> IcebergFiles | None:
        """Return the table without Spark, or None where its catalog cannot be committed to without it."""
        if self._files is None and self.capabilities.adds_files:
            from ematix_flow.connect.iceberg.files import IcebergFiles

            self._files = IcebergFiles(self.catalog.name, self._connection, self.table)
        return self._files

    @property
    def spark_requirements(self) -> SparkRequirements:  # type: ignore[override]
        """Return the packages of the catalog."""
        return self.catalog.spark_requirements

    def engine(self) -> LakeEngine:
        """Return the engine, which knows the catalog."""
        engine = super().engine()
        self.catalog.prepare(engine)
        return engine

    def applier(self) -> Applier:
        """Return the way to change the table."""
        return IcebergChanges(self.catalog.name, self.table, self.files, may_commit_late=self.catalog.type != "hadoop")

    def identity(self) -> tuple[str, ...]:
        """Two connections are the same when they name the same catalog."""
        return ("iceberg", *self.catalog.identity)

    def probe(self) -> str:
        """Query the catalog."""
        return self.catalog.probe()

    def exists(self) -> bool:
        """Return whether the warehouse is there; what a database or a service stores, only Spark can query."""
        return self.catalog.exists()

    def table_name(self, schema: str, name: str) -> TableName:
        """Return the table in its namespace."""
        return TableName(schema or "default", name, self.catalog.name)

    def ddl_type(self, column_type: ColumnType, *, in_key: bool = False) -> str:
        """Return the DDL type; Iceberg has no number of two bytes."""
        return "INT" if column_type.kind == "small_int" else super().ddl_type(column_type, in_key=in_key)

    def widening(self, existing: str, declared: str) -> bool:
        """Return whether Iceberg can widen a column: whole numbers, floats, and decimals of the same scale."""
        if (existing, declared) in (("INT", "BIGINT"), ("FLOAT", "DOUBLE")):
            return True
        pattern = re.compile(r"DECIMAL\((\d+),(\d+)\)")
        one, other = pattern.fullmatch(existing), pattern.fullmatch(declared)
        return bool(one and other and one[2] == other[2] and int(one[1]) < int(other[1]))

    def alter_type_sql(self, table: str, column: str, declared: str, *, nullable: bool) -> str:
        """Widen a column."""
        del nullable
        return f"ALTER TABLE {table} ALTER COLUMN {column} TYPE {declared}"

    def table_options(self, partitions: Sequence[Partition] = ()) -> str:
        """Return the clauses for the format and the partitions."""
        listed = ", ".join(str(replace(partition, column=backticked(partition.column))) for partition in partitions)
        return " USING iceberg" + (f" PARTITIONED BY ({listed})" if partitions else "")

    def create_schema(self, session: Session, schema: str) -> None:
        """Create the namespace."""
        files = self.files()
        if files is not None:
            files.create_namespace()
            return
        self.data(session).execute(
            f"CREATE NAMESPACE IF NOT EXISTS {backticked(self.catalog.name)}.{backticked(schema)}"
        )

    def table_tasks(self, rules: Maintenance, now: datetime) -> Sequence[MaintenanceTask]:
        """Return compaction, the end of old snapshots and the removal of files that belong to none."""
        return iceberg_tasks(self.engine, (self.catalog.name, *self.table), self.store.path(HOME), rules, now)

    def _loaded(self) -> tuple[bool, LoadedTable | None]:
        """Return whether Spark need not be queried about the table, and the table if there is one."""
        return loaded(self.files)

    def columns(self) -> list[tuple[str, str, bool]] | None:
        """Return the columns from the catalog; types that are not plain ones are Spark's to name."""
        known, table = self._loaded()
        if known and (table is None or table.columns() is not None):
            return None if table is None else table.columns()
        return self.engine().columns(table_name(self.catalog.name, self.table))

    def layout(self) -> TableSchema | None:
        """Return the table's columns and partitions, and whether it uses nothing special for writers of files."""
        _, table = self._loaded()
        plain = None if table is None or table.is_partitioned else table.columns()
        if table is None or plain is None:
            return super().layout()
        return TableSchema(column_schemas(plain), (), (), takes_files=table.takes_files(self.store.path(self.home)))

    def create_table(self, columns: Sequence[ColumnSchema]) -> bool:
        """Create the table in the catalog, without Spark."""
        files = self.files()
        return files is not None and files.create(columns)

    def open_stage(self, session: Session, spec: StageSpec) -> StageSpec:
        """Add the ids of the table's columns, which staged files that become files of the table carry.

        A table that is missing here is one of a dry run: files without ids are refused by a commit.
        """
        opened = super().open_stage(session, spec)
        if not spec.final:
            return opened
        _, table = self._loaded()
        return replace(opened, options=((FIELD_IDS, "{}" if table is None else self._fitting(spec).field_ids()),))

    def stage_options(self, spec: StageSpec) -> tuple[tuple[str, str], ...]:
        """Return the ids of the columns."""
        return spec.options if spec.final else ()

    def add_staged(self, session: Session, spec: StageSpec, reports: Sequence[TaskReport]) -> None:
        """Place the staged files among those of the table, and commit them on top of what the table is now."""
        table = self._fitting(spec)
        staged = (self.store.path(parse_staged_path(report.path)[0]) for report in reports if report.path)
        new_files = {table.new_location(): path for path in staged}
        lake = cast("LakeSession", session)
        change = lake.begin_change()
        for location, path in new_files.items():
            table.publish(path, location)
        failpoint("store.files_placed")
        with lake.committing(change):
            try:
                table.add(list(new_files), change.id)
            except FlowError:
                # A client that repeats a request may be refused because of its own commit.
                if not self.applier().is_committed(self.engine, change):
                    for location in new_files:  # refused, so nothing names them
                        table.remove(location)
                    raise

    def _fitting(self, spec: StageSpec) -> LoadedTable:
        """Return the table, unless it is another one than the load was planned for."""
        _, table = self._loaded()
        stamps = {"_loaded_at": "TIMESTAMP", "_batch_id": "STRING"} if spec.stamp[0] else {}
        required = {column.name: self.ddl_type(column.type) for column in spec.columns} | stamps
        if table is not None and table.takes_files(self.store.path(self.home)):
            known = {name: lake_types.normal(kind) for name, kind, _ in table.columns() or ()}
            planned = dict(spec.options).get(FIELD_IDS, table.field_ids())
            if required.items() <= known.items() and planned == table.field_ids():
                return table
        message = f"the Iceberg table {'.'.join(self.table)} was altered while it was loaded"
        raise TransientError(message, hint="it is tried again by itself, or run it again.")

    def last_change(self) -> str:
        """Return the newest snapshot of the table that is not an empty one."""
        known, loaded_table = self._loaded()
        if known:
            return "" if loaded_table is None else loaded_table.last_change()
        table = table_name(self.catalog.name, self.table)
        if self.engine().columns(table) is None:
            return ""
        rows = self.engine().query(
            f"SELECT h.snapshot_id FROM {table}.history AS h JOIN {table}.snapshots AS s "
            "ON s.snapshot_id = h.snapshot_id WHERE h.is_current_ancestor AND EXISTS(MAP_KEYS(s.summary), "
            "word -> word LIKE 'added-%' OR word LIKE 'deleted-%' OR word LIKE 'removed-%') "
            "ORDER BY h.made_current_at DESC LIMIT 1"
        )
        return str(rows[0][0]) if rows else ""

    def partitions(self) -> tuple[str, ...]:
        """Return from the catalog how the table is divided."""
        _, loaded_table = self._loaded()
        if loaded_table is not None and not loaded_table.is_partitioned:
            return ()
        return described_partitions(self.engine().query(f"DESCRIBE TABLE {table_name(self.catalog.name, self.table)}"))


class IcebergSource(LakeSource):
    """The tables of an Iceberg catalog."""

    kind = "iceberg"

    def __init__(self, connection: IcebergConnection) -> None:
        self._catalog = IcebergCatalog(connection)
        super().__init__(connection.name, self._catalog.location)

    @property
    def spark_requirements(self) -> SparkRequirements:
        """Return the packages of the catalog."""
        return self._catalog.spark_requirements

    def identity(self) -> tuple[str, ...]:
        """Two connections are the same when they name the same catalog."""
        return ("iceberg", *self._catalog.identity)

    def probe(self) -> str:
        """Query the catalog."""
        return self._catalog.probe()

    def prepare(self, engine: LakeEngine) -> None:
        """Make the catalog known to the engine."""
        self._catalog.prepare(engine)

    def relation(self, schema: str, name: str) -> tuple[str, ...]:
        """Return the table in its namespace."""
        return (self._catalog.name, schema or "default", name)

    def newest(self, engine: LakeEngine, schema: str, name: str) -> str:
        """Return the snapshot that the table shows now."""
        table = table_name(self._catalog.name, (schema, name))
        if engine.columns(table) is None:
            message = f"there is no Iceberg table {schema or 'default'}.{name} in connection {self.name!r}"
            raise RunError(message)
        rows = engine.query(f"SELECT snapshot_id FROM {table}.refs WHERE name = 'main'")
        return str(rows[0][0]) if rows else ""

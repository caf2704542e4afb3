"""Iceberg tables of one catalog: a load is written to a branch, and the table is moved to it in one step.

A branch can only be moved to what follows it. So a load that comes late, or that others have given up, is refused by
the table itself.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from ematix_flow.connect.base import TableName
from ematix_flow.connect.iceberg_branches import BRANCH, branches_of, drop_branches
from ematix_flow.connect.iceberg_catalog import IcebergCatalog
from ematix_flow.connect.iceberg_partitions import described_partitions
from ematix_flow.connect.iceberg_upkeep import iceberg_chores
from ematix_flow.connect.identifiers import backticked, spark_text
from ematix_flow.connect.lake import LakeTable
from ematix_flow.connect.lake_change import Applier
from ematix_flow.connect.lake_source import LakeSource
from ematix_flow.connect.store_session import HOME
from ematix_flow.declare.table.partitions import TRANSFORMS
from ematix_flow.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from ematix_flow.connect.base import Session
    from ematix_flow.connect.lake_change import Change
    from ematix_flow.connect.lake_engine import LakeEngine, SparkNeeds
    from ematix_flow.connect.upkeep import Chore
    from ematix_flow.declare.connection.registry import IcebergConnection
    from ematix_flow.declare.table.maintenance import Maintenance
    from ematix_flow.declare.table.partitions import Partition
    from ematix_flow.declare.table.types import ColumnType

PROPERTY = "ematix_flow.change"


class Iceberg(LakeTable):
    """One Iceberg table of a catalog."""

    kind = "iceberg"
    partition_transforms = tuple(TRANSFORMS)

    def __init__(self, connection: IcebergConnection, table: tuple[str, str]) -> None:
        self.catalog = IcebergCatalog(connection)
        super().__init__(connection.name, table, self.catalog.lies)

    def __repr__(self) -> str:
        return f"Iceberg({self.name!r})"

    @property
    def spark_needs(self) -> SparkNeeds:  # type: ignore[override]
        """Give the packages of the catalog."""
        return self.catalog.needs

    def engine(self) -> LakeEngine:
        """Give the engine, which knows the catalog."""
        engine = super().engine()
        self.catalog.prepare(engine)
        return engine

    def applier(self) -> Applier:
        """Give the way to change the table."""
        return _Branches(self.catalog.name, self.table, lingers=self.catalog.type != "hadoop")

    def identity(self) -> tuple[str, ...]:
        """Two connections are the same when they name the same catalog."""
        return ("iceberg", *self.catalog.identity)

    def probe(self) -> str:
        """Ask the catalog."""
        return self.catalog.probe()

    def exists(self) -> bool:
        """Say whether the warehouse is there; what a database or a service keeps, only Spark can tell."""
        return self.catalog.exists()

    def place(self, schema: str, name: str) -> TableName:
        """Give the table in its namespace."""
        return TableName(schema or "default", name, self.catalog.name)

    def ddl_type(self, column_type: ColumnType, *, in_key: bool = False) -> str:
        """Give the DDL type; Iceberg has no number of two bytes."""
        return "INT" if column_type.kind == "small_int" else super().ddl_type(column_type, in_key=in_key)

    def widening(self, found: str, wanted: str) -> bool:
        """Say whether Iceberg can widen a column: whole numbers, floats, and decimals of the same scale."""
        if (found, wanted) in (("INT", "BIGINT"), ("FLOAT", "DOUBLE")):
            return True
        pattern = re.compile(r"DECIMAL\((\d+),(\d+)\)")
        one, other = pattern.fullmatch(found), pattern.fullmatch(wanted)
        return bool(one and other and one[2] == other[2] and int(one[1]) < int(other[1]))

    def alter_type_sql(self, table: str, column: str, wanted: str, *, nullable: bool) -> str:
        """Widen a column."""
        del nullable
        return f"ALTER TABLE {table} ALTER COLUMN {column} TYPE {wanted}"

    def table_options(self, partitions: Sequence[Partition] = ()) -> str:
        """Say the format and the partitions."""
        listed = ", ".join(str(replace(part, column=backticked(part.column))) for part in partitions)
        return " USING iceberg" + (f" PARTITIONED BY ({listed})" if partitions else "")

    def create_schema(self, session: Session, schema: str) -> None:
        """Create the namespace."""
        self.data(session).execute(
            f"CREATE NAMESPACE IF NOT EXISTS {backticked(self.catalog.name)}.{backticked(schema)}"
        )

    def table_chores(self, rules: Maintenance, now: datetime) -> Sequence[Chore]:
        """Give compaction, the end of old snapshots and the removal of files that belong to none."""
        return iceberg_chores(self.engine, (self.catalog.name, *self.table), self.store.path(HOME), rules, now)

    def columns(self) -> list[tuple[str, str, bool]] | None:
        """Ask the catalog for the columns."""
        return self.engine().columns(_table(self.catalog.name, self.table))

    def last_change(self) -> str:
        """Ask for the newest snapshot of the table that is not an empty one."""
        table = _table(self.catalog.name, self.table)
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
        """Ask the catalog how the table is divided."""
        return described_partitions(self.engine().query(f"DESCRIBE TABLE {_table(self.catalog.name, self.table)}"))


class IcebergSource(LakeSource):
    """The tables of an Iceberg catalog."""

    kind = "iceberg"

    def __init__(self, connection: IcebergConnection) -> None:
        self._catalog = IcebergCatalog(connection)
        super().__init__(connection.name, self._catalog.lies)

    @property
    def spark_needs(self) -> SparkNeeds:
        """Give the packages of the catalog."""
        return self._catalog.needs

    def probe(self) -> str:
        """Ask the catalog."""
        return self._catalog.probe()

    def prepare(self, engine: LakeEngine) -> None:
        """Make the catalog known to the engine."""
        self._catalog.prepare(engine)

    def relation(self, schema: str, name: str) -> tuple[str, ...]:
        """Give the table in its namespace."""
        return (self._catalog.name, schema or "default", name)

    def newest(self, engine: LakeEngine, schema: str, name: str) -> str:
        """Ask for the snapshot that the table shows now."""
        table = _table(self._catalog.name, (schema, name))
        if engine.columns(table) is None:
            message = f"there is no Iceberg table {schema}.{name} in connection {self.name!r}"
            raise RunError(message)
        rows = engine.query(f"SELECT snapshot_id FROM {table}.refs WHERE name = 'main'")
        return str(rows[0][0]) if rows else ""


class _Branches(Applier):
    # A table that cannot be moved to the branch says so.
    decides = True

    def __init__(self, catalog: str, table: tuple[str, str], *, lingers: bool) -> None:
        self.lingers = lingers
        self._catalog = catalog
        self._table = _table(catalog, table)
        self._called = spark_text(".".join(backticked(part) for part in (table[0] or "default", table[1])))

    def prepare(self, engine: LakeEngine, change: Change) -> None:
        # Before anybody hears of it: whoever refuses the change moves the table away from where the branch begins.
        engine.run(f"ALTER TABLE {self._table} CREATE BRANCH `{BRANCH}{change.id}`", {})

    def change(self, engine: LakeEngine, sql: str, change: Change) -> dict[str, int]:
        branch = f"{BRANCH}{change.id}"
        told = engine.run(sql.replace(self._table, f"{self._table}.`branch_{branch}`"), _marked(change.id))
        engine.run(f"CALL {backticked(self._catalog)}.system.fast_forward({self._called}, 'main', '{branch}')", {})
        engine.run(f"ALTER TABLE {self._table} DROP BRANCH `{branch}`", {})
        engine.run(f"ALTER TABLE {self._table} SET TBLPROPERTIES ('{PROPERTY}' = '{change.id}')", {})
        return told

    def made(self, engine: Callable[[], LakeEngine], change: Change) -> bool:
        sql = (
            f"SELECT 1 FROM {self._table}.snapshots AS s JOIN {self._table}.history AS h ON s.snapshot_id = h.snapshot_id "
            f"WHERE h.is_current_ancestor AND s.summary['{PROPERTY}'] = '{change.id}'"
        )
        # Snapshots may have been expired meanwhile; the property of the table outlives them.
        said = f"SHOW TBLPROPERTIES {self._table} ('{PROPERTY}')"
        return bool(engine().query(sql)) or any(change.id in row for row in engine().query(said))

    def tidy(self, engine: Callable[[], LakeEngine]) -> None:
        asked = engine()
        if asked.columns(self._table) is not None:
            # One that was begun before its change was told of, or that a statement made again when it came late.
            drop_branches(asked, self._table, branches_of(asked, self._table))

    def refuse(self, engine: Callable[[], LakeEngine], change: Change) -> None:
        # After a commit of somebody else the table cannot be moved to the branch any more.
        nothing = f"INSERT INTO {self._table} SELECT * FROM {self._table} WHERE FALSE"
        engine().run(nothing, _marked(f"refused-{change.id}"))
        engine().run(f"ALTER TABLE {self._table} DROP BRANCH IF EXISTS `{BRANCH}{change.id}`", {})


def _marked(change: str) -> dict[str, str]:
    return {f"spark.sql.iceberg.snapshot-property.{PROPERTY}": change}


def _table(catalog: str, table: tuple[str, str]) -> str:
    return ".".join(backticked(part) for part in (catalog, table[0] or "default", table[1]))

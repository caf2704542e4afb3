"""Delta tables: one folder each, changed by one commit per load that carries the load's number and name."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ematix_flow.connect import delta_log
from ematix_flow.connect.base import TableName
from ematix_flow.connect.delta_upkeep import delta_chores
from ematix_flow.connect.identifiers import backticked
from ematix_flow.connect.lake import LakeTable
from ematix_flow.connect.lake_change import Applier
from ematix_flow.connect.lake_engine import SparkNeeds
from ematix_flow.connect.lake_source import LakeSource
from ematix_flow.connect.store import LocalStore
from ematix_flow.errors import RunError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from ematix_flow.connect.lake_change import Change
    from ematix_flow.connect.lake_engine import LakeEngine
    from ematix_flow.connect.store import Store
    from ematix_flow.connect.upkeep import Chore
    from ematix_flow.declare.connection import DeltaLocalConnection
    from ematix_flow.declare.maintenance import Maintenance
    from ematix_flow.declare.partitions import Partition

PACKAGE = "io.delta:delta-spark_4.1_2.13:4.4.0"
GATHERED = "'delta.autoOptimize.optimizeWrite' = 'true'"
"""Lets Delta bring the rows of a partition together first; every task would write a file of its own for each otherwise."""

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Delta works out the files of a table in so many tasks; its own default of 50 is for tables of millions of files.
    "spark.databricks.delta.snapshotPartitions": "4",
}


class Delta(LakeTable):
    """One Delta table below a folder."""

    kind = "delta_local"
    spark_needs = SparkNeeds((PACKAGE,), tuple(SETTINGS.items()))
    capabilities = replace(LakeTable.capabilities, tells_merges=True, cannot_store=("empty_partition",))
    partition_transforms = ()

    def __init__(self, connection: DeltaLocalConnection, table: tuple[str, str]) -> None:
        super().__init__(connection.name, table)
        self.shown_path = connection.path
        self.store = LocalStore(str(Path(connection.path).absolute()))

    def __repr__(self) -> str:
        return f"Delta({self.shown_path!r})"

    @property
    def folder(self) -> str:
        """Give the table's folder below the root: `schema/name`."""
        return _folder(*self.table)

    def applier(self) -> Applier:
        """Give the way to change the table."""
        return _Changes(self.store, self.folder)

    def identity(self) -> tuple[str, ...]:
        """Two connections are the same when they name the same folder."""
        return ("delta", os.path.realpath(self.store.shown))

    def info(self) -> Mapping[str, object]:
        """Give the folder under `dbname`."""
        return {"host": None, "port": None, "dbname": self.shown_path, "user": None}

    def place(self, schema: str, name: str) -> TableName:
        """Give the table's folder as Spark takes it."""
        for part in (schema, name):
            if part in (".", "..") or "/" in part or "\0" in part or part.startswith("_"):
                message = f"{part!r} cannot be the name of a Delta table's folder"
                raise UnsupportedError(message)
        return TableName("delta", self.store.path(_folder(schema, name).rstrip("/")))

    def table_options(self, partitions: Sequence[Partition] = ()) -> str:
        """Say the format and the partitions."""
        listed = ", ".join(backticked(partition.column) for partition in partitions)
        return " USING delta" + (f" PARTITIONED BY ({listed}) TBLPROPERTIES ({GATHERED})" if partitions else "")

    def table_chores(self, rules: Maintenance, now: datetime) -> Sequence[Chore]:
        """Give the compaction and the removal of old files."""
        return delta_chores(self.store, self.folder, self.engine, rules, now)

    def columns(self) -> list[tuple[str, str, bool]] | None:
        """Read the columns from the table's log."""
        return delta_log.columns(self.store, self.folder)

    def last_change(self) -> str:
        """Read the newest version with other files than the one before."""
        return delta_log.last_change(self.store, self.folder)

    def partitions(self) -> tuple[str, ...]:
        """Read the partitions from the table's log."""
        return delta_log.partitions(self.store, self.folder)


class DeltaSource(LakeSource):
    """The Delta tables below a folder."""

    kind = "delta_local"
    spark_needs = Delta.spark_needs

    def __init__(self, connection: DeltaLocalConnection) -> None:
        self.name = connection.name
        self._shown = connection.path
        self._store = LocalStore(str(Path(connection.path).absolute()))

    def info(self) -> Mapping[str, object]:
        """Give the folder under `dbname`."""
        return {"host": None, "port": None, "dbname": self._shown, "user": None}

    def probe(self) -> str:
        """Say whether the folder is there."""
        return self._store.probe()

    def relation(self, schema: str, name: str) -> tuple[str, ...]:
        """Give the table's folder as Spark takes it."""
        return ("delta", self._store.path(_folder(schema, name).rstrip("/")))

    def newest(self, engine: LakeEngine, schema: str, name: str) -> str:
        """Read the newest version from the table's log."""
        del engine
        folder = _folder(schema, name)
        found = delta_log.version(self._store, folder)
        if found is None:
            message = f"there is no Delta table at {self._store.path(folder)}"
            raise RunError(message)
        return str(found)


class _Changes(Applier):
    def __init__(self, store: Store, folder: str) -> None:
        self._store = store
        self._folder = folder

    def change(self, engine: LakeEngine, sql: str, change: Change) -> dict[str, int]:
        return engine.run(sql, _transaction(change, "ematix_flow"))

    def made(self, engine: Callable[[], LakeEngine], change: Change) -> bool:
        del engine
        return delta_log.remembers(self._store, self._folder, change.id)

    def refuse(self, engine: LakeEngine, change: Change) -> None:
        # A commit with the same number: Delta lets each number through once.
        table = f"delta.{backticked(self._store.path(self._folder).rstrip('/'))}"
        engine.run(f"INSERT INTO {table} SELECT * FROM {table} WHERE FALSE", _transaction(change, "refused"))


def _folder(schema: str, name: str) -> str:
    return "".join(f"{part}/" for part in (schema, name) if part)


def _transaction(change: Change, word: str) -> dict[str, str]:
    return {
        "spark.databricks.delta.write.txnAppId": f"ematix_flow/{change.ledger}",
        "spark.databricks.delta.write.txnVersion": str(change.number),
        "spark.databricks.delta.commitInfo.userMetadata": json.dumps({word: change.id}),
    }

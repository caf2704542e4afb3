"""Iceberg tables of one catalog: a load is written to a branch, and the table is moved to it in one step.

A branch can only be moved to what follows it. So a load that comes late, or that others have given up, is refused by
the table itself.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ematix_flow.connect.base import TableName
from ematix_flow.connect.identifiers import backticked
from ematix_flow.connect.lake import LakeTable
from ematix_flow.connect.lake_change import Applier
from ematix_flow.connect.lake_engine import SparkNeeds
from ematix_flow.connect.lake_source import LakeSource
from ematix_flow.connect.store import LocalStore
from ematix_flow.errors import RunError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ematix_flow.connect.base import Session
    from ematix_flow.connect.lake_change import Change
    from ematix_flow.connect.lake_engine import LakeEngine
    from ematix_flow.declare.connection import IcebergConnection
    from ematix_flow.declare.types import ColumnType

PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
DRIVERS = {"jdbc:sqlite": "org.xerial:sqlite-jdbc:3.50.3.0", "jdbc:postgresql": "org.postgresql:postgresql:42.7.8"}
EXTENSIONS = {"spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"}
PROPERTY = "ematix_flow.change"
BRANCH = "flow_"
"""How the branches begin that loads are written to."""


class Iceberg(LakeTable):
    """One Iceberg table of a catalog."""

    kind = "iceberg"

    def __init__(self, connection: IcebergConnection, table: tuple[str, str]) -> None:
        super().__init__(connection.name, table)
        self.catalog = IcebergCatalog(connection)
        self.store = self.catalog.store()

    def __repr__(self) -> str:
        return f"Iceberg({self.name!r})"

    @property
    def spark_needs(self) -> SparkNeeds:  # type: ignore[override]
        """Give the packages of the catalog."""
        return self.catalog.needs

    def engine(self) -> LakeEngine:
        """Give the engine, which knows the catalog."""
        engine = super().engine()
        engine.catalog(self.catalog.name, self.catalog.settings)
        return engine

    def applier(self) -> Applier:
        """Give the way to change the table."""
        return _Branches(self.catalog.name, self.table)

    def identity(self) -> tuple[str, ...]:
        """Two connections are the same when they name the same catalog."""
        return ("iceberg", *self.catalog.identity)

    def info(self) -> Mapping[str, object]:
        """Give the warehouse under `dbname`."""
        return {"host": None, "port": None, "dbname": self.catalog.shown, "user": None}

    def probe(self) -> str:
        """Say whether the catalog can be there."""
        return self.catalog.probe()

    def exists(self) -> bool:
        """Say whether the warehouse is there; what a database or a service keeps, only Spark can tell."""
        return self.catalog.type != "hadoop" or Path(self.store.shown).is_dir()

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

    def table_options(self, partitions: Sequence[str] = ()) -> str:
        """Say the format and the partitions."""
        return " USING iceberg" + (f" PARTITIONED BY ({', '.join(partitions)})" if partitions else "")

    def create_schema(self, session: Session, schema: str) -> None:
        """Create the namespace."""
        self.data(session).execute(
            f"CREATE NAMESPACE IF NOT EXISTS {backticked(self.catalog.name)}.{backticked(schema)}"
        )

    def columns(self) -> list[tuple[str, str, bool]] | None:
        """Ask the catalog for the columns."""
        return self.engine().columns(_table(self.catalog.name, self.table))


class IcebergSource(LakeSource):
    """The tables of an Iceberg catalog."""

    kind = "iceberg"

    def __init__(self, connection: IcebergConnection) -> None:
        self.name = connection.name
        self._catalog = IcebergCatalog(connection)

    @property
    def spark_needs(self) -> SparkNeeds:
        """Give the packages of the catalog."""
        return self._catalog.needs

    def info(self) -> Mapping[str, object]:
        """Give the warehouse under `dbname`."""
        return {"host": None, "port": None, "dbname": self._catalog.shown, "user": None}

    def probe(self) -> str:
        """Say whether the catalog can be there."""
        return self._catalog.probe()

    def prepare(self, engine: LakeEngine) -> None:
        """Make the catalog known to the engine."""
        engine.catalog(self._catalog.name, self._catalog.settings)

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


class IcebergCatalog:
    """The settings of a catalog, and the store that its warehouse is in."""

    def __init__(self, connection: IcebergConnection) -> None:
        # A session keeps a catalog as it was first opened: another place needs another name.
        place = f"{connection.catalog_type}|{connection.uri}|{connection.warehouse}"
        digest = hashlib.sha256(place.encode()).hexdigest()[:8]
        self.name = f"flow_{re.sub(r'[^A-Za-z0-9_]', '_', connection.name)}_{digest}"
        self.type = connection.catalog_type
        self.shown = connection.warehouse or connection.uri
        self._warehouse = connection.warehouse
        self._uri = connection.uri
        self._user, self._password, self._token = connection.user, connection.password, connection.token

    @property
    def identity(self) -> tuple[str, ...]:
        """Give what makes two catalogs the same."""
        return (self.type, self._uri, self._warehouse)

    @property
    def needs(self) -> SparkNeeds:
        """Give the packages and settings that a session needs from its start."""
        drivers = tuple(package for scheme, package in DRIVERS.items() if self._uri.startswith(scheme))
        return SparkNeeds((PACKAGE, *drivers), tuple(EXTENSIONS.items()))

    @property
    def settings(self) -> dict[str, str]:
        """Give the settings of the catalog, secrets among them; they are set on a running session only."""
        given = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".type": self.type,
            ".warehouse": self._warehouse,
            ".uri": self._uri,
            ".jdbc.schema-version": "V1" if self.type == "jdbc" else "",
            ".jdbc.user": self._user,
            ".jdbc.password": self._password,
            ".token": self._token,
            ".cache-enabled": "false",
        }
        return {key: value for key, value in given.items() if value}

    def probe(self) -> str:
        """Look for the warehouse; a catalog in a database or a service is opened by Spark, when a load needs it."""
        root = Path(self.store().shown)
        if self.type != "hadoop":
            message = f"a catalog of type {self.type} is asked by Spark only, when a load needs it"
            raise UnsupportedError(message)
        return (
            f"warehouse {root}" if root.is_dir() else f"warehouse {root} does not exist yet; the first load creates it"
        )

    def store(self) -> LocalStore:
        """Give the store of the warehouse, which keeps the books."""
        parts = urlsplit(self._warehouse)
        if not self._warehouse or parts.scheme not in ("", "file"):
            message = f"the books of Iceberg tables are kept in the warehouse, and {self.shown!r} is no folder"
            raise UnsupportedError(message, hint="give warehouse= with a folder of this machine.")
        return LocalStore(str(Path(parts.path if parts.scheme else self._warehouse).absolute()))


class _Branches(Applier):
    def __init__(self, catalog: str, table: tuple[str, str]) -> None:
        self._catalog = catalog
        self._table = _table(catalog, table)
        self._called = ".".join(backticked(part) for part in (table[0] or "default", table[1]))

    def prepare(self, engine: LakeEngine, change: Change) -> None:
        # Before anybody hears of it: whoever refuses the change moves the table away from where the branch begins.
        if not engine.query(f"SELECT 1 FROM {self._table}.refs WHERE name = 'main'"):
            engine.run(f"INSERT INTO {self._table} SELECT * FROM {self._table} WHERE FALSE", {})
        engine.run(f"ALTER TABLE {self._table} CREATE BRANCH `{BRANCH}{change.id}`", {})

    def change(self, engine: LakeEngine, sql: str, change: Change) -> dict[str, int]:
        branch = f"{BRANCH}{change.id}"
        told = engine.run(sql.replace(self._table, f"{self._table}.`branch_{branch}`"), _marked(change.id))
        engine.run(f"CALL {backticked(self._catalog)}.system.fast_forward('{self._called}', 'main', '{branch}')", {})
        engine.run(f"ALTER TABLE {self._table} DROP BRANCH `{branch}`", {})
        engine.run(f"ALTER TABLE {self._table} SET TBLPROPERTIES ('{PROPERTY}' = '{change.id}')", {})
        return told

    def made(self, engine: Callable[[], LakeEngine], change: Change) -> bool:
        sql = (
            f"SELECT 1 FROM {self._table}.snapshots AS s JOIN {self._table}.history AS h ON s.snapshot_id = h.snapshot_id "
            f"WHERE h.is_current_ancestor AND s.summary['{PROPERTY}'] = '{change.id}'"
        )
        return bool(engine().query(sql))

    def tidy(self, engine: LakeEngine) -> None:
        if engine.columns(self._table) is None:
            return
        # One that was begun before its change was told of, or that a statement made again when it came late.
        for (name,) in engine.query(f"SELECT name FROM {self._table}.refs WHERE name RLIKE '^{BRANCH}[0-9a-f]{{32}}$'"):
            engine.run(f"ALTER TABLE {self._table} DROP BRANCH IF EXISTS {backticked(name)}", {})

    def refuse(self, engine: LakeEngine, change: Change) -> None:
        # After a commit of somebody else the table cannot be moved to the branch any more.
        nothing = f"INSERT INTO {self._table} SELECT * FROM {self._table} WHERE FALSE"
        engine.run(nothing, _marked(f"refused-{change.id}"))
        engine.run(f"ALTER TABLE {self._table} DROP BRANCH IF EXISTS `{BRANCH}{change.id}`", {})


def _marked(change: str) -> dict[str, str]:
    return {f"spark.sql.iceberg.snapshot-property.{PROPERTY}": change}


def _table(catalog: str, table: tuple[str, str]) -> str:
    return ".".join(backticked(part) for part in (catalog, table[0] or "default", table[1]))

"""One Iceberg table through pyiceberg: its columns, its snapshots, and commits that name staged files; no engine, no rows.

Whatever a table uses that is not known here is left to Spark (docs/decisions/iceberg-appends.md).
"""

from __future__ import annotations

import json
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyiceberg.exceptions import (
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    OAuthError,
    TableAlreadyExistsError,
    UnauthorizedError,
)
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

from ematix_flow.connect.base.lake_engine import EngineError
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.connect.iceberg.branches import PROPERTY, is_branch
from ematix_flow.connect.iceberg.client import open_catalog
from ematix_flow.connect.storage.base import StoreError
from ematix_flow.errors import FlowError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ematix_flow.connect.base.columns import ColumnSchema
    from ematix_flow.connect.iceberg.file_io import TableStores
    from ematix_flow.declare.connection.registry import IcebergConnection

_MERGES = "commit.manifest-merge.enabled"
_NEW_TABLE = {"format-version": "2", "write.parquet.compression-codec": "zstd"}
"""What Spark sets for a new table too."""

_FORMATS = (1, 2)
_FOREIGN = (
    "encryption.key-id",
    "write.location-provider.impl",
    "write.py-location-provider.impl",
    "write.wap.enabled",
)
"""Properties of tables that require more of a writer than is done here."""

_TYPES = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "date": DateType(),
    "timestamp_ntz": TimestampType(),
    "timestamp": TimestamptzType(),
    "string": StringType(),
    "binary": BinaryType(),
}
"""Types of Iceberg that files are staged for, by the words of Spark's SQL."""

_TYPE_NAMES = {str(kind): type_name for type_name, kind in _TYPES.items()}


class LoadedTable:
    """A table as its catalog described it at one time; what is committed, is committed on top of that."""

    def __init__(self, table: Any, stores: TableStores) -> None:
        self._table, self._stores = table, stores
        self._metadata = table.metadata

    @property
    def is_known(self) -> bool:
        """Return whether everything about the table that matters for a commit is known here."""
        return self._metadata.format_version in _FORMATS and not any(name in self._properties for name in _FOREIGN)

    @property
    def is_partitioned(self) -> bool:
        """Return whether the table is partitioned."""
        return not self._metadata.spec().is_unpartitioned()

    def takes_files(self, staging: str) -> bool:
        """Return whether unsorted Parquet files that are staged at a location can be added to the table as they are."""
        return (
            self.is_known
            and not self.is_partitioned
            and self._metadata.sort_order().is_unsorted
            and self._properties.get("write.format.default", "parquet").lower() == "parquet"
            and self.columns() is not None
            and self._shares_store(staging)
        )

    def _shares_store(self, staging: str) -> bool:
        """Return whether a staged file can be given a second name where the table keeps its own."""
        try:
            return len({self._stores.find(location)[0] for location in (staging, self.new_location())}) == 1
        except UnsupportedError:
            return False

    def columns(self) -> list[tuple[str, str, bool]] | None:
        """Return name, type in the words of Spark and nullability of the columns; None where a type is not a plain one."""
        fields = self._metadata.schema().fields
        type_names = [_type_name(field.field_type) for field in fields]
        if None in type_names:
            return None
        return [
            (field.name, str(type_name), not field.required)
            for field, type_name in zip(fields, type_names, strict=True)
        ]

    def field_ids(self) -> str:
        """Return the ids of the columns, and which of them are required, as text that tasks are given."""
        return json.dumps({field.name: [field.field_id, field.required] for field in self._metadata.schema().fields})

    def is_committed(self, change: str) -> bool:
        """Return whether the table shows a change; snapshots may have been expired, the property outlives them."""
        named = (snapshot.summary[PROPERTY] for snapshot in self._ancestors() if snapshot.summary)
        return change in (self._properties.get(PROPERTY), *named)

    def last_change(self) -> str:
        """Return the id of the newest snapshot that added or removed rows; empty where there is none."""
        for snapshot in self._ancestors():
            properties = snapshot.summary.additional_properties if snapshot.summary else {}
            if any(name.startswith(("added-", "deleted-", "removed-")) for name in properties):
                return str(snapshot.snapshot_id)
        return ""

    def branches(self) -> list[str]:
        """Return the branches that loads were written to."""
        return [name for name in self._metadata.refs if is_branch(name)]

    def new_location(self) -> str:
        """Return where a new file of the table goes."""
        return str(self._table.location_provider().new_data_location(f"{uuid.uuid4()}.parquet"))

    def publish(self, staged: str, location: str) -> None:
        """Link a staged file to its second name, among the files of the table."""
        store, key = self._stores.find(location)
        store.publish_as(self._stores.find(staged)[1], key)

    def remove(self, location: str) -> None:
        """Remove a file that no commit names."""
        store, key = self._stores.find(location)
        store.delete(key)

    def add(self, locations: Sequence[str], change: str) -> None:
        """Commit files to the table; refused when anything was committed to it since it was loaded."""
        with _reported():
            self._append(locations, change, {PROPERTY: change})

    def refuse(self, change: str) -> None:
        """Commit a snapshot without rows: a change that was begun before it is never accepted."""
        with _reported():
            self._append((), f"refused-{change}", {})

    def drop_branches(self, names: Sequence[str]) -> None:
        """Remove branches."""
        with _reported():
            for name in names:
                if name in self._table.metadata.refs:
                    self._table.manage_snapshots().remove_branch(name).commit()

    def _append(self, locations: Sequence[str], change: str, properties: dict[str, str]) -> None:
        transaction = self._table.transaction()
        # Iceberg's own default; without the property pyiceberg would add a manifest with every commit for ever.
        merging = {_MERGES: "true"} if _MERGES not in self._properties else {}
        transaction.set_properties({**properties, **merging})
        update = transaction.update_snapshot(snapshot_properties={PROPERTY: change})
        with update.merge_append() as snapshot:
            for location in locations:
                described = parquet_file_to_data_file(
                    io=self._table.io, table_metadata=self._metadata, file_path=location
                )
                snapshot.append_data_file(described)
        transaction.commit_transaction()

    @property
    def _properties(self) -> Mapping[str, str]:
        return self._metadata.properties  # type: ignore[no-any-return]

    def _ancestors(self) -> Iterator[Any]:
        snapshot = self._metadata.current_snapshot()
        while snapshot is not None:
            yield snapshot
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self._metadata.snapshot_by_id(parent)


class IcebergFiles:
    """The name of one table in a catalog that pyiceberg commits to."""

    def __init__(self, name: str, connection: IcebergConnection, table: tuple[str, str]) -> None:
        with _reported():
            self._catalog, self._stores = open_catalog(name, connection)
        self._namespace = table[0] or "default"
        self._name = (self._namespace, table[1])
        self._location = _default_location(connection, *self._name)

    def load(self) -> LoadedTable | None:
        """Return the table as it is now, or None where there is none."""
        with _reported():
            try:
                return LoadedTable(self._catalog.load_table(self._name), self._stores)
            except (NoSuchTableError, NoSuchNamespaceError):
                return None

    def create_namespace(self) -> None:
        """Create the namespace, unless it is there."""
        with _reported():
            try:
                if not self._catalog.namespace_exists((self._namespace,)):
                    self._catalog.create_namespace((self._namespace,))
            except NamespaceAlreadyExistsError:
                return

    def create(self, columns: Sequence[ColumnSchema]) -> bool:
        """Create the table; False where it exists, or where a type needs Spark."""
        kinds = [_kind(column.type) for column in columns]
        if None in kinds:
            return False
        fields = (
            NestedField(number, column.name, kind, required=not column.nullable)
            for number, (column, kind) in enumerate(zip(columns, kinds, strict=True), 1)
        )
        with _reported():
            try:
                self._catalog.create_table(self._name, Schema(*fields), self._location, properties=_NEW_TABLE)
            except TableAlreadyExistsError:
                return False
        return True


def _kind(type_name: str) -> Any | None:
    type_name = type_name.lower()
    if type_name.startswith("decimal("):
        precision, scale = type_name.removeprefix("decimal(").removesuffix(")").split(",")
        return DecimalType(int(precision), int(scale))
    return _TYPES.get(type_name)


def _type_name(kind: Any) -> str | None:
    if isinstance(kind, DecimalType):
        return f"decimal({kind.precision},{kind.scale})"
    return _TYPE_NAMES.get(str(kind))


def _default_location(connection: IcebergConnection, namespace: str, name: str) -> str | None:
    """Return where Spark would put a new table; None where the service chooses."""
    folder = {"jdbc": namespace, "glue": f"{namespace}.db"}.get(connection.catalog_type)
    return None if folder is None else f"{connection.warehouse.rstrip('/')}/{folder}/{name}"


@contextmanager
def _reported() -> Iterator[None]:
    """Turn what a catalog's client raises into an error of the engine; whether a commit arrived is not known then."""
    try:
        yield
    except (FlowError, StoreError, EngineError):
        raise
    except Exception as error:
        refused = isinstance(error, UnauthorizedError | ForbiddenError | OAuthError)
        raise EngineError(safe_text(error), transient=not refused, answered=refused) from error

"""Folders of files as targets: tasks write whole files out of sight, and one record makes all of them part of the table.

The list of a table's files, its columns and all metadata are an SQLite database that `metadata.session` keeps in the
store. Files get their final names after the record is there; the next session finishes what a crash left.
"""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ematix_flow.connect.base.capabilities import FOUR_DIGITS
from ematix_flow.connect.base.columns import TableName
from ematix_flow.connect.files import FILES_LOCAL
from ematix_flow.connect.files.transaction import FILES, FileSession
from ematix_flow.connect.formats.writers import EXTENSIONS
from ematix_flow.connect.metadata.tables import SQLiteMetadataTables
from ematix_flow.connect.metadata.target import StoreTarget
from ematix_flow.connect.sqlite import types as sqlite_types
from ematix_flow.connect.staging.files import FileStager
from ematix_flow.connect.storage.base import LocalStore, parse_staged_path
from ematix_flow.connect.types.fingerprint import EMPTY
from ematix_flow.connect.types.identifiers import quoted
from ematix_flow.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ematix_flow.connect.base.metadata_store import MetadataStore
    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.stage import Stager, StageSpec
    from ematix_flow.connect.storage.base import Store
    from ematix_flow.declare.connection.files import BucketConnection
    from ematix_flow.declare.connection.registry import ObjectStoreLocalConnection
    from ematix_flow.records import TaskReport

STAGED_FILES = "_flow_stage_files"


class FileTables(SQLiteMetadataTables, StoreTarget):
    """Tables that are folders of files below one root."""

    kind = "object_store_local"
    errors = StoreTarget.errors
    capabilities = FILES_LOCAL.capabilities

    def __init__(self, connection: ObjectStoreLocalConnection) -> None:
        # Workers may run in another folder than the driver, so a relative path is resolved here.
        self._configure(connection, connection.path, LocalStore(str(Path(connection.path).absolute())))

    def _configure(
        self, connection: ObjectStoreLocalConnection | BucketConnection, display_path: str, store: Store
    ) -> None:
        self.name = connection.name
        self.display_path = display_path
        self.format = connection.format
        self.store = store
        if self.format == "orc":
            self.capabilities = replace(self.capabilities, cannot_store=("far_instant",))
        elif self.format != "parquet":
            self.capabilities = replace(self.capabilities, times=FOUR_DIGITS)

    def __repr__(self) -> str:
        return f"FileTables({self.display_path!r})"

    def identity(self) -> tuple[str, ...]:
        """Two connections are the same when they name the same folder."""
        return ("files", os.path.realpath(self.store.display_address))

    def info(self) -> Mapping[str, object]:
        """Return the folder under `dbname`."""
        return {"host": None, "port": None, "dbname": self.display_path, "user": None}

    def session(self) -> FileSession:
        """Open the newest state; a store without one gets it with its first commit."""
        return FileSession(self.store)

    @property
    def metadata_store(self) -> MetadataStore:
        """Return this target: its own tables are in the state that lists its files."""
        return self

    # Tables

    def table_name(self, schema: str, name: str) -> TableName:
        """Return a table's folder: `schema/name` below the root."""
        for segment in (schema, name):
            if segment in (".", "..") or "/" in segment or "\0" in segment or segment.startswith(("_", ".")):
                message = f"{segment!r} cannot be the name of a folder that readers shall see"
                raise UnsupportedError(message, hint="names of files and folders begin with neither _ nor a dot.")
        return TableName("", f"{schema}/{name}" if schema else name)

    def same_type(self, existing: str, declared: str) -> bool:
        """Compare types."""
        return sqlite_types.same_type(existing, declared)

    def fingerprint(self, session: Session, table: TableName, columns: Sequence[str]) -> str:
        """Return a digest of the list of its files."""
        del columns
        rows = session.query(f"SELECT path, rows, bytes FROM {FILES} WHERE table_name = ? ORDER BY path", (table.name,))
        return hashlib.sha256(repr(rows).encode()).hexdigest() if rows else EMPTY

    # Staging

    def stager(self, spec: StageSpec, partition: int, attempt: int) -> Stager:
        """Write files of the connection's format, named by attempt."""
        return FileStager(self.store, self.format, spec, partition, attempt)

    def staged_relation(self, session: Session, spec: StageSpec, parts: Sequence[TaskReport]) -> str:
        """Return the named files as a relation of paths, rows and bytes, with the names that they will have."""
        del spec
        table = _temporary(session, STAGED_FILES, "staged TEXT, name TEXT, rows INTEGER, bytes INTEGER")
        for part in sorted((part for part in parts if part.path), key=lambda part: part.partition):
            key, size = parse_staged_path(part.path)
            name = f"{time_ordered_name()}.{key.rpartition('.')[2]}"
            session.execute(f"INSERT INTO {table} VALUES (?, ?, ?, ?)", (key, name, part.rows, size))
        return table

    def drop_stage(self, session: Session, spec: StageSpec) -> None:
        """Remove what the load staged; files that are part of a table are given their final names before."""
        cast("FileSession", session).finalize_newest()
        super().drop_stage(session, spec)

    def check_files(self, options: Mapping[str, Any]) -> None:
        """Refuse options of another format than the connection's."""
        for name in options:
            option_format = name.partition("_")[0]
            if option_format in EXTENSIONS and option_format != self.format:
                message = (
                    f"{name}= is an option of {option_format} files, and connection {self.name!r} writes {self.format}"
                )
                raise UnsupportedError(message)


def time_ordered_name() -> str:
    """Return a name that sorts by the time it was made: version 7 of a UUID, as hexadecimal digits."""
    milliseconds = time.time_ns() // 1_000_000
    noise = int.from_bytes(os.urandom(10))
    high = (milliseconds << 16) | 0x7000 | (noise >> 64 & 0x0FFF)
    low = (0b10 << 62) | (noise & ((1 << 62) - 1))
    return f"{(high << 64) | low:032x}"


def _temporary(session: Session, name: str, columns: str) -> str:
    session.execute(f"DROP TABLE IF EXISTS temp.{quoted(name)}")
    session.execute(f"CREATE TEMP TABLE {quoted(name)} ({columns})")
    return f"temp.{quoted(name)}"

"""Folders of files as targets: tasks write whole files out of sight, and one record makes all of them part of the table.

The list of a table's files, its columns and all bookkeeping are an SQLite database that `store_session` keeps in the
store. Files get their final names after the record is there; whoever comes next finishes what a crash left.
"""

from __future__ import annotations

import os
import sqlite3
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ematix_flow.connect import sqlite_catalog, sqlite_types
from ematix_flow.connect.arrow import REJECTS
from ematix_flow.connect.base import Capabilities, Database, TableName
from ematix_flow.connect.file_formats import EXTENSIONS
from ematix_flow.connect.file_parts import FileStager, check_files, reject_batches
from ematix_flow.connect.file_session import FileSession
from ematix_flow.connect.identifiers import quoted
from ematix_flow.connect.sqlite_session import primary_code
from ematix_flow.connect.store import LocalStore, StoreError, StoreUnavailableError, told_parts
from ematix_flow.connect.store_session import HOME
from ematix_flow.errors import RunError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from ematix_flow.connect.base import (
        FoundTable,
        Opened,
        Session,
        SourceColumn,
        Split,
        StageColumn,
        Stager,
        StageSpec,
        WorkTable,
    )
    from ematix_flow.connect.store import Store
    from ematix_flow.declare.connection import ObjectStoreLocalConnection, ObjectStoreS3Connection
    from ematix_flow.declare.types import ColumnType
    from ematix_flow.records import Part

STAGE = f"{HOME}stage/"
STAGED_FILES = "_flow_stage_files"
STAGED_REJECTS = "_flow_stage_rejects"


class FileTables(Database):
    """Tables that are folders of files below one root."""

    kind = "object_store_local"
    dialect = "sqlite"
    capabilities = Capabilities(
        modes=("append", "truncate"),
        source=True,
        guarantee="exactly once for readers of the commit records; readers of the folder see whole files, none twice",
        transactional_ddl=True,
        answers_sql=False,
    )

    store: Store

    def __init__(self, connection: ObjectStoreLocalConnection) -> None:
        # Workers may run in another folder than the driver, so a relative path is settled here.
        self._keep(connection, connection.path, LocalStore(str(Path(connection.path).absolute())))

    def _keep(self, connection: ObjectStoreLocalConnection | ObjectStoreS3Connection, shown: str, store: Store) -> None:
        self.name = connection.name
        self.shown_path = shown
        self.format = connection.format
        self.store = store
        if self.format == "orc":
            self.capabilities = replace(self.capabilities, cannot_store=("far_instant",))

    def __repr__(self) -> str:
        return f"FileTables({self.shown_path!r})"

    @property
    def errors(self) -> tuple[type[BaseException], ...]:
        """Give what SQLite and the store may raise."""
        return (sqlite3.Error, OSError)

    def identity(self) -> tuple[str, ...]:
        """Two connections are the same when they name the same folder."""
        return ("files", os.path.realpath(self.store.shown))

    def info(self) -> Mapping[str, object]:
        """Give the folder under `dbname`."""
        return {"host": None, "port": None, "dbname": self.shown_path, "user": None}

    def probe(self) -> str:
        """Say whether the folder is there."""
        if not Path(self.store.shown).is_dir():
            message = f"folder {self.store.shown} does not exist"
            raise RunError(message)
        return f"folder {self.store.shown}"

    def session(self) -> FileSession:
        """Open the newest state; a store without one gets it with its first commit."""
        return FileSession(self.store)

    def exists(self) -> bool:
        """Say whether the folder is there."""
        return Path(self.store.shown).is_dir()

    def is_transient(self, error: BaseException) -> bool:
        """Say yes for what the system says about the store, unless the store says that it will stay like this."""
        if isinstance(error, StoreError):
            return isinstance(error, StoreUnavailableError)
        return isinstance(error, OSError)

    def is_duplicate_key(self, error: BaseException) -> bool:
        """Say whether a unique constraint was violated."""
        return isinstance(error, sqlite3.Error) and primary_code(error) == sqlite3.SQLITE_CONSTRAINT

    # Tables

    def place(self, schema: str, name: str) -> TableName:
        """Give a table's folder: `schema/name` below the root."""
        for part in (schema, name):
            if part in (".", "..") or "/" in part or "\0" in part or part.startswith(("_", ".")):
                message = f"{part!r} cannot be the name of a folder that readers shall see"
                raise UnsupportedError(message, hint="names of files and folders begin with neither _ nor a dot.")
        return TableName("", f"{schema}/{name}" if schema else name)

    def bookkeeping(self, name: str) -> TableName:
        """Our own tables have a prefix."""
        return TableName("", f"ematix_flow_{name}")

    def ddl_type(self, column_type: ColumnType, *, in_key: bool = False) -> str:
        """Give the type by which the state remembers a column."""
        del in_key
        return sqlite_types.ddl_type(column_type)

    def same_type(self, found: str, wanted: str) -> bool:
        """Compare types."""
        return sqlite_types.same_type(found, wanted)

    def create_schema(self, session: Session, schema: str) -> None:
        """Do nothing: folders come with their first file."""

    def find_table(self, session: Session, table: TableName) -> FoundTable | None:
        """Describe a table by what the state remembers of it."""
        return sqlite_catalog.find_table(session, table.name)

    # Reading

    def describe(self, session: Session, sql: str) -> tuple[SourceColumn, ...]:
        """Refuse: files are read as files."""
        del session, sql
        raise self._no_queries()

    def interchange(self, column: SourceColumn, expression: str) -> str:
        """Refuse: files are read as files."""
        del column, expression
        raise self._no_queries()

    def open_read(self, session: Session, sql: str, parallel: int) -> Opened:
        """Refuse: files are read as files."""
        del session, sql, parallel
        raise self._no_queries()

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Refuse: files are read as files."""
        del split
        raise self._no_queries()

    def _no_queries(self) -> UnsupportedError:
        return UnsupportedError(f"connection {self.name!r} is a folder of files, which answers no SQL")

    # Staging

    def open_stage(self, session: Session, spec: StageSpec) -> StageSpec:
        """Keep a place out of sight that only this load writes to."""
        del session
        return replace(spec, folder=f"{STAGE}{spec.name}/")

    def stager(self, spec: StageSpec, partition: int, attempt: int) -> Stager:
        """Write files of the connection's format, named by attempt."""
        return FileStager(self.store, self.format, spec, partition, attempt)

    def verify_stage(self, session: Session, spec: StageSpec, parts: Sequence[Part]) -> None:
        """Compare the bytes of each named file with its report."""
        del session
        check_files(self.store, spec, parts)

    def staged_relation(self, session: Session, spec: StageSpec, parts: Sequence[Part]) -> str:
        """Give the named files as a relation of paths, rows and bytes, with the names that they will have."""
        del spec
        table = _temporary(session, STAGED_FILES, "staged TEXT, name TEXT, rows INTEGER, bytes INTEGER")
        for part in sorted((part for part in parts if part.path), key=lambda part: part.partition):
            key, size = told_parts(part.path)
            name = f"{time_ordered_name()}.{key.rpartition('.')[2]}"
            session.execute(f"INSERT INTO {table} VALUES (?, ?, ?, ?)", (key, name, part.rows, size))
        return table

    def reject_relation(self, session: Session, spec: StageSpec, parts: Sequence[Part]) -> str:
        """Load the named reject files into a temporary table of this session."""
        columns = ", ".join(f"{quoted(name)} TEXT" for name in REJECTS.names)
        table = _temporary(session, STAGED_REJECTS, columns)
        for batch in reject_batches(self.store, spec, parts):
            rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            cast("FileSession", session).fill(table, len(REJECTS), rows)
        return table

    def drop_stage(self, session: Session, spec: StageSpec) -> None:
        """Remove what the load staged; files that are part of a table are given their places before."""
        cast("FileSession", session).settle_newest()
        self.store.remove_below(f"{STAGE}{spec.name}/")

    def stages(self, session: Session) -> Iterable[tuple[str, float]]:
        """List the loads that have something staged, with the seconds since they last added to it."""
        del session
        ages: dict[str, float] = {}
        for found in (*self.store.listed(STAGE), *self.store.unfinished(STAGE)):
            name = found.key.removeprefix(STAGE).partition("/")[0]
            ages[name] = min(found.age, ages.get(name, found.age))
        return ages.items()

    def create_work_table(self, session: Session, table: WorkTable, incarnation: str) -> str:
        """Refuse: no mode of files needs one."""
        del session, table, incarnation
        raise self._no_queries()

    def check_files(self, options: Mapping[str, Any]) -> None:
        """Refuse options of another format than the connection's."""
        for name in options:
            wanted = name.partition("_")[0]
            if wanted in EXTENSIONS and wanted != self.format:
                message = f"{name}= is an option of {wanted} files, and connection {self.name!r} writes {self.format}"
                raise UnsupportedError(message)

    def check_clause(self, column: StageColumn) -> str:
        """Check nothing: rows do not pass the state, and what they may hold is checked before they are staged."""
        del column
        return ""


def time_ordered_name() -> str:
    """Give a name that sorts by the time it was made: version 7 of a UUID, as hexadecimal digits."""
    milliseconds = time.time_ns() // 1_000_000
    noise = int.from_bytes(os.urandom(10))
    high = (milliseconds << 16) | 0x7000 | (noise >> 64 & 0x0FFF)
    low = (0b10 << 62) | (noise & ((1 << 62) - 1))
    return f"{(high << 64) | low:032x}"


def _temporary(session: Session, name: str, columns: str) -> str:
    session.execute(f"DROP TABLE IF EXISTS temp.{quoted(name)}")
    session.execute(f"CREATE TEMP TABLE {quoted(name)} ({columns})")
    return f"temp.{quoted(name)}"

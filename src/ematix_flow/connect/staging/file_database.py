"""Databases that are one file, or memory of this process: rows are staged as Parquet, for no task can open it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from ematix_flow.connect.base.database import Database
from ematix_flow.connect.staging.parquet import (
    ParquetStager,
    check_parts,
    create_folder,
    drop_folder,
    folders,
    process_folder,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.stage import Stager, StageSpec
    from ematix_flow.declare.connection.registry import DuckDBConnection, SQLiteConnection
    from ematix_flow.records import TaskReport


class FileDatabase(Database):
    """A database file, or a database in this process's memory."""

    def __init__(self, connection: DuckDBConnection | SQLiteConnection) -> None:
        self.name = connection.name
        self.display_path = connection.path
        # Workers may run in another folder than the driver, so a relative path is resolved here.
        self.path = connection.path if connection.path == ":memory:" else str(Path(connection.path).absolute())
        self.timezone = connection.timezone

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.display_path!r})"

    @property
    def in_memory(self) -> bool:
        """True when no other process can see the data."""
        return self.path == ":memory:"

    @property
    def read_paths(self) -> tuple[str, ...]:
        """Return the file."""
        return (self.path,)

    @property
    def staging_paths(self) -> tuple[str, ...]:
        """Return where parts wait."""
        return (str(self.stage_root()),)

    def identity(self) -> tuple[str, ...]:
        """Two connections are the same database when they open the same file."""
        return (self.kind, self.name if self.in_memory else os.path.realpath(self.path))

    def info(self) -> Mapping[str, object]:
        """Return the file under `dbname`; there is no host."""
        return {"host": None, "port": None, "dbname": self.display_path, "user": None}

    def exists(self) -> bool:
        """Return whether the file is there."""
        return self.in_memory or Path(self.path).exists()

    def stage_root(self) -> Path:
        """Return the folder of all stagings of this database."""
        if self.in_memory:
            return process_folder() / f"{self.kind}-{quote(self.name, safe='')}"
        return Path(os.path.realpath(self.path) + ".flow_stage")

    def open_stage(self, session: Session, spec: StageSpec) -> StageSpec:
        """Create a folder next to the file that only this load writes to."""
        del session
        return create_folder(self.stage_root(), spec)

    def stager(self, spec: StageSpec, partition: int, attempt: int) -> Stager:
        """Write Parquet parts named by attempt."""
        return ParquetStager(spec, partition, attempt)

    def verify_stage(self, session: Session, spec: StageSpec, parts: Sequence[TaskReport]) -> None:
        """Compare the rows in each named file with its report."""
        del session
        check_parts(spec, parts)

    def drop_stage(self, session: Session, spec: StageSpec) -> None:
        """Remove the load's folder."""
        del session
        drop_folder(self.stage_root(), spec.name)

    def stages(self, session: Session) -> Iterable[tuple[str, float]]:
        """List the folders with their age."""
        del session
        return folders(self.stage_root())

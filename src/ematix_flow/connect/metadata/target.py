"""What targets have in common whose metadata is an SQLite file in a store, with staging as files there."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from ematix_flow.connect.base.target import TargetSystem
from ematix_flow.connect.metadata.cleanup import metadata_task
from ematix_flow.connect.metadata.session import HOME
from ematix_flow.connect.metadata.tables import load_rejects
from ematix_flow.connect.staging.files import check_files, reject_batches
from ematix_flow.connect.storage.base import LocalStore, StoreError, StoreUnavailableError
from ematix_flow.connect.types.arrow import REJECTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from ematix_flow.connect.base.maintenance import MaintenanceTask
    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.stage import StageSpec
    from ematix_flow.connect.metadata.session import StoreSession
    from ematix_flow.connect.sqlite.session import SQLiteSession
    from ematix_flow.connect.storage.base import Store
    from ematix_flow.declare.table.maintenance import Maintenance
    from ematix_flow.records import TaskReport

STAGE = "stage/"
"""Where loads stage their files, below the home of the metadata."""


class StoreTarget(TargetSystem):
    """A target in a store."""

    store: Store
    name: str

    @property
    def home(self) -> str:
        """Return where the metadata and the staging are."""
        return HOME

    @property
    def write_paths(self) -> tuple[str, ...]:
        """Return the folder; a bucket is reached from everywhere."""
        return (self.store.display_address,) if isinstance(self.store, LocalStore) else ()

    @property
    def errors(self) -> tuple[type[BaseException], ...]:
        """Return what the metadata store and the object store may raise."""
        return (sqlite3.Error, OSError)

    def is_transient(self, error: BaseException) -> bool:
        """Return True for errors of the operating system or the store, unless the store reports them as permanent."""
        if isinstance(error, StoreError):
            return isinstance(error, StoreUnavailableError)
        return isinstance(error, OSError)

    def probe(self) -> str:
        """Return whether the store is there."""
        return self.store.probe()

    def exists(self) -> bool:
        """Return whether the store is there, as far as is known without a request for anything in it."""
        return self.store.exists()

    def maintenance_tasks(self, session: Session, rules: Maintenance, now: datetime) -> Sequence[MaintenanceTask]:
        """Return the clean-up of the metadata."""
        del rules, now
        return (metadata_task(cast("StoreSession", session)),)

    # Staging

    def open_stage(self, session: Session, spec: StageSpec) -> StageSpec:
        """Reserve a hidden folder that only this load writes to."""
        del session
        return replace(spec, folder=f"{self.home}{STAGE}{spec.name}/")

    def verify_stage(self, session: Session, spec: StageSpec, parts: Sequence[TaskReport]) -> None:
        """Compare the bytes of each named file with its report."""
        del session
        check_files(self.store, spec, parts)

    def reject_relation(self, session: Session, spec: StageSpec, parts: Sequence[TaskReport]) -> str:
        """Load the named reject files into a temporary table of the metadata session."""
        return load_rejects(cast("SQLiteSession", session), REJECTS.names, reject_batches(self.store, spec, parts))

    def drop_stage(self, session: Session, spec: StageSpec) -> None:
        """Remove what the load staged."""
        del session
        self.store.remove_below(f"{self.home}{STAGE}{spec.name}/")

    def stages(self, session: Session) -> Iterable[tuple[str, float]]:
        """List the loads that have something staged, with the seconds since they last added to it."""
        del session
        ages: dict[str, float] = {}
        root = f"{self.home}{STAGE}"
        for info in (*self.store.listed(root), *self.store.unfinished(root)):
            name = info.key.removeprefix(root).partition("/")[0]
            ages[name] = min(info.age, ages.get(name, info.age))
        return ages.items()

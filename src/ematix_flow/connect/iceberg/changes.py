"""How a load changes an Iceberg table once: by a branch that the table is moved to, or by a commit that names its files.

Either is refused by the table itself after a commit of another writer: a branch cannot be reached any more, and files
are committed only on top of the snapshot that was there before.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ematix_flow.connect.iceberg.branches import BRANCH, PROPERTY, branches_of, drop_branches
from ematix_flow.connect.lake.change import Applier
from ematix_flow.connect.types.identifiers import backticked, spark_text
from ematix_flow.errors import TransientError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.connect.base.lake_engine import LakeEngine
    from ematix_flow.connect.iceberg.files import IcebergFiles, LoadedTable
    from ematix_flow.connect.lake.change import Change


class IcebergChanges(Applier):
    """Makes the changes of one table."""

    # A table that cannot be moved to the branch raises an error.
    decides = True

    def __init__(
        self, catalog: str, table: tuple[str, str], files: Callable[[], IcebergFiles | None], *, may_commit_late: bool
    ) -> None:
        self.may_commit_late = may_commit_late
        self._files = files
        self._catalog = catalog
        self._table = table_name(catalog, table)
        self._called = spark_text(".".join(backticked(part) for part in (table[0] or "default", table[1])))

    def prepare(self, engine: LakeEngine, change: Change) -> None:
        """Begin a branch for the load."""
        # Before the intent is written: to refuse the change moves the table away from where the branch begins.
        engine.run(f"ALTER TABLE {self._table} CREATE BRANCH `{BRANCH}{change.id}`", {})

    def change(self, engine: LakeEngine, sql: str, change: Change) -> dict[str, int]:
        """Write to the branch, and move the table to it."""
        branch = f"{BRANCH}{change.id}"
        counts = engine.run(sql.replace(self._table, f"{self._table}.`branch_{branch}`"), _snapshot_settings(change.id))
        engine.run(f"CALL {backticked(self._catalog)}.system.fast_forward({self._called}, 'main', '{branch}')", {})
        engine.run(f"ALTER TABLE {self._table} DROP BRANCH `{branch}`", {})
        engine.run(f"ALTER TABLE {self._table} SET TBLPROPERTIES ('{PROPERTY}' = '{change.id}')", {})
        return counts

    def is_committed(self, engine: Callable[[], LakeEngine], change: Change) -> bool:
        """Return whether the table shows the load."""
        _, table = loaded(self._files)
        if table is not None:
            return table.is_committed(change.id)
        sql = (
            f"SELECT 1 FROM {self._table}.snapshots AS s JOIN {self._table}.history AS h ON s.snapshot_id = h.snapshot_id "
            f"WHERE h.is_current_ancestor AND s.summary['{PROPERTY}'] = '{change.id}'"
        )
        # Snapshots may have been expired meanwhile; the property of the table outlives them.
        properties_sql = f"SHOW TBLPROPERTIES {self._table} ('{PROPERTY}')"
        return bool(engine().query(sql)) or any(change.id in row for row in engine().query(properties_sql))

    def clean_up(self, engine: Callable[[], LakeEngine]) -> None:
        """Remove the branches of loads that died."""
        known, table = loaded(self._files)
        if known and table is not None:
            # What cannot be removed because another writer commits is removed after the next crash, or by maintenance.
            with suppress(TransientError):
                table.drop_branches(table.branches())
        if known:
            return
        lake_engine = engine()
        if lake_engine.columns(self._table) is not None:
            # One that was begun before the intent was written, or that a statement made again when it came late.
            drop_branches(lake_engine, self._table, branches_of(lake_engine, self._table))

    def refuse(self, engine: Callable[[], LakeEngine], change: Change) -> None:
        """Commit something else first."""
        # After a commit of another writer the table cannot be moved to the branch any more, nor takes files planned
        # before.
        _, table = loaded(self._files)
        if table is not None:
            table.refuse(change.id)
            table.drop_branches([f"{BRANCH}{change.id}"])
            return
        nothing = f"INSERT INTO {self._table} SELECT * FROM {self._table} WHERE FALSE"
        engine().run(nothing, _snapshot_settings(f"refused-{change.id}"))
        engine().run(f"ALTER TABLE {self._table} DROP BRANCH IF EXISTS `{BRANCH}{change.id}`", {})


def loaded(files: Callable[[], IcebergFiles | None]) -> tuple[bool, LoadedTable | None]:
    """Return whether Spark need not be queried about a table, and the table if there is one."""
    opened = files()
    if opened is None:
        return False, None
    table = opened.load()
    return (True, table) if table is None or table.is_known else (False, None)


def table_name(catalog: str, table: tuple[str, str]) -> str:
    """Return the name of a table in Spark's SQL."""
    return ".".join(backticked(part) for part in (catalog, table[0] or "default", table[1]))


def _snapshot_settings(change: str) -> dict[str, str]:
    return {f"spark.sql.iceberg.snapshot-property.{PROPERTY}": change}

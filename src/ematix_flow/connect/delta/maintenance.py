"""What a Delta table needs now and then: small files put together, and files removed that no retained version reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.base.maintenance import SMALL, MaintenanceTask
from ematix_flow.connect.delta import log as delta_log
from ematix_flow.connect.delta.retention import retention
from ematix_flow.connect.types.identifiers import backticked, spark_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from ematix_flow.connect.base.lake_engine import LakeEngine
    from ematix_flow.connect.delta.retention import Retention
    from ematix_flow.connect.storage.base import Store
    from ematix_flow.declare.table.maintenance import Maintenance

SETTINGS = {
    # Delta lists a table's folders in so many tasks; the default of 10,000 takes minutes for a table of one folder.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",
    # Two empty commits per clean-up would push versions of the table out of the newest ones.
    "spark.databricks.delta.vacuum.logging.enabled": "false",
}
EXPLICIT_RETENTION = {
    # Delta ignores the hours of a statement otherwise, or refuses them where they are less than the table's property.
    "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled": "false",
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
}


def delta_tasks(
    store: Store, folder: str, engine: Callable[[], LakeEngine], rules: Maintenance, now: datetime
) -> Sequence[MaintenanceTask]:
    """Return the maintenance tasks of a table."""
    table = _DeltaMaintenance(store, folder, engine, rules, now)
    compact = MaintenanceTask("compact", table.compact, table.size)
    vacuum = MaintenanceTask("vacuum", table.vacuum, table.vacuum_dry_run)
    return (compact, vacuum) if rules.compact else (vacuum,)


class _DeltaMaintenance:
    def __init__(
        self, store: Store, folder: str, engine: Callable[[], LakeEngine], rules: Maintenance, now: datetime
    ) -> None:
        self._store, self._folder = store, folder
        self._engine, self._rules, self._now = engine, rules, now
        self._name = f"delta.{backticked(store.path(folder).rstrip('/'))}"

    def size(self) -> dict[str, int | str]:
        """Return the files and bytes of the newest version."""
        detail = self._engine().run(f"DESCRIBE DETAIL {self._name}", {})
        return {"files": detail["numFiles"], "bytes": detail["sizeInBytes"]}

    def compact(self) -> dict[str, int | str]:
        """Put small files together, partition by partition."""
        before, size = self.size(), self._rules.file_bytes
        limits = {"maxFileSize": size, "minFileSize": int(size * SMALL)}
        settings = {f"spark.databricks.delta.optimize.{name}": str(value) for name, value in limits.items()}
        self._engine().run(f"OPTIMIZE {self._name}", settings)
        after = self.size()
        return {"files_before": before["files"], "files_after": after["files"], "bytes": after["bytes"]}

    def vacuum(self) -> dict[str, int | str]:
        """Remove files that no retained version reads; the retention has to be a property of the table first."""
        retention_plan, before = self._retention(), self._stored()
        if retention_plan.changes:
            listed = ", ".join(
                f"{spark_text(key)} = {spark_text(value)}" for key, value in retention_plan.changes.items()
            )
            self._engine().run(f"ALTER TABLE {self._name} SET TBLPROPERTIES ({listed})", {})
        self._engine().run(f"VACUUM {self._name}", SETTINGS)
        removed = before.keys() - self._stored().keys()
        return {
            "removed": len(removed),
            "bytes_removed": sum(before[key] for key in removed),
            "kept_hours": retention_plan.hours,
        }

    def vacuum_dry_run(self) -> dict[str, int | str]:
        """Count what would be removed; Delta names a thousand files at the most."""
        hours = self._retention().hours
        files = self._engine().query(
            f"VACUUM {self._name} RETAIN {hours} HOURS DRY RUN", {**SETTINGS, **EXPLICIT_RETENTION}
        )
        return {"removed": len(files), "kept_hours": hours}

    def _retention(self) -> Retention:
        return retention(self._store, self._folder, self._rules, self._now)

    def _stored(self) -> dict[str, int]:
        log = f"{self._folder}{delta_log.LOG}"
        return {f.key: f.size for f in self._store.listed(self._folder) if not f.key.startswith(log)}

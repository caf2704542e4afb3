"""What a Delta table needs now and then: small files put together, and files removed that no kept version reads."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING

from ematix_flow.connect import delta_log
from ematix_flow.connect.identifiers import backticked
from ematix_flow.connect.upkeep import SMALL, Chore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ematix_flow.connect.lake_engine import LakeEngine
    from ematix_flow.connect.store import Store
    from ematix_flow.declare.maintenance import Maintenance

CHECKED_HOURS = 168
"""Delta refuses to remove files that are younger, unless it is told that this is meant."""

SETTINGS = {
    # Delta lists a table's folders in so many tasks; the default of 10,000 takes minutes for a table of one folder.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",
    # Two empty commits per clean-up would push versions of the table out of the newest ones.
    "spark.databricks.delta.vacuum.logging.enabled": "false",
}


def delta_chores(
    store: Store, folder: str, engine: Callable[[], LakeEngine], rules: Maintenance, now: datetime
) -> Sequence[Chore]:
    """Give the chores of a table."""
    table = _Table(store, folder, engine, rules, now)
    compact = Chore("compact", table.compact, table.size)
    vacuum = Chore("vacuum", table.vacuum, table.vacuum_look)
    return (compact, vacuum) if rules.compact else (vacuum,)


class _Table:
    def __init__(
        self, store: Store, folder: str, engine: Callable[[], LakeEngine], rules: Maintenance, now: datetime
    ) -> None:
        self._store, self._folder = store, folder
        self._engine, self._rules, self._now = engine, rules, now
        self._name = f"delta.{backticked(store.path(folder).rstrip('/'))}"

    def size(self) -> dict[str, int | str]:
        """Give the files and bytes of the newest version."""
        told = self._engine().run(f"DESCRIBE DETAIL {self._name}", {})
        return {"files": told["numFiles"], "bytes": told["sizeInBytes"]}

    def compact(self) -> dict[str, int | str]:
        """Put small files together, partition by partition."""
        before, size = self.size(), self._rules.file_bytes
        limits = {"maxFileSize": size, "minFileSize": int(size * SMALL)}
        settings = {f"spark.databricks.delta.optimize.{name}": str(value) for name, value in limits.items()}
        self._engine().run(f"OPTIMIZE {self._name}", settings)
        after = self.size()
        return {"files_before": before["files"], "files_after": after["files"], "bytes": after["bytes"]}

    def vacuum(self) -> dict[str, int | str]:
        """Remove files that no kept version reads."""
        hours, before = self._hours(), self._stored()
        self._engine().run(*self._vacuum(hours))
        gone = before.keys() - self._stored().keys()
        return {"removed": len(gone), "bytes_removed": sum(before[key] for key in gone), "kept_hours": hours}

    def vacuum_look(self) -> dict[str, int | str]:
        """Count what would be removed; Delta names a thousand files at the most."""
        hours = self._hours()
        sql, settings = self._vacuum(hours)
        return {"removed": len(self._engine().query(f"{sql} DRY RUN", settings)), "kept_hours": hours}

    def _vacuum(self, hours: int) -> tuple[str, dict[str, str]]:
        meant = {} if hours >= CHECKED_HOURS else {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}
        return f"VACUUM {self._name} RETAIN {hours} HOURS", {**SETTINGS, **meant}

    def _hours(self) -> int:
        return kept_hours(self._store, self._folder, self._rules, self._now)

    def _stored(self) -> dict[str, int]:
        log = f"{self._folder}{delta_log.LOG}"
        return {f.key: f.size for f in self._store.listed(self._folder) if not f.key.startswith(log)}


def kept_hours(store: Store, folder: str, rules: Maintenance, now: datetime) -> int:
    """Give how old a file's removal from the table must be before the file goes: by time, and by number of versions."""
    newest = filter(delta_log.changes_files, delta_log.commits(store, folder))
    # A version reads what the commits after it removed.
    times = [at for actions in islice(newest, rules.keep_versions - 1) for at in _times(actions)]
    age = now - datetime.fromtimestamp(min(times) / 1000, UTC) if times else timedelta(0)
    return math.ceil(max(rules.keep, age) / timedelta(hours=1))


def _times(actions: Sequence[dict[str, dict[str, int]]]) -> list[int]:
    """Give when a commit was made and when it took files out of the table, in milliseconds."""
    stamps = [action["commitInfo"].get("timestamp") for action in actions if "commitInfo" in action]
    stamps += [action["remove"].get("deletionTimestamp") for action in actions if "remove" in action]
    return [stamp for stamp in stamps if stamp is not None]

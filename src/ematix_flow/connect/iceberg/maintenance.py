"""What an Iceberg table needs now and then: small files put together, old snapshots and files without a snapshot removed."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ematix_flow.connect.base.maintenance import SMALL, MaintenanceTask
from ematix_flow.connect.iceberg.branches import branches_of, drop_branches
from ematix_flow.connect.types.identifiers import backticked, spark_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ematix_flow.connect.base.lake_engine import LakeEngine
    from ematix_flow.declare.table.maintenance import Maintenance

OWN_AGE, OWN_NUMBER = "history.expire.max-snapshot-age-ms", "history.expire.min-snapshots-to-keep"
OWN = (OWN_AGE, OWN_NUMBER)
"""The table's own properties about its snapshots."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def iceberg_tasks(
    engine: Callable[[], LakeEngine], table: tuple[str, str, str], home: str, rules: Maintenance, now: datetime
) -> Sequence[MaintenanceTask]:
    """Return the maintenance tasks of a table; their caller holds its lock, so that no branch of a load is in use."""
    work = _IcebergMaintenance(engine, table, home, rules, now)
    compact = (
        MaintenanceTask("compact", work.compact, work.compact_dry_run),
        MaintenanceTask("manifests", work.manifests, work.manifests_dry_run),
    )
    return (
        MaintenanceTask("branches", work.branches, lambda: work.branches(dry_run=True)),
        *(compact if rules.compact else ()),
        MaintenanceTask("snapshots", work.expire, work.expire_dry_run),
        MaintenanceTask("orphans", work.orphans, lambda: work.orphans(dry_run=True)),
    )


class _IcebergMaintenance:
    def __init__(
        self,
        engine: Callable[[], LakeEngine],
        table: tuple[str, str, str],
        home: str,
        rules: Maintenance,
        now: datetime,
    ) -> None:
        catalog, schema, name = table
        self._engine, self._rules, self._home = engine, rules, home
        self._system = f"{backticked(catalog)}.system"
        self._called = spark_text(".".join(backticked(part) for part in (schema or "default", name)))
        self._name = ".".join(backticked(part) for part in (catalog, schema or "default", name))
        self._now, self._stray = now, _instant(now - rules.orphans_after)

    def branches(self, *, dry_run: bool = False) -> dict[str, int | str]:
        """Remove the branches that dead loads left."""
        names = branches_of(self._engine(), self._name)
        if not dry_run:
            drop_branches(self._engine(), self._name, names)
        return {"removed": len(names)}

    def compact(self) -> dict[str, int | str]:
        """Put small files together, partition by partition."""
        before = self._files()
        options = f"map('target-file-size-bytes', '{self._rules.file_bytes}')"
        self._call("rewrite_data_files", f"options => {options}")
        after = self._files()
        return {"files_before": before["files"], "files_after": after["files"], "bytes": after["bytes"]}

    def compact_dry_run(self) -> dict[str, int | str]:
        """Count the files, and how many of them are small."""
        small = f" WHERE file_size_in_bytes < {int(self._rules.file_bytes * SMALL)}"
        return {**self._files(), "small_files": self._files(small)["files"]}

    def manifests(self) -> dict[str, int | str]:
        """Put the lists of files together."""
        counts = self._call("rewrite_manifests")
        return {"removed": counts.get("rewritten_manifests_count", 0), "added": counts.get("added_manifests_count", 0)}

    def manifests_dry_run(self) -> dict[str, int | str]:
        """Count the lists of files."""
        return {"manifests": int(self._engine().query(f"SELECT COUNT(*) FROM {self._name}.manifests")[0][0])}

    def expire(self) -> dict[str, int | str]:
        """Forget old snapshots and remove the files that only they read."""
        before = self._snapshots()
        old, least = self._retained()
        counts = self._call("expire_snapshots", f"older_than => {_instant(old)}", f"retain_last => {least}")
        after = self._snapshots()
        files = sum(
            number for name, number in counts.items() if name.startswith("deleted_") and name.endswith("_count")
        )
        return {"expired": before - after, "kept": after, "removed": files}

    def expire_dry_run(self) -> dict[str, int | str]:
        """Count the snapshots that would go."""
        old, least = self._retained()
        rows = self._engine().query(
            f"SELECT committed_at < {_instant(old)} FROM {self._name}.snapshots ORDER BY committed_at DESC"
        )
        expired = sum(bool(old) for (old,) in rows[least:])
        return {"expired": expired, "kept": len(rows) - expired}

    def _retained(self) -> tuple[datetime, int]:
        """Return when the oldest snapshot was created that is retained by age, and how many are retained in any case.

        The table's own properties count where they are more. Iceberg goes by when a snapshot was created, and ours by
        when a newer one came: the one that was the newest at the border is still needed.
        """
        properties = {
            key: int(value) for key, value in self._engine().query(f"SHOW TBLPROPERTIES {self._name}") if key in OWN
        }
        border = self._now - max(self._rules.keep, timedelta(milliseconds=properties.get(OWN_AGE, 0)))
        since = f"SELECT MAX(made_current_at) FROM {self._name}.history WHERE made_current_at <= {_instant(border)}"
        ((oldest,),) = self._engine().query(
            f"SELECT unix_micros(MIN(s.committed_at)) FROM {self._name}.history AS h JOIN {self._name}.snapshots AS s"
            f" ON s.snapshot_id = h.snapshot_id WHERE h.made_current_at >= ({since})"
        )
        oldest_commit = border if oldest is None else EPOCH + timedelta(microseconds=oldest)
        return min(border, oldest_commit), max(self._rules.keep_versions, properties.get(OWN_NUMBER, 0))

    def orphans(self, *, dry_run: bool = False) -> dict[str, int | str]:
        """Remove files below the table that no snapshot knows; never where our own metadata is among them."""
        if self._holds_metadata():
            return {"removed": 0, "skipped": "the metadata tables are below the table's own folder"}
        files = self._engine().query(self._sql("remove_orphan_files", f"older_than => {self._stray}", _flag(dry_run)))
        return {"removed": len(files)}

    def _holds_metadata(self) -> bool:
        rows = self._engine().query(f"DESCRIBE TABLE EXTENDED {self._name}")
        locations = [_path(str(value)) for name, value, *_ in rows if name == "Location"]
        return not locations or _path(self._home).startswith(f"{locations[-1]}/")

    def _files(self, where: str = "") -> dict[str, int | str]:
        sql = f"SELECT COUNT(*), COALESCE(SUM(file_size_in_bytes), 0) FROM {self._name}.files{where}"
        files, size = self._engine().query(sql)[0]
        return {"files": int(files), "bytes": int(size)}

    def _snapshots(self) -> int:
        return int(self._engine().query(f"SELECT COUNT(*) FROM {self._name}.snapshots")[0][0])

    def _call(self, procedure: str, *arguments: str) -> dict[str, int]:
        return self._engine().run(self._sql(procedure, *arguments), {})

    def _sql(self, procedure: str, *arguments: str) -> str:
        return f"CALL {self._system}.{procedure}({', '.join((f'table => {self._called}', *arguments))})"


def _flag(dry_run: bool) -> str:  # noqa: FBT001 - the one argument of a procedure
    return f"dry_run => {str(dry_run).lower()}"


def _instant(at: datetime) -> str:
    return f"TIMESTAMP '{at:%Y-%m-%d %H:%M:%S.%f}+00:00'"


def _path(location: str) -> str:
    """Return a location without the scheme that some catalogs write before it."""
    return re.sub(r"^\w+:/*", "/", location).rstrip("/")

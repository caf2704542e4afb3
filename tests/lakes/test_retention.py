"""Versions that maintenance promises to keep can be read afterwards, by number and by time; older ones go."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from ematix_flow.clock import Clock
from ematix_flow.connect.base.lake_engine import EngineError
from ematix_flow.declare.table.maintenance import Maintenance
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.maintenance import maintain_pipeline
from ematix_flow.plan.sql.render import native_name
from tests.lakes.targets import START, TargetTable, lake_fields

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("lakes")]

DAY = timedelta(days=1)
PROPERTY = "delta.deletedFileRetentionDuration"


class Aged:
    """A Delta table that was replaced as a whole so many days ago, once for each number."""

    def __init__(self, folder: Path, days: list[float], properties: str = "") -> None:
        young = TargetTable(lake_fields("delta_local", folder), folder, {"mode": "truncate"})
        for number in range(len(days)):
            young.load([(number, "w", None, None, START)])
        if properties:
            young.database().engine().run(  # type: ignore[attr-defined]
                f"ALTER TABLE delta.`{folder}/lake/shop/things` SET TBLPROPERTIES ({properties})", {}
            )
        old = folder / "old"
        old.mkdir()
        # A copy: Spark remembers what it has read of a log.
        shutil.copytree(folder / "lake", old / "lake")
        self.target = TargetTable(lake_fields("delta_local", old), old, {"mode": "truncate"})
        self.path = old / "lake" / "shop" / "things"
        self.versions = _aged_log(self.path, days)

    def maintain(self, rules: Maintenance, **options: Any) -> dict[str, Any]:
        self.target.table = replace(self.target.table, maintenance=rules)
        (result,) = maintain_pipeline(self.target.pipeline(), **options)
        assert result.error is None
        return dict(result.steps["vacuum"])

    def by_spark(self, clause: str) -> list[int]:
        rows = self.target.database().engine().query(f"SELECT id FROM delta.`{self.path}` {clause}")  # type: ignore[attr-defined]
        return [row[0] for row in rows]

    def read(self, row: int) -> None:
        """Read the version with this row by its number and by its time, with Spark and with a reader that is not Spark."""
        version, at = self.versions[row]
        shown = f"{at:%Y-%m-%d %H:%M:%S.%f}+00:00"
        assert self.by_spark(f"VERSION AS OF {version}") == [row]
        assert self.by_spark(f"TIMESTAMP AS OF '{shown}'") == [row]
        table = DeltaTable(self.path, version=version)
        assert table.to_pyarrow_table(columns=["id"]).column("id").to_pylist() == [row]
        table.load_as_version(at)
        assert table.to_pyarrow_table(columns=["id"]).column("id").to_pylist() == [row]

    def retention_property(self) -> str | None:
        """Return what the table itself says about its retention."""
        return DeltaTable(self.path).metadata().configuration.get(PROPERTY)

    def commits(self) -> int:
        return len(list((self.path / "_delta_log").glob("*.json")))


def _aged_log(table: Path, days: list[float]) -> dict[int, tuple[int, datetime]]:
    """Move the log of a table into the past, and return number and time of the version that each row came with."""
    versions, loads, at = {}, iter(enumerate(days)), time.time() - days[0] * 86400
    for file in sorted((table / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        adds = [action["add"] for action in actions if "add" in action]
        if adds:
            row, age = next(loads)
            at = time.time() - age * 86400
            versions[row] = (int(file.stem), datetime.fromtimestamp(at, UTC) + timedelta(milliseconds=1))
        for action in actions:
            for name in ("timestamp", "deletionTimestamp", "modificationTime"):
                for value in action.values():
                    if name in value:
                        value[name] = int(at * 1000)
        file.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
        for path in (file, *(table / add["path"] for add in adds)):
            os.utime(path, (at, at))
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    for crc in (table / "_delta_log").glob("*.crc"):
        crc.unlink()
    return versions


@pytest.mark.deep
def test_versions_of_a_long_time_can_be_read_after_maintenance(tmp_path: Path) -> None:
    """Delta itself would remove them after a week, and refuse to read them."""
    table = Aged(tmp_path, [60, 45, 20, 10, 1])
    table.maintain(Maintenance(keep=30 * DAY, keep_versions=1))
    for row in (1, 2, 3, 4):
        table.read(row)
    # A newer one came 45 days ago.
    with pytest.raises(EngineError):
        table.by_spark(f"VERSION AS OF {table.versions[0][0]}")


@pytest.mark.deep
def test_the_newest_versions_can_be_read_however_old_they_are(tmp_path: Path) -> None:
    table = Aged(tmp_path, [200, 150, 120, 90])
    table.maintain(Maintenance(keep=DAY, keep_versions=3))
    for row in (1, 2, 3):
        table.read(row)
    before = table.commits()
    table.maintain(Maintenance(keep=DAY, keep_versions=3))
    assert table.commits() == before


@pytest.mark.deep
def test_what_the_table_says_itself_is_kept_too(tmp_path: Path) -> None:
    table = Aged(tmp_path, [40, 30, 12, 3], f"'{PROPERTY}' = 'interval 2 weeks'")
    simulated = table.maintain(Maintenance(keep=DAY, keep_versions=1), dry_run=True)
    done = table.maintain(Maintenance(keep=DAY, keep_versions=1))
    assert (simulated["kept_hours"], done["kept_hours"]) == (14 * 24, 14 * 24)
    assert simulated["removed"] == done["removed"] == 1
    for row in (2, 3):
        table.read(row)


@pytest.mark.deep
def test_a_shorter_wish_comes_into_force_and_what_the_table_said_before_is_not_forgotten(tmp_path: Path) -> None:
    table = Aged(tmp_path, [20, 10, 5, 1], f"'{PROPERTY}' = 'interval 3 days'")
    table.maintain(Maintenance(keep=30 * DAY, keep_versions=1))
    table.read(0)
    assert table.retention_property() not in (None, "interval 3 days")
    done = table.maintain(Maintenance(keep=timedelta(0), keep_versions=1, short_keep=True))
    assert (table.retention_property(), done["kept_hours"]) == ("interval 3 days", 72)


class Snapshots:
    """An Iceberg table with one row more in every snapshot, and the clock of maintenance."""

    def __init__(self, folder: Path, number: int) -> None:
        self.target = TargetTable(lake_fields("iceberg", folder), folder, {"mode": "append"})
        self.snapshots = []
        for row in range(number):
            self.target.load([(row, "w", None, None, START)])
            self.snapshots.append(self.newest())

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        database: Any = self.target.database()
        name = native_name(database.table_name("shop", "things"), database.dialect)
        return list(database.engine().query(sql.format(name)))

    def newest(self) -> tuple[int, datetime]:
        """Return the newest snapshot and since when it is; it was made before that, on the branch of its load."""
        rows = self.query(
            "SELECT snapshot_id, unix_micros(made_current_at) FROM {}.history ORDER BY made_current_at DESC"
        )
        return rows[0][0], datetime.fromtimestamp(rows[0][1] / 1_000_000, UTC)

    def maintain(self, now: datetime, rules: Maintenance, **options: Any) -> dict[str, Any]:
        """Maintain the table as if it were another time."""
        self.target.table = replace(
            self.target.table, maintenance=replace(rules, compact=False, orphans_after=90 * DAY)
        )
        settings = Options(clock=Clock(now=lambda: now, wait=lambda *_: False))
        (result,) = maintain_pipeline(self.target.pipeline(), settings, **options)
        assert result.error is None
        return dict(result.steps["snapshots"])

    def read(self, row: int) -> None:
        snapshot, at = self.snapshots[row]
        shown = f"{at + timedelta(milliseconds=1):%Y-%m-%d %H:%M:%S.%f}+00:00"
        for clause in (f"VERSION AS OF {snapshot}", f"TIMESTAMP AS OF TIMESTAMP '{shown}'"):
            assert sorted(self.query(f"SELECT id FROM {{}} {clause}")) == [(number,) for number in range(row + 1)]


@pytest.mark.deep
def test_a_snapshot_is_kept_from_when_a_newer_one_came(tmp_path: Path) -> None:
    table = Snapshots(tmp_path, 3)
    # The second one was the newest until a moment less than 7 days ago; all of them were made longer ago than that.
    now = table.snapshots[2][1] + 7 * DAY - timedelta(milliseconds=1)
    rules = Maintenance(keep=7 * DAY, keep_versions=1)
    simulated = table.maintain(now, rules, dry_run=True)
    done = table.maintain(now, rules)
    # The first load, and the empty snapshot that the table began with.
    assert simulated["expired"] == done["expired"] == 2
    table.read(1)
    table.read(2)
    assert table.maintain(now + timedelta(milliseconds=2), rules)["kept"] == 1


@pytest.mark.deep
@pytest.mark.parametrize(
    "property_value",
    ["'history.expire.max-snapshot-age-ms' = '2592000000'", "'history.expire.min-snapshots-to-keep' = '3'"],
)
def test_what_an_iceberg_table_says_itself_is_kept_too(property_value: str, tmp_path: Path) -> None:
    table = Snapshots(tmp_path, 3)
    table.query(f"ALTER TABLE {{}} SET TBLPROPERTIES ({property_value})")
    now = table.snapshots[2][1] + 20 * DAY
    simulated = table.maintain(now, Maintenance(keep=DAY, keep_versions=1), dry_run=True)
    assert table.maintain(now, Maintenance(keep=DAY, keep_versions=1))["kept"] == simulated["kept"] >= 3
    for row in range(3):
        table.read(row)

"""How long files of a Delta table are kept: by time, and at least for the newest versions, as its log tells."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.connect.delta_upkeep import kept_hours
from ematix_flow.connect.store import LocalStore
from ematix_flow.declare.maintenance import Maintenance

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 6, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def written(folder: Path, ages: list[timedelta], *, empty: bool = False) -> LocalStore:
    """Write a log whose commits, the oldest first, took a file out of the table so long ago."""
    log = folder / "t" / "_delta_log"
    log.mkdir(parents=True)
    for number, age in enumerate(ages):
        at = int((NOW - age).timestamp() * 1000)
        actions: list[dict[str, Any]] = [{"commitInfo": {"timestamp": at + 1000}}]
        if not empty or number < 2:
            actions.append({"remove": {"path": "a", "deletionTimestamp": at}})
        (log / f"{number:020d}.json").write_text("\n".join(map(json.dumps, actions)))
    return LocalStore(str(folder))


@pytest.mark.parametrize(
    ("keep", "versions", "hours"),
    [
        (7 * DAY, 1, 7 * 24),
        (7 * DAY, 2, 7 * 24),
        # The third newest version reads what the two commits after it removed: the older of them 10 days ago.
        (7 * DAY, 3, 10 * 24),
        (7 * DAY, 4, 20 * 24),
        (7 * DAY, 99, 30 * 24),
        (25 * DAY, 4, 25 * 24),
    ],
)
def test_the_newest_versions_stay_whatever_their_age(
    keep: timedelta, versions: int, hours: int, tmp_path: Path
) -> None:
    store = written(tmp_path, [30 * DAY, 20 * DAY, 10 * DAY, 2 * DAY])
    assert kept_hours(store, "t/", Maintenance(keep=keep, keep_versions=versions), NOW) == hours


def test_part_of_an_hour_counts_as_one(tmp_path: Path) -> None:
    store = written(tmp_path, [timedelta(minutes=90)])
    rules = Maintenance(keep=timedelta(0), keep_versions=2, short_keep=True)
    assert kept_hours(store, "t/", rules, NOW) == 2
    assert kept_hours(store, "t/", Maintenance(keep=timedelta(0), keep_versions=1, short_keep=True), NOW) == 0


def test_commits_that_changed_no_file_are_no_versions(tmp_path: Path) -> None:
    store = written(tmp_path, [30 * DAY, 20 * DAY, 10 * DAY, 2 * DAY], empty=True)
    assert kept_hours(store, "t/", Maintenance(keep_versions=2), NOW) == 20 * 24

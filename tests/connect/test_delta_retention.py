"""How long files of a Delta table are kept: as long as its owner says, and as long as versions are promised."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.connect.delta.retention import BEFORE, FILES, LOG, SET, duration_of, promised, retention
from ematix_flow.connect.storage.base import LocalStore
from ematix_flow.declare.table.maintenance import Maintenance
from ematix_flow.errors import RunError

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 6, 1, tzinfo=UTC)
DAY = timedelta(days=1)
NONE = Maintenance(keep=timedelta(0), keep_versions=1, short_keep=True)


def written(
    folder: Path, ages: list[timedelta], *, empty: bool = False, properties: dict[str, str] | None = None
) -> LocalStore:
    """Write a log whose commits, the oldest first, took a file out of the table so long ago."""
    log = folder / "t" / "_delta_log"
    log.mkdir(parents=True)
    for number, age in enumerate(ages):
        at = int((NOW - age).timestamp() * 1000)
        actions: list[dict[str, Any]] = [{"commitInfo": {"timestamp": at + 1000}}]
        if number == 0:
            about = {"id": "t", "format": {"provider": "parquet", "options": {}}, "partitionColumns": []}
            field = {"name": "id", "type": "long", "nullable": True, "metadata": {}}
            schema = json.dumps({"type": "struct", "fields": [field]})
            actions.append({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
            actions.append({"metaData": {**about, "schemaString": schema, "configuration": properties or {}}})
        if not empty or number < 2:
            actions.append({"remove": {"path": "a", "deletionTimestamp": at, "dataChange": True}})
        file = log / f"{number:020d}.json"
        file.write_text("\n".join(map(json.dumps, actions)))
        # A little later than it says itself, as files are.
        os.utime(file, (time.time() - age.total_seconds() + 5,) * 2)
    return LocalStore(str(folder))


@pytest.mark.parametrize(
    ("keep", "versions", "days"),
    [
        # The newest one may be an older one tomorrow, and is promised then; a day passes until the next maintenance.
        (7 * DAY, 1, 11),
        (2 * DAY + timedelta(hours=1), 1, 11),
        (DAY, 1, 3),
        (DAY, 2, 11),
        (7 * DAY, 3, 21),
        (7 * DAY, 4, 31),
        (7 * DAY, 99, 31),
        # The oldest one was the newest until 20 days ago.
        (19 * DAY, 1, 21),
        (25 * DAY, 1, 31),
        (90 * DAY, 1, 90),
    ],
)
def test_every_version_counts_from_when_it_was_made_to_when_it_may_go(
    keep: timedelta, versions: int, days: int, tmp_path: Path
) -> None:
    store = written(tmp_path, [30 * DAY, 20 * DAY, 10 * DAY, 2 * DAY])
    promise = promised(store, "t/", Maintenance(keep=keep, keep_versions=versions), NOW)
    assert abs(promise - days * DAY) < timedelta(minutes=1)


def test_of_a_long_log_only_the_newest_commits_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = written(tmp_path, [timedelta(minutes=number) for number in range(300, 0, -1)])
    read: list[str] = []
    reading = store.read
    monkeypatch.setattr(store, "read", lambda key: (read.append(key), reading(key))[1])
    assert promised(store, "t/", Maintenance(keep_versions=3), NOW) == 7 * DAY
    assert len(read) == 3


def test_nothing_is_promised_where_nothing_is_wanted(tmp_path: Path) -> None:
    store = written(tmp_path, [30 * DAY, 2 * DAY])
    assert promised(store, "t/", NONE, NOW) == timedelta(0)
    assert retention(store, "t/", NONE, NOW).changes == {FILES: "interval 0 hours", SET: "interval 0 hours", BEFORE: ""}


def test_commits_that_changed_no_file_are_no_versions(tmp_path: Path) -> None:
    store = written(tmp_path, [30 * DAY, 20 * DAY, 10 * DAY, 2 * DAY], empty=True)
    assert promised(store, "t/", Maintenance(keep=DAY, keep_versions=2), NOW) == 31 * DAY


@pytest.mark.parametrize(
    ("properties", "keep", "hours", "changes"),
    [
        # Delta's own week is enough, and nothing is written.
        ({}, 5, 168, {}),
        # What is needed and a fifth more, in whole days; the log is kept as long as the files.
        ({}, 10, 12 * 24, {FILES: "interval 288 hours", SET: "interval 288 hours", BEFORE: ""}),
        ({}, 50, 1440, {FILES: "interval 1440 hours", SET: "interval 1440 hours", BEFORE: "", LOG: "interval 1440 hours"}),
        # Its owner wants more.
        ({FILES: "interval 30 days"}, 10, 720, {}),
        ({FILES: "interval 9 weeks"}, 10, 63 * 24, {LOG: "interval 1512 hours"}),
        # Its owner wants less.
        ({FILES: "interval 1 day"}, 10, 288, {FILES: "interval 288 hours", SET: "interval 288 hours", BEFORE: "interval 1 day"}),
        # Maintenance has written it, and it is enough and not too much.
        ({FILES: "interval 288 hours", SET: "interval 288 hours", BEFORE: ""}, 9, 288, {}),
        # It was made for longer than is needed now.
        ({FILES: "interval 999 hours", SET: "interval 999 hours", BEFORE: ""}, 10, 288, {FILES: "interval 288 hours", SET: "interval 288 hours", BEFORE: ""}),
        ({FILES: "interval 999 hours", SET: "interval 999 hours", BEFORE: "interval 20 days"}, 10, 480, {FILES: "interval 20 days"}),
        # Its owner has changed it since.
        ({FILES: "interval 500 hours", SET: "interval 999 hours", BEFORE: "interval 1 day"}, 10, 500, {}),
    ],
)  # fmt: skip
def test_the_table_gets_the_larger_one_of_both_wishes(
    properties: dict[str, str], keep: int, hours: int, changes: dict[str, str], tmp_path: Path
) -> None:
    store = written(tmp_path, [2 * DAY], properties=properties)
    changed = retention(store, "t/", Maintenance(keep=keep * DAY), NOW)
    assert (changed.hours, changed.changes) == (hours, changes)


def test_a_property_that_is_no_duration_is_told(tmp_path: Path) -> None:
    store = written(tmp_path, [2 * DAY], properties={FILES: "a while"})
    with pytest.raises(RunError, match="deletedFileRetentionDuration is 'a while'"):
        retention(store, "t/", Maintenance(), NOW)


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("interval 30 days", 30 * DAY),
        ("interval 1 week", 7 * DAY),
        ("INTERVAL 1 WEEK 2 days  3 HOURS", 9 * DAY + timedelta(hours=3)),
        ("36 hours", 1.5 * DAY),
        ("interval '2' days", 2 * DAY),
        ("interval 1.5 seconds", timedelta(seconds=1.5)),
        ("interval 0 hours", timedelta(0)),
        ("interval", None),
        ("", None),
        ("interval 1 month", None),
        ("interval 3 daysx", None),
        ("7", None),
    ],
)
def test_intervals_of_delta_are_read(text: str, duration: timedelta | None) -> None:
    assert duration_of(text) == duration

"""Loads of new files into lake tables: each once, and a load without any is a commit like others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.depth import deep
from tests.engine.inboxes import Inbox
from tests.lakes.targets import TargetTable, lake_fields

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("lakes")]


@pytest.mark.parametrize(("kind", "mode"), [("delta_local", "append"), deep("iceberg", "merge")])
def test_files_are_loaded_once_into_a_lake_table(tmp_path: Path, kind: str, mode: str) -> None:
    inbox = Inbox(str(tmp_path), lake_fields(kind, tmp_path), str(tmp_path / "log.db"), {"mode": mode}, schema="shop")
    table = TargetTable(inbox.target, tmp_path, inbox.options, inbox.table)
    inbox.put("b.csv", 1, 2)
    assert inbox.run()["rows_inserted"] == 2
    assert inbox.run()["files_known"] == 1
    inbox.put("a.csv", 3)
    assert inbox.run()["files_loaded"] == 1
    assert [int(row[0]) for row in table.rows("id")] == [1, 2, 3]
    assert [key for key, _ in inbox.remembered()] == ["in/a.csv", "in/b.csv"]

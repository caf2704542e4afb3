"""Maintenance of lake tables: fewer files, fewer versions, the same rows; and whatever dies before, rows are there once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow import failpoints
from ematix_flow.commit import metadata_cleanup
from ematix_flow.commit.ledger import Ledger
from ematix_flow.connect.lake import transaction as lake_session
from ematix_flow.declare.table.maintenance import Maintenance
from ematix_flow.engine.maintenance import maintain_pipeline
from tests.depth import deep
from tests.lakes.targets import START, TargetTable, lake_fields

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ematix_flow.engine.maintenance import Maintained

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("lakes")]

AT_ONCE = Maintenance(keep=timedelta(0), keep_versions=1, short_keep=True)


@pytest.fixture(params=["delta_local", deep("iceberg")])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TargetTable]:
    """Return a lake table that rows are appended to."""
    yield TargetTable(lake_fields(request.param, tmp_path), tmp_path, {"mode": "append"})
    failpoints.arm("")


def with_rules(target: TargetTable, rules: Maintenance | None) -> TargetTable:
    target.table = replace(target.table, maintenance=rules)
    return target


def maintained(target: TargetTable, **options: Any) -> Maintained:
    (result,) = maintain_pipeline(target.pipeline(), **options)
    assert result.error is None
    return result


def load(target: TargetTable, *numbers: int) -> None:
    for number in numbers:
        target.load([(number, "w", None, None, START)])


def data_files(target: TargetTable) -> list[Path]:
    """Return the files of rows that lie in the table's folder."""
    files = target.folder.rglob("things/**/*.parquet")
    return [path for path in files if "_delta_log" not in path.parts and "_ematix_flow" not in path.parts]


def test_small_files_and_old_versions_go_and_rows_stay(target: TargetTable) -> None:
    load(target, *range(1, 6))
    before = target.rows()
    with_rules(target, None)
    assert maintained(target).steps["compact"] == {"files_before": 5, "files_after": 1, "bytes": size_now(target)}
    # A week is kept by default: every file of the older versions is still there.
    assert len(data_files(target)) == 6
    with_rules(target, AT_ONCE)
    stray, ours = strays(target)
    young = data_files(target)[0].with_name("young.parquet")
    young.write_bytes(b"x")
    simulated = maintained(target, dry_run=True)
    assert simulated.status == "would_do"
    done = maintained(target)
    assert removed(simulated) == removed(done)
    # Delta takes the word for it that nobody else writes; Iceberg's strays are safe for three days in any case.
    left = [young] if target.fields["kind"] == "iceberg" else []
    assert sorted(data_files(target)) == sorted([*current(target), *left])
    assert not stray.exists()
    assert ours.exists()
    assert target.rows() == before
    assert maintained(target, due=True).status == "not_due"


@pytest.mark.deep
@pytest.mark.crash
def test_a_change_whose_owner_died_is_settled_before_anything_goes(target: TargetTable) -> None:
    """A load is killed after its change and before its record; nothing is kept; the same load is asked for again."""
    target.give([(1, "a", None, None, START)])
    ended = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(target.fields), str(target.folder)],
        env={**os.environ, "FLOW_FAILPOINTS": "store.after_change=kill", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        timeout=200,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()[-2000:]
    with_rules(target, AT_ONCE)
    assert maintained(target).status == "done"
    target.again([(1, "a", None, None, START)], "slot-1")
    assert target.rows("id, word") == [("1", "a")]
    target.load([(2, "b", None, None, START)], "slot-2")
    assert target.rows("id, word") == [("1", "a"), ("2", "b")]
    assert not [path for path in target.folder.rglob("locks/*") if path.suffix in (".lock", ".change")]


CHILD = """
import json, sys
from pathlib import Path
from tests.lakes.targets import START, TargetTable
target = TargetTable(json.loads(sys.argv[1]), Path(sys.argv[2]), {"mode": "append"})
target.again([(1, "a", None, None, START)], "slot-1")
"""


@pytest.mark.deep
def test_who_holds_the_table_is_waited_for_and_then_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = TargetTable(lake_fields("iceberg", tmp_path), tmp_path, {"mode": "append"})
    load(target, 1)
    monkeypatch.setattr(lake_session, "LAKE_LOCK", replace(lake_session.LAKE_LOCK, seconds=0.3))
    with closing(target.database().session()) as holder:
        holder.begin()
        (result,) = maintain_pipeline(target.pipeline())
        assert (result.status, "holds the table" in str(result.error)) == ("failed", True)
        holder.rollback()
        # Nothing was done, so nothing is remembered as done.
        assert metadata_cleanup.last_success(Ledger(target.database()), holder, "shop", "things") is None


def strays(target: TargetTable) -> tuple[Path, Path]:
    """Leave a file in the table's folder and one among the books, both old, that no version knows."""
    root = target.folder / ("warehouse" if target.fields["kind"] == "iceberg" else "lake")
    strays_at = data_files(target)[0].with_name("stray.parquet"), root / "_ematix_flow" / "stray.parquet"
    for path in strays_at:
        path.write_bytes(b"x")
        os.utime(path, (time.time() - 4 * 86400,) * 2)
    return strays_at


def size_now(target: TargetTable) -> int:
    """Return the bytes of the files of the newest version."""
    return sum(path.stat().st_size for path in current(target))


def current(target: TargetTable) -> list[Path]:
    """Return the files of the newest version."""
    name = "DISTINCT _metadata.file_path" if target.fields["kind"] == "delta_local" else "DISTINCT _file"
    rows = target.rows(name)
    return [Path(str(name).removeprefix("file:").replace("///", "/")) for (name,) in rows]


def removed(result: Maintained) -> dict[str, Any]:
    """Return what each step removed."""
    steps = {
        name: result.steps[name] for name in ("vacuum", "snapshots", "orphans", "branches") if name in result.steps
    }
    return {name: numbers.get("expired", numbers.get("removed")) for name, numbers in steps.items()}

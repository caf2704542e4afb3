"""Whatever dies around a load of a lake table, its rows are there once, and the books say so."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow import failpoints
from ematix_flow.commit.ledger import Ledger
from ematix_flow.connect.base.lake_engine import EngineError
from ematix_flow.connect.lake import lock as lake_lock
from ematix_flow.connect.lake import transaction as lake_session
from ematix_flow.connect.lake.change import Change
from ematix_flow.connect.lake.transaction import LakeSession
from ematix_flow.errors import BadRowsError, TransientError
from ematix_flow.failpoints import FailpointError
from ematix_flow.plan.sql.render import native_name
from tests.depth import deep
from tests.lakes.targets import START, TargetTable, lake_fields

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.lakes.targets import Row

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.xdist_group("lakes")]

POINTS = ("store.before_change", "store.after_change", "store.before_record", "commit.after_commit")
"""Around the change of rows and the record that follows it."""

FIRST: list[Row] = [(1, "a", 0.5, "1", START), (2, "b", None, None, START)]
SECOND: list[Row] = [(2, "c", 0.5, "2", START), (3, "d", None, None, START)]


@pytest.fixture
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TargetTable]:
    """Return a lake table that merges: an Iceberg one, which is quicker, unless a test asks for others."""
    kind = getattr(request, "param", "iceberg")
    yield TargetTable(lake_fields(kind, tmp_path), tmp_path, {"mode": "merge"})
    failpoints.arm("")


every_lake = pytest.mark.parametrize("target", ["iceberg", deep("delta_local")], indirect=True)


@pytest.mark.parametrize(
    ("target", "point"),
    [
        ("iceberg", POINTS[3]),
        *(deep("iceberg", point) for point in POINTS[:3]),
        *(deep("delta_local", point) for point in POINTS[:2]),
    ],
    indirect=["target"],
)
def test_an_error_at_any_point_leaves_the_load_to_be_made_once(target: TargetTable, point: str) -> None:
    target.load(FIRST)
    # The first record of a load notes that it runs; the change of rows is followed by the second.
    failpoints.arm(f"{point}=raise@{2 if point == 'store.before_record' else 1}")
    with pytest.raises(FailpointError):
        target.load(SECOND, "slot-2")
    failpoints.arm("")
    target.again(SECOND, "slot-2")
    assert keys_and_texts(target) == [("1", "a"), ("2", "c"), ("3", "d")]
    assert committed(target) == 2
    assert locks(target) == []


@pytest.mark.parametrize("point", ["store.before_change", deep("store.after_change")])
@every_lake
def test_a_killed_process_leaves_the_load_to_be_made_once(target: TargetTable, point: str) -> None:
    target.give(SECOND)
    ended = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(target.fields), str(target.folder)],
        env={**os.environ, "FLOW_FAILPOINTS": f"{point}=kill", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        timeout=200,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()[-2000:]
    target.again(SECOND, "slot-1")
    assert keys_and_texts(target) == [("2", "c"), ("3", "d")]
    assert committed(target) == 1
    target.load(FIRST, "slot-2")
    assert keys_and_texts(target) == [("1", "a"), ("2", "b"), ("3", "d")]


CHILD = """
import json, sys
from pathlib import Path
from tests.lakes.targets import TargetTable
from tests.lakes.test_faults import SECOND
TargetTable(json.loads(sys.argv[1]), Path(sys.argv[2]), {"mode": "merge"}).again(SECOND, "slot-1")
"""


@pytest.mark.deep
@every_lake
def test_a_change_that_others_gave_up_is_refused_by_the_table(target: TargetTable) -> None:
    target.load(FIRST)
    come_too_late(target)
    assert keys_and_texts(target) == [("1", "a"), ("2", "b")]
    target.load(SECOND)
    assert keys_and_texts(target) == [("1", "a"), ("2", "c"), ("3", "d")]


@pytest.mark.deep
def test_the_first_change_of_a_table_is_refused_too(target: TargetTable) -> None:
    with pytest.raises(BadRowsError):
        target.load([(1, "a", 0.5, "no number", START)])
    come_too_late(target)
    assert keys_and_texts(target) == []
    target.load(SECOND)
    assert keys_and_texts(target) == [("2", "c"), ("3", "d")]


def come_too_late(target: TargetTable) -> None:
    """Make a change of a table that somebody else has refused meanwhile."""
    database = target.database()
    table = native_name(database.table_name("shop", "things"), "spark")
    row = "SELECT 9L, 'late', CAST(NULL AS DOUBLE), CAST(NULL AS DECIMAL(38,4)), NULL, NOW(), 'late'"
    with closing(database.session()) as session:
        assert isinstance(session, LakeSession)
        late = Change("0" * 32, session.head.number + 1, session.value("ledger"))
        applier = database.applier()  # type: ignore[attr-defined]
        engine = database.engine()  # type: ignore[attr-defined]
        applier.prepare(engine, late)
        applier.refuse(database.engine, late)  # type: ignore[attr-defined]
        with suppress(EngineError):
            applier.change(engine, f"INSERT INTO {table} {row}", late)
        assert not applier.is_committed(lambda: engine, late)


@pytest.mark.deep
def test_somebody_who_holds_the_table_is_waited_for(target: TargetTable, monkeypatch: pytest.MonkeyPatch) -> None:
    target.load(FIRST)
    monkeypatch.setattr(lake_session, "LAKE_LOCK", replace(lake_session.LAKE_LOCK, seconds=0.3))
    with closing(target.database().session()) as holder:
        holder.begin()
        with pytest.raises(TransientError, match="another load holds the table"):
            target.load(SECOND, "slot-2")
        holder.rollback()
    target.again(SECOND, "slot-2")
    assert keys_and_texts(target) == [("1", "a"), ("2", "c"), ("3", "d")]


@pytest.mark.deep
def test_a_holder_that_is_silent_for_long_is_not_waited_for(
    target: TargetTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.load(FIRST)
    with closing(target.database().session()) as holder:
        holder.begin()
        monkeypatch.setattr(lake_lock, "DEAD_SECONDS", 0.0)
        target.load(SECOND)
        assert keys_and_texts(target) == [("1", "a"), ("2", "c"), ("3", "d")]
        holder.execute("UPDATE ematix_flow_fences SET epoch = epoch + 1")
        with pytest.raises(TransientError, match="first"):
            holder.commit()


def test_loads_at_the_same_time_are_made_one_after_the_other(target: TargetTable) -> None:
    target.load([])
    writers = [TargetTable(target.fields, target.folder / name, {"mode": "append"}) for name in ("one", "two")]
    failed: list[BaseException] = []

    def load(number: int, writer: TargetTable) -> None:
        try:
            writer.load([(10 + number, "x", None, None, START)], f"twin-{number}")
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failed.append(error)

    for writer in writers:
        writer.folder.mkdir()
    threads = [threading.Thread(target=load, args=pair) for pair in enumerate(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Both are one pipeline: the second to begin fences the first, or loads after it.
    assert all(type(error).__name__ == "FencedError" for error in failed), failed
    assert len(keys_and_texts(target)) == 2 - len(failed)


def keys_and_texts(target: TargetTable) -> list[tuple[Any, ...]]:
    """Return the keys and words of the table."""
    return target.rows("id, word")


def committed(target: TargetTable) -> int:
    """Return how many loads the ledger knows."""
    database = target.database()
    with closing(database.session()) as session:
        return int(session.query(f"SELECT COUNT(*) FROM {Ledger(database).name('ledger')}")[0][0])


def locks(target: TargetTable) -> list[str]:
    """Return the locks that are left."""
    database = target.database()
    listed = database.store.listed(f"{database.home}locks/")  # type: ignore[attr-defined]
    return [one.key for one in listed if not one.key.endswith(".dead")]

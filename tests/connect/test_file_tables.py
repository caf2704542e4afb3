"""Tables that are lists of files, below the engine: staging that others touch, names, and answers that stay true."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ematix_flow.commit.cleanup import collect
from ematix_flow.commit.ledger import HistoryRow, Ledger, open_run
from ematix_flow.commit.publish import find_commit
from ematix_flow.connect.base.source import SqlSource
from ematix_flow.connect.base.stage import StageColumn, StageSpec
from ematix_flow.connect.base.target import SqlTarget, TargetSystem
from ematix_flow.connect.files.table import FileTables, time_ordered_name
from ematix_flow.connect.files.transaction import FILES, REMOVED, visible
from ematix_flow.connect.metadata.session import HOME
from ematix_flow.connect.metadata.target import STAGE
from ematix_flow.connect.registry import kinds_with, open_target
from ematix_flow.connect.storage.base import parse_staged_path
from ematix_flow.connect.types.arrow import staged_schema
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.table.types import BigInt
from ematix_flow.errors import OvertakenError, StagingLostError, UnsupportedError
from ematix_flow.records import TaskReport, Token
from tests.contracts.flows import START

if TYPE_CHECKING:
    from collections.abc import Callable

COLUMNS = (StageColumn("id", BigInt()),)


@pytest.fixture
def lake(tmp_path: Path) -> FileTables:
    fields = {"kind": "object_store_local", "path": str(tmp_path / "lake"), "format": "parquet"}
    opened = open_target(connection_from_fields("lake", fields))
    assert isinstance(opened, FileTables)
    return opened


def staged(lake: FileTables) -> tuple[StageSpec, tuple[TaskReport, ...]]:
    spec = StageSpec(
        "stg_mark_1", staged_schema(COLUMNS).serialize().to_pybytes(), COLUMNS, stamp=(START.isoformat(), "batch")
    )
    with closing(lake.session()) as session:
        spec = lake.open_stage(session, spec)
    stager = lake.stager(spec, 0, 7)
    stager.write(pa.record_batch({"id": pa.array([1, 2, 3], pa.int64())}))
    path, reject_path = stager.finish()
    return spec, (TaskReport(0, 7, 3, 0, path, reject_path),)


def add(lake: FileTables, spec: StageSpec, parts: tuple[TaskReport, ...]) -> None:
    """Make staged files part of a table without giving them their names, as a killed load leaves them."""
    with closing(lake.session()) as session:
        session.begin()
        relation = lake.staged_relation(session, spec, parts)
        session.execute(f"INSERT INTO {FILES} SELECT 's/t/' || name, 's/t', rows, bytes, staged FROM {relation}")
        super(type(session), session).commit()


def names(lake: FileTables) -> list[str]:
    return [entry.key for entry in lake.store.listed("") if visible(entry.key)]


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("touch", [Path.unlink, truncated])
def test_staging_that_was_touched_is_noticed(lake: FileTables, touch: Callable[[Path], Any]) -> None:
    spec, parts = staged(lake)
    with closing(lake.session()) as session:
        lake.verify_stage(session, spec, parts)
        touch(Path(lake.store.address(parse_staged_path(parts[0].path)[0])))
        with pytest.raises(StagingLostError, match="partition 0 are gone or of another size"):
            lake.verify_stage(session, spec, parts)


def test_a_staged_file_that_a_record_names_is_never_dropped(lake: FileTables) -> None:
    spec, parts = staged(lake)
    add(lake, spec, parts)
    assert names(lake) == []
    with closing(lake.session()) as session:
        lake.drop_stage(session, spec)
        assert list(lake.stages(session)) == []
    assert len(names(lake)) == 1
    assert lake.store.size(names(lake)[0]) == parse_staged_path(parts[0].path)[1]


def test_what_a_killed_task_left_is_staging_too_and_collected_by_age(lake: FileTables) -> None:
    lake.store.output(f"{HOME}{STAGE}stg_mark_1/part-00000-1.parquet").stream.close()
    with closing(lake.session()) as session:
        ((name, age),) = lake.stages(session)
    assert (name, age < 60) == ("stg_mark_1", True)
    assert collect(lake, 3600.0) == 0
    for draft in (Path(lake.store.display_address) / HOME / STAGE).rglob(".*"):
        os.utime(draft, (0, 0))
    assert collect(lake, 3600.0) == 1
    assert not (Path(lake.store.display_address) / HOME / STAGE / "stg_mark_1").exists()


def test_an_answer_that_a_load_is_not_committed_stays_true(lake: FileTables) -> None:
    token = Token("flow", "lake:s.t", "slot")
    history = HistoryRow(token.run_id, "flow", "s", "t", "append", "cross_db", START, "running")
    fence, _, _ = open_run(lake, token, "flow", history, "flow")
    ledger = Ledger(lake)
    with closing(lake.session()) as late:
        late.begin()
        ledger.insert_token(late, token, fence, "hash", START)
        assert find_commit(SimpleNamespace(token=token, fence=fence), lake) is None  # type: ignore[arg-type]
        with pytest.raises(OvertakenError):
            late.commit()
    with closing(lake.session()) as session:
        assert ledger.find(session, token) is None


def test_an_error_while_files_are_settled_leaves_no_transaction_open(
    lake: FileTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, parts = staged(lake)
    add(lake, spec, parts)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with closing(lake.session()) as session:
        with monkeypatch.context() as broken:
            broken.setattr(type(lake.store), "move", full)
            with pytest.raises(OSError, match="No space"):
                session.execute("CREATE TABLE kept (x INTEGER)")
        session.execute("CREATE TABLE kept (x INTEGER)")
    with closing(lake.session()) as session:
        assert session.query("SELECT * FROM kept") == []
    assert len(names(lake)) == 1


def test_names_sort_by_time_and_do_not_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    created = []
    for second in range(100):
        monkeypatch.setattr("time.time_ns", lambda second=second: (1_790_000_000 + second) * 10**9)
        created.append(time_ordered_name())
    assert created == sorted(set(created))
    assert {(len(name), name[12], name[16] in "89ab") for name in created} == {(32, "7", True)}


@pytest.mark.parametrize("name", ["..", "_hidden", ".hidden", "a/b", "nul\0"])
def test_names_that_are_no_folder_for_readers_are_refused(lake: FileTables, name: str) -> None:
    with pytest.raises(UnsupportedError):
        lake.table_name("schema", name)
    with pytest.raises(UnsupportedError):
        lake.table_name(name, "table")


def test_folders_of_files_answer_no_queries_and_other_targets_are_named(lake: FileTables) -> None:
    assert isinstance(lake, TargetSystem)
    assert not isinstance(lake, SqlSource | SqlTarget)
    assert kinds_with("merge") == ("duckdb", "sqlite", "postgres", "mysql", "delta_local", "delta_s3", "iceberg")
    files = ("object_store_local", "object_store_s3", "object_store_gcs", "object_store_azure")
    assert kinds_with("append")[4:8] == files


def test_two_connections_to_one_folder_are_the_same(lake: FileTables, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    connection = connection_from_fields("x", {"kind": "object_store_local", "path": "x", "format": "csv"})
    other = open_target(replace(connection, path=str(tmp_path / "link")))  # type: ignore[call-arg]
    assert other.identity() == lake.identity()


def test_a_copy_that_ends_after_its_file_was_removed_is_taken_back(
    lake: FileTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Services that speak S3 move by copying: a slow copy may end when another session has moved and removed the file."""
    add(lake, *staged(lake))
    slow = lake.session()
    move = lake.store.move

    def overtaken(source: str, final: str) -> None:
        monkeypatch.setattr(lake.store, "move", move)
        copied = lake.store.read(source)
        assert copied is not None
        with closing(lake.session()) as other:
            other.begin()
            other.execute(f"INSERT INTO {REMOVED} SELECT path FROM {FILES}")
            other.execute(f"DELETE FROM {FILES}")
            other.commit()
        assert names(lake) == []
        lake.store.create(final, copied)

    monkeypatch.setattr(lake.store, "move", overtaken)
    with closing(slow):
        slow.finalize_newest()
    assert names(lake) == []

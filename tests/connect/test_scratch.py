"""Temporary folders: gone with their process, removed by a later one when that was killed, and nobody else's touched."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ematix_flow.connect.base.scratch import open_scratch, scratch_folder, sweep

if TYPE_CHECKING:
    from collections.abc import Iterator

SRC = str(Path(__file__).parents[2] / "src")
WORKER = """
import sys
from ematix_flow.connect.staging.parquet import process_folder
(process_folder() / "rows.parquet").write_text("rows of the user")
print(process_folder(), flush=True)
sys.stdin.read()
"""
TASK = """
import sys
import pyarrow as pa
from ematix_flow.connect.base.stage import StageSpec
from ematix_flow.connect.staging.parquet import ParquetStager
schema = pa.schema([("id", pa.int64())])
stager = ParquetStager(StageSpec("stg_1", schema.serialize().to_pybytes()), 0, 0)
stager.write(pa.RecordBatch.from_arrays([pa.array([1, 2])], schema=schema))
print(stager.finish()[0], flush=True)
sys.stdin.read()
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty temporary folder that this process and its children use."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.fixture
def worker(root: Path) -> Iterator[subprocess.Popen[str]]:
    """Return a process that has rows in its folder and waits."""
    with started(WORKER) as process:
        yield process
        process.kill()


def started(program: str) -> subprocess.Popen[str]:
    """Start a process in the same temporary folder, which says where its rows are and then waits."""
    environ = {**os.environ, "PYTHONPATH": SRC}
    return subprocess.Popen(
        [sys.executable, "-c", program], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def folder_of(worker: subprocess.Popen[str]) -> Path:
    assert worker.stdout is not None
    folder = Path(worker.stdout.readline().strip())
    age(folder)
    return folder


def age(folder: Path) -> None:
    os.utime(folder, (1_000_000_000,) * 2)


@pytest.mark.slow
def test_the_folder_of_a_killed_process_is_removed_and_that_of_a_living_one_is_not(
    worker: subprocess.Popen[str], root: Path
) -> None:
    folder = folder_of(worker)
    sweep(root)
    assert (folder / "rows.parquet").exists()
    worker.kill()
    worker.wait()
    assert folder.exists(), "nobody could tidy up"
    sweep(root)
    assert list(root.iterdir()) == []


@pytest.mark.slow
def test_staged_rows_of_a_killed_task_are_removed_and_those_of_a_living_one_are_not(root: Path) -> None:
    with started(TASK) as task:
        assert task.stdout is not None
        rows = Path(task.stdout.readline().strip())
        (folder,) = root.glob("ematix-flow-stage-*")
        age(folder)
        sweep(root)
        assert rows.exists()
        task.kill()
        task.wait()
    assert rows.exists(), "nobody could tidy up"
    sweep(root)
    assert list(root.iterdir()) == []


@pytest.mark.slow
def test_a_process_that_ends_removes_its_folder(worker: subprocess.Popen[str], root: Path) -> None:
    folder_of(worker)
    worker.communicate("")
    assert list(root.iterdir()) == []


@pytest.mark.slow
def test_a_young_folder_is_left_alone(worker: subprocess.Popen[str], root: Path) -> None:
    os.utime(folder_of(worker))
    worker.kill()
    worker.wait()
    sweep(root)
    assert len(list(root.iterdir())) == 1


def test_what_is_not_ours_is_left_alone(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere"
    for folder in (outside, root / "ematix-flow-strange", root / "other-things"):
        folder.mkdir()
        (folder / "precious").touch()
    (outside / "in-use").touch()
    (root / "ematix-flow-link").symlink_to(outside)
    (root / "ematix-flow-file").touch()
    for entry in (*root.iterdir(), outside):
        age(entry)
    sweep(root)
    assert sorted(path.name for path in root.iterdir()) == [
        "ematix-flow-file",
        "ematix-flow-link",
        "ematix-flow-strange",
        "other-things",
    ]
    assert (outside / "precious").exists()


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_folders_of_other_users_are_left_alone(worker: subprocess.Popen[str], root: Path) -> None:
    folder = folder_of(worker)
    worker.kill()
    worker.wait()
    os.chown(folder, 12345, 12345)
    sweep(root)
    assert folder.exists()


def test_a_folder_whose_process_died_before_it_had_a_lock_is_removed(root: Path) -> None:
    (root / "ematix-flow-123-abc").mkdir()
    age(root / "ematix-flow-123-abc")
    sweep(root)
    assert list(root.iterdir()) == []


def test_several_may_sweep_at_once(root: Path) -> None:
    for number in range(50):
        scratch = open_scratch(f"{number}")
        os.close(scratch.lock)  # as when its process is gone
        age(scratch.folder)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            sweep(root)
        except BaseException as error:  # noqa: BLE001 - told to the test
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (errors, list(root.iterdir())) == ([], [])


def test_a_folder_for_a_block_is_empty_and_ends_with_it(root: Path) -> None:
    with scratch_folder("test") as folder:
        assert list(Path(folder).iterdir()) == []
        assert Path(folder).parent.name.startswith("ematix-flow-test-")
    assert list(root.iterdir()) == []

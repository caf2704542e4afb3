"""A run of the suite that was stopped goes on: what passed on the same tree is not run again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLUGIN = ROOT / "tests" / "continuing.py"
TESTS = """
from pathlib import Path

import pytest


@pytest.mark.parametrize("number", range(4))
def test_number(number):
    with Path("../ran").open("a") as ran:
        ran.write(f"{number} ")
    assert number != 2 or Path("../mended").exists()


@pytest.fixture
def untidy():
    yield
    assert Path("../mended").exists()


def test_end(untidy):
    with Path("../ran").open("a") as ran:
        ran.write("end ")
"""


def _git(project: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    subprocess.run(["git", *identity, *arguments], cwd=project, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a committed project with five tests; one of them and the end of another fail until they are mended."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "continuing.py").write_text(PLUGIN.read_text("utf-8"), "utf-8")
    (project / "test_numbers.py").write_text(TESTS, "utf-8")
    (project / ".gitignore").write_text(".pytest_cache\n__pycache__\n", "utf-8")
    (project / "pytest.ini").write_text("[pytest]\n", "utf-8")
    _git(project, "init", "-q")
    _git(project, "add", ".")
    _git(project, "commit", "-qm", "tests")
    return project


def _run(project: Path, processes: int) -> tuple[list[str], int, str]:
    """Run the tests; return which ran, the exit code and the output."""
    ran = project.parent / "ran"
    ran.unlink(missing_ok=True)
    retained = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "FLOW_TEST"))}
    command = [sys.executable, "-m", "pytest", "-p", "continuing", "-n", str(processes)]
    done = subprocess.run(command, cwd=project, env=retained, check=False, capture_output=True, text=True)
    return sorted(ran.read_text().split()) if ran.exists() else [], done.returncode, done.stdout


@pytest.mark.deep  # only such runs are continued
@pytest.mark.slow
def test_what_passed_on_the_same_tree_is_not_run_again(project: Path) -> None:
    assert _run(project, 2)[:2] == (["0", "1", "2", "3", "end"], 1)

    again, code, output = _run(project, 2)
    assert (again, code) == (["2", "end"], 1)
    assert "3 tests had passed before on this tree" in output

    (project.parent / "mended").touch()
    assert _run(project, 2)[:2] == (["2", "end"], 0)
    assert _run(project, 2)[:2] == ([], 0)


@pytest.mark.deep
@pytest.mark.slow
def test_another_tree_is_run_as_a_whole(project: Path) -> None:
    (project.parent / "mended").touch()
    everything = ["0", "1", "2", "3", "end"]
    assert _run(project, 0)[:2] == (everything, 0)

    (project / "note.txt").write_text("a change that is not committed")
    assert _run(project, 0)[:2] == (everything, 0)

    _git(project, "add", ".")
    _git(project, "commit", "-qm", "a note")
    assert _run(project, 0)[:2] == (everything, 0)
    assert _run(project, 0)[:2] == ([], 0)

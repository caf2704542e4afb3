"""Lets a run of hours that was stopped go on where it was: tests that passed on exactly this tree are not run again.

A plugin of pytest, `-p tests.continuing`. What passed is kept in `.pytest_cache` by the tree of the commit and the engines that
move rows. With changes that are not committed everything runs, and nothing is kept.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

_FILE = "FLOW_TEST_PASSED"
"""Names the file of what passed; empty where everything runs."""
_SIZE = "FLOW_TEST_PASSED_SIZE"
"""How much of it there was at the start: all test processes have to choose the same tests, whenever they start."""
_CALLED: set[str] = set()
"""The tests of this run whose bodies passed, and whose ends have not been seen."""


def pytest_configure(config: pytest.Config) -> None:
    """Find what passed before; the process that starts the others does so for all."""
    if hasattr(config, "workerinput"):
        return
    file, tree = None, _tree(config.rootpath)
    if tree:
        engines = "-".join(config.getoption(f"{who}_engine", "") for who in ("contract", "stream"))
        file = config.rootpath / ".pytest_cache" / "passed" / tree / engines
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    os.environ[_FILE] = str(file or "")
    os.environ[_SIZE] = str(file.stat().st_size if file else 0)


@pytest.hookimpl(trylast=True)  # after xdist has put groups into names
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what passed before."""
    passed = _passed_before()
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
    items[:] = [item for item in items if item.nodeid not in passed]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep the name of a test that passed, its end included."""
    file = os.environ[_FILE]
    if not file or "PYTEST_XDIST_WORKER" in os.environ:
        return
    if report.when == "call" and report.passed:
        _CALLED.add(report.nodeid)
    elif report.when == "teardown" and report.nodeid in _CALLED:
        _CALLED.remove(report.nodeid)
        if report.passed:
            with Path(file).open("a", encoding="utf-8") as names:
                names.write(f"{report.nodeid}\n")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """End well where nothing was left to run."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and _passed_before():
        session.exitstatus = pytest.ExitCode.OK


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests were not run again."""
    if passed := _passed_before():
        terminalreporter.write_line(f"{len(passed)} tests had passed before on this tree, and were not run again")


def _tree(root: Path) -> str:
    """Return the id of what is committed; nothing where there are changes, or no git."""
    try:
        changed = subprocess.check_output(["git", "status", "--porcelain"], cwd=root, text=True)
        tree = subprocess.check_output(["git", "rev-parse", "HEAD^{tree}"], cwd=root, text=True).strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
    return "" if changed else tree


def _passed_before() -> set[str]:
    file, size = os.environ[_FILE], int(os.environ[_SIZE])
    return {*Path(file).read_bytes()[:size].decode().splitlines()} if file else set()

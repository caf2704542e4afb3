"""A program whose Connect server is gone or frozen ends in time, whichever way it is rid of its session."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ematix_flow.declare.spark_settings import SparkSettings
from ematix_flow.run.warm.client import lease_of
from ematix_flow.run.warm.state import FOLDER_VARIABLE
from tests.depth import deep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ematix_flow.run.warm.client import EngineLease

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
ENDINGS = ("stopped", "dropped", "left to the end of the process")
DEADLINE = 45
"""Less than a warm engine that does not answer is given to live."""


@pytest.fixture
def server(engines: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineLease]:
    """Return a server that answers; one that a test has frozen goes on afterwards."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(engines))
    lease = lease_of(SparkSettings(master="local[2, 4]", shared=True))
    yield lease
    with suppress(ProcessLookupError):
        os.kill(lease.state.java_pid, signal.SIGCONT)
    lease.release()


def _reading(server: EngineLease, ending: str, folder: Path) -> subprocess.Popen[str]:
    remote = f"sc://localhost:{server.state.port}/;token={server.state.token}"
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("lost_server.py")), remote, ending],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.mark.deep
@pytest.mark.parametrize("number", [deep(signal.SIGSTOP), signal.SIGKILL], ids=["frozen", "killed"])
def test_whoever_has_lost_its_server_ends_in_time(number: signal.Signals, server: EngineLease, tmp_path: Path) -> None:
    with ExitStack() as stack:
        programs = {ending: stack.enter_context(_reading(server, ending, tmp_path)) for ending in ENDINGS}
        for program in programs.values():
            stack.callback(program.kill)
            assert program.stdout is not None
            assert program.stdout.readline() == "reads\n"
        os.kill(server.state.java_pid, number)
        for program in programs.values():
            assert program.stdin is not None
            program.stdin.close()
        assert {ending: program.wait(DEADLINE) for ending, program in programs.items()} == dict.fromkeys(ENDINGS, 0)

"""The demo: it ends well, and with a command that opens the page on its own runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
DAYS, PIPELINES = 4, 3


@pytest.fixture
def printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the demo in an empty folder, whose name has a blank, and return what it prints."""
    (tmp_path / "my demo").mkdir()
    monkeypatch.chdir(tmp_path / "my demo")
    environment = {**os.environ, "EMATIX_FLOW_ENGINE": "local", "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "80"}
    demo = [sys.executable, str(ROOT / "examples" / "demo" / "run.py")]
    done = subprocess.run(demo, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def address(printed: str) -> Iterator[str]:
    """Run the last line of the demo as it stands, on a free port, and return the address of the page."""
    command = f"exec env {printed.splitlines()[-1].strip()} --port 0"
    with subprocess.Popen(command, shell=True, stderr=subprocess.PIPE, text=True) as process:  # noqa: S602 - as people do
        try:
            assert process.stderr is not None
            yield next(match[0] for line in process.stderr if (match := re.search(r"http://\S+", line)))
        finally:
            process.terminate()


@pytest.mark.slow
def test_the_demo_ends_with_the_command_that_opens_its_runs(printed: str, address: str) -> None:
    assert "Counts match the source." in printed
    assert "NOT KILLED" not in printed
    with urllib.request.urlopen(f"{address}api/runs?limit=500", timeout=60) as response:  # noqa: S310 - of this machine
        runs = json.load(response)["runs"]
    assert len(runs) == DAYS * PIPELINES + 1  # one was killed and taken up again
    ended = sorted({run["status"] for run in runs})
    assert ended == ["interrupted", "succeeded"]
    assert {run["pipeline"] for run in runs} == {"load_events", "load_customers", "load_prices"}
    with urllib.request.urlopen(f"{address}pipelines/load_prices", timeout=60) as response:  # noqa: S310 - of this machine
        assert b"@ematix.pipeline" in response.read()

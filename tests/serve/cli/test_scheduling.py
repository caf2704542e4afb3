"""`flow scheduler` and `flow up`: until when they run, how they end, and what they refuse to begin with."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.serve.cli.conftest import SRC

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.serve.cli.conftest import CommandResult

    Flow = Callable[..., CommandResult]

pytestmark = pytest.mark.slow

EVERY = """
from pathlib import Path
from typing import Annotated

from ematix_flow import BigInt, ematix, pk
from ematix_flow.pipeline import register


@register(name="often", schedule="* * * * *")
def often():
    Path("often.txt").write_text("ran")


@ematix.connection
class lite:
    kind = "sqlite"
    path = "lite.db"


@ematix.connection
class inbox:
    kind = "object_store_local"
    path = "inbox"
    format = "csv"


@ematix.table(schema="main", name="events")
class Events:
    id: Annotated[BigInt, pk()]


@ematix.streaming_pipeline(
    source="inbox", source_query="*.csv", target=Events, target_connection="lite", mode="append", idle_pause_ms=20
)
def events():
    return None
"""
TIMED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ")
LOG = ("-m", "every", "--run-log", "sqlite://log.db", "--poll-interval", "0.05", "--interval", "120")


@pytest.fixture
def every(project: Path) -> Path:
    """Return the working folder with a module whose pipeline is always due."""
    Path("every.py").write_text(EVERY, encoding="utf-8")
    Path("inbox").mkdir()
    return project


def test_a_scheduler_ends_after_so_many_looks(flow: Flow, every: Path) -> None:
    result = flow("scheduler", *LOG, "--max-iterations", "2", "--worker-id", "me")
    assert result.code == 0
    assert result.out == ""
    for line in ("me: 1 pipeline (often)", "leader: (me leads)", "dispatched: often (slot ", "done: often@"):
        assert line in result.err
    untimed = [line for line in result.err.splitlines() if not TIMED.match(line)]
    assert untimed == [], "every line has its time"
    assert all("often" in line for line in result.err.splitlines() if "leader" not in line)
    assert result.err.count("dispatched: often") <= 2  # another one only where a minute began meanwhile
    assert Path("often.txt").exists()


def test_a_run_log_that_is_away_is_waited_for_with_a_line_that_has_its_time(every: Path) -> None:
    address = "postgres://flow:canary@127.0.0.1:9/log?connect_timeout=2"
    away = ("-m", "every", "--run-log", address, "--poll-interval", "0.05")
    with subprocess.Popen(
        [sys.executable, "-m", "ematix_flow", "scheduler", *away],
        env={**os.environ, "PYTHONPATH": SRC}, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        line = next(line for line in process.stderr if "trying again in" in line)
        process.kill()
    assert TIMED.match(line)
    assert "run log: " in line
    assert "canary" not in line


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--no-run-log",), "a scheduler needs a run log"),
        (("--executor", "k8s://flows"), "needs the image"),
        (("--executor", "nowhere://"), "no executor is called"),
        (("--workers", "0"), "--workers"),
    ],
)
def test_wrong_usage_is_refused_before_anything_runs(
    flow: Flow, every: Path, more: tuple[str, ...], message: str
) -> None:
    answer = flow("scheduler", *LOG, *more)
    assert answer.code == 2
    assert message in answer.err
    assert not Path("often.txt").exists()


def loaded() -> list[int]:
    try:
        with closing(sqlite3.connect("lite.db")) as connection:
            return [row[0] for row in connection.execute("SELECT id FROM events ORDER BY id")]
    except sqlite3.Error:
        return []


def test_up_runs_streams_and_pipelines_until_it_is_told_to_end(every: Path) -> None:
    Path("inbox/a.csv").write_text("id\n1\n2\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "ematix_flow", "up", *LOG],
        env={**os.environ, "PYTHONPATH": SRC}, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        end = time.monotonic() + 60
        while (
            not (loaded() == [1, 2] and Path("often.txt").exists())
            and process.poll() is None
            and time.monotonic() < end
        ):
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert loaded() == [1, 2], err
    assert Path("often.txt").exists(), err
    assert (process.returncode, out) == (0, ""), err
    logs = [file for file in (Path.home() / ".ematix-flow" / "logs").iterdir() if file.name.startswith("events-")]
    assert sorted(file.suffix for file in logs if not file.is_symlink()) == [".log"], "one log of the stream's run"
    assert len(logs) == 2, "under its id too"

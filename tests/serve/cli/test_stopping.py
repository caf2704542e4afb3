from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest

from ematix_flow.commit.interrupts import uninterrupted
from ematix_flow.events import PostFinished, RunCommitted, RunFailed, RunStarted
from ematix_flow.records import Counts
from ematix_flow.serve.cli import main
from ematix_flow.serve.cli.common.signals import Stop, StoppedError, stopping
from ematix_flow.serve.cli.common.state import State
from tests.depth import deep

if TYPE_CHECKING:
    from collections.abc import Callable

    Flow = Callable[..., Any]

pytestmark = pytest.mark.slow

SRC = str(Path(__file__).parents[3] / "src")

STUBBORN = """
import sys, time
from flows import Copies
from ematix_flow import ematix

@ematix.pipeline(target=Copies, target_connection="lite", mode="append")
def stubborn(conn):
    while True:
        try:
            print("here", flush=True)
            time.sleep(60)
        except BaseException:
            print("not yet", flush=True)

@ematix.pipeline(target=Copies, target_connection="lite", mode="append")
def sleeping(conn):
    print("here", flush=True)
    time.sleep(60)
"""

STARTED = RunStarted("p", "t", "id", "same_db")
COMMITTED = RunCommitted("p", "t", "id", Counts(inserted=1), replayed=False)
POST = PostFinished("p", "", "step", ok=True)


def started(name: str, module: str, **environ: str) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-m", "ematix_flow", "run", name, "-m", module]
    environment = {**os.environ, "PYTHONPATH": SRC, **environ}
    return subprocess.Popen(
        arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    )


def wait_for(text: str, stream: IO[str] | None) -> str:
    """Read lines until one holds the words; the pipe's end means that they never came."""
    assert stream is not None
    for line in stream:
        if text in line:
            return line
    raise AssertionError(text)


def copies() -> int:
    with closing(sqlite3.connect("lite.db")) as connection:
        return int(connection.execute("SELECT count(*) FROM copies").fetchone()[0])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_run_and_says_how_to_go_on(project: Path, number: signal.Signals) -> None:
    (project / "slow.py").write_text(STUBBORN, encoding="utf-8")
    with started("sleeping", "slow") as process:
        wait_for("here", process.stderr)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert out == ""
    assert f"error: stopped by {number.name}\nhint: running it again takes up this run" in err


def test_a_second_signal_ends_a_run_that_does_not_listen(project: Path) -> None:
    (project / "slow.py").write_text(STUBBORN, encoding="utf-8")
    with started("stubborn", "slow") as process:
        wait_for("here", process.stderr)
        process.send_signal(signal.SIGTERM)
        wait_for("not yet", process.stderr)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert "ended at once" in err


@pytest.mark.crash
@pytest.mark.parametrize(
    "point", [deep("plan.after_bounds"), "commit.applied", deep("commit.before_commit"), "commit.after_commit"]
)
def test_a_stopped_run_that_is_run_again_has_every_row_once(flow_process: Flow, project: Path, point: str) -> None:
    with started("copy", "flows", FLOW_FAILPOINTS=f"{point}=sleep:60") as process:
        # The plan is ready before it is told, so its place is known by the function's own words.
        wait_for("printed by" if point.startswith("plan") else "loading inside the database", process.stderr)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    again = flow_process("run", "copy", "-m", "flows")
    assert (again.code, copies()) == (0, 2)


def test_a_signal_waits_for_the_answer_to_a_commit() -> None:
    stop = Stop()
    with uninterrupted():
        stop.on_signal(signal.SIGTERM, None)
    assert stop.number == signal.SIGTERM
    with pytest.raises(StoppedError):
        stop.on_signal(signal.SIGTERM, None)


def test_after_a_signal_during_a_commit_no_further_target_is_begun() -> None:
    stop = Stop()
    stop.on_event(STARTED)
    with uninterrupted():
        stop.on_signal(signal.SIGINT, None)
    stop.on_event(COMMITTED)
    stop.on_event(RunFailed("p", "t", "id", "message"))
    with pytest.raises(StoppedError):
        stop.on_event(STARTED)
    assert stop.code == 130


def test_after_a_signal_during_a_commit_no_further_post_step_is_begun() -> None:
    stop = Stop()
    stop.steps_left = 2
    stop.on_event(COMMITTED)
    stop.on_event(POST)
    stop.number = signal.SIGTERM
    stop.on_event(POST)  # it was the last one
    stop.steps_left = 2
    with pytest.raises(StoppedError):
        stop.on_event(COMMITTED)


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stopping():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_request_that_a_signal_keeps_open_is_told_by_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr(main.os, "_exit", codes.append)
    monkeypatch.setattr(main, "ignore_signals", lambda: None)
    monkeypatch.setattr(main.warnings, "showwarning", main.warnings.showwarning)
    closed: list[str] = []
    for number in (0, signal.SIGTERM):
        state = State(close_request=lambda: closed.append("closed"))
        state.stop.number = number
        main._leave(state, 0)
    assert (codes, closed) == ([0, 143], ["closed"])


def test_a_run_by_hand_is_told_by_status_and_stops_when_it_is_cancelled(project: Path, flow_process: Flow) -> None:
    (project / "slow.py").write_text(STUBBORN, encoding="utf-8")
    with started("sleeping", "slow") as process:
        wait_for("here", process.stderr)
        listed = flow_process("runs", "list", "--status", "running")
        assert "sleeping" in listed.out
        shown = json.loads(flow_process("status", "sleeping", "-m", "slow", "--format", "json").out)
        assert [(one["state"], one["reason"]) for one in shown] == [
            ("running", f"run by hand, in process {process.pid}")
        ]
        assert f"run by hand, in process {process.pid}" in flow_process("status", "sleeping", "-m", "slow").err
        result = flow_process("runs", "cancel", "sleeping", "-m", "slow")
        assert (result.code, f"process {process.pid}" in result.err) == (0, True), result.err
        _, err = process.communicate(timeout=50)
    assert process.returncode == 1
    assert "the run of sleeping was cancelled by" in err
    assert "cancelled" in flow_process("runs", "list", "--status", "cancelled").out

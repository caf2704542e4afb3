"""Slots in processes of their own: the real command, under the lease it was given, with nothing secret to be seen."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ematix_flow.commit.runlog.open import sqlite_run_log
from ematix_flow.declare.project import load_module
from ematix_flow.engine.schedule import actions
from ematix_flow.engine.schedule.lease import held_now
from ematix_flow.executors import DispatchSpec, SubprocessExecutor
from ematix_flow.records import PipelineState
from ematix_flow.serve.cli.main import main
from tests.engine.schedules import Rig, ticked

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.slow

SRC = str(Path(__file__).parents[2] / "src")
MODULE = """
from pathlib import Path
from ematix_flow.pipeline import current_slot, register

@register(name="note", schedule="0 * * * *")
def note():
    with Path("ran.txt").open("a") as file:
        file.write(f"{current_slot().end:%H:%M}\\\\n")
    while Path("wait").exists():
        pass
"""


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    """Return a rig whose run log is a file, and the module `worked` in the working folder."""
    monkeypatch.setenv("PYTHONPATH", SRC)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("worked.py").write_text(MODULE.replace("\\\\", "\\"), encoding="utf-8")
    monkeypatch.delitem(sys.modules, "worked", raising=False)
    load_module("worked")
    return Rig(sqlite_run_log(Path.cwd() / "log.db"))


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true() and time.monotonic() < end:
        time.sleep(0.05)
    assert true()


def ran() -> list[str]:
    return Path("ran.txt").read_text().split() if Path("ran.txt").exists() else []


def test_a_worker_runs_the_slot_that_was_begun_for_it(rig: Rig) -> None:
    scheduler = rig.scheduler(
        executor=SubprocessExecutor(), module="worked", run_log_url=f"sqlite://{Path.cwd()}/log.db"
    )
    ticked(scheduler)
    ticked(scheduler)
    until(lambda: rig.state("note").slot_status == "succeeded")
    assert ran() == ["12:00"]
    until(lambda: not held_now(rig.log).get("note"))  # the worker gave the lease back


@pytest.mark.parametrize("project", ["-", "/srv/somewhere", "shop"])
def test_a_worker_is_of_the_project_of_its_scheduler(rig: Rig, project: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMATIX_FLOW_PROJECT", project)
    rig.log = sqlite_run_log(Path.cwd() / "log.db")
    monkeypatch.delenv("EMATIX_FLOW_PROJECT")
    Path(".ematix-flow.toml").write_text('[project]\nname = "of the folder"\n', encoding="utf-8")
    url = f"sqlite://{Path.cwd()}/log.db"
    ticked(rig.scheduler(executor=SubprocessExecutor(), module="worked", run_log_url=url))
    until(lambda: rig.state("note").slot_status == "succeeded")
    assert ran() == ["12:00"]


def test_a_worker_that_comes_too_late_changes_nothing(rig: Rig) -> None:
    held = rig.log.claim("note", "somebody else", 60)
    executor = SubprocessExecutor()
    handle = executor.dispatch(DispatchSpec("note", "worked", "0" * 32, 60, f"sqlite://{Path.cwd()}/log.db"))
    until(lambda: not Path(f"/proc/{handle.ref}").exists())
    assert ran() == []
    assert rig.log.find(PipelineState, "note") is None
    assert held.token is not None
    assert rig.log.heartbeat(held.token, 60)


def test_a_command_line_shows_no_password_and_a_worker_can_be_cancelled(rig: Rig) -> None:
    Path("wait").touch()
    address = f"sqlite://{Path.cwd()}/log.db"
    claim = rig.log.claim("note", "scheduler", 60)
    rig.log.swap(None, PipelineState("note", last_slot="2026-03-01T12:00:00Z", slot_status="running", attempt=1))
    executor = SubprocessExecutor()
    alert = "email://flow:hunter2@127.0.0.1:1?to=a@example.org"
    handle = executor.dispatch(DispatchSpec("note", "worked", claim.token or "", 60, address, (alert, "stdout://")))
    until(lambda: ran() == ["12:00"])
    command = Path(f"/proc/{handle.ref}/cmdline").read_bytes().decode().split("\0")
    assert command[3:6] == ["run", "--module", "worked"]
    assert "hunter2" not in " ".join(command)
    assert "--alerter" not in command
    environment = Path(f"/proc/{handle.ref}/environ").read_bytes().decode().split("\0")
    assert f"EMATIX_FLOW_ALERTERS={alert},stdout://" in environment
    executor.cancel(handle)
    actions.cancel(rig.log, "note", "anna")
    Path("wait").unlink()
    until(lambda: not Path(f"/proc/{handle.ref}").exists())
    executor.cancel(handle)
    assert rig.state("note").cancelled_by == "anna", "whoever looks next ends the slot, as its process did not"


def test_a_worker_stops_when_its_run_is_cancelled_through_the_run_log_alone(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("wait").touch()
    address = f"sqlite://{Path.cwd()}/log.db"
    ticked(rig.scheduler(executor=SubprocessExecutor(), module="worked", run_log_url=address))
    until(lambda: ran() == ["12:00"])
    assert main(["runs", "cancel", "note", "-m", "worked", "--run-log", address]) == 0
    assert "is requested to stop" in capsys.readouterr().err
    until(lambda: rig.state("note").slot_status == "cancelled")
    until(lambda: not held_now(rig.log).get("note"))
    assert Path("wait").exists(), "the function did not end by itself"
    assert [run.status for run in rig.log.list_runs(pipeline="note")[0]] == ["cancelled"]
    rig.pass_time(30)
    assert rig.due().fired == [], "a cancelled slot is not repeated by itself"

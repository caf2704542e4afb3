"""How far a run is, seen from another process while it goes on: by the API, the command and the stream of events."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.commit.runlog.open import open_run_log
from ematix_flow.engine.batch import progress
from ematix_flow.engine.batch.progress import showing_progress
from ematix_flow.engine.batch.step_times import StepTimes
from ematix_flow.errors import RunLogError
from ematix_flow.records import RunRecord
from ematix_flow.serve.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from starlette.testclient import TestClient

    from ematix_flow.commit.runlog.log import RunLog


@contextmanager
def running(failpoints: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the pipeline in another process, which rests where the failpoint is; end it with the block."""
    environment = {**os.environ, "FLOW_FAILPOINTS": failpoints}
    command = [sys.executable, "-m", "ematix_flow", "run", "moved", "-m", "moving"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(api: TestClient, step: str) -> dict[str, Any]:
    """Return the run of the pipeline once it is in a step."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for run in api.get("/api/runs", params={"pipeline": "moved"}).json()["runs"]:
            detail: dict[str, Any] = api.get(f"/api/runs/{run['run_id']}").json()
            known = detail["progress"] or {}
            if known.get("step") == step and (step != "stage" or known["rows_staged"]):
                return detail
        time.sleep(0.2)
    raise AssertionError(f"no run was seen in {step}")


@pytest.mark.slow
@pytest.mark.usefixtures("moving")
def test_a_run_shows_its_steps_and_rows_while_it_goes_on(api: TestClient, capsys: pytest.CaptureFixture[str]) -> None:
    with running("stage.before_task_commit=sleep:600") as process:
        detail = wait_for(api, "stage")
        assert detail["progress"]["rows_staged"] == 3000
        steps = [(step["step"], step["status"]) for step in detail["steps"]]
        assert steps == [("open", "succeeded"), ("plan", "succeeded"), ("expand", "succeeded"), ("stage", "running")]
        page = api.get(f"/runs/{detail['run_id']}").text
        assert "3,000 rows so far" in page
        assert main(["runs", "show", detail["run_id"]]) == 0
        assert "Z, 3,000 rows so far" in capsys.readouterr().out
        process.kill()
        process.wait()
        died = api.get(f"/api/runs/{detail['run_id']}").json()
    assert (died["status"], died["progress"]) == ("interrupted", None)
    assert [step["status"] for step in died["steps"]][-1] == "interrupted"
    assert api.get(f"/runs/{detail['run_id']}").status_code == 200
    with running("commit.applied=sleep:600"):
        detail = wait_for(api, "commit")
        assert [step["step"] for step in detail["steps"]][-2:] == ["stage", "commit"]


def begun(log: RunLog) -> RunRecord:
    record = RunRecord("run-1", "p", "running", "2026-01-01T00:00:00+00:00", extras={"pid": 1})
    log.record(record)
    return record


def test_a_run_log_that_is_away_stops_no_load(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, tried = open_run_log(), threading.Event()
    record = begun(log)

    def away(_: RunRecord) -> None:
        tried.set()
        raise RunLogError("the run log does not answer")

    monkeypatch.setattr(progress, "SHOWN_EVERY_SECONDS", 0.01)
    monkeypatch.setattr(log.backend, "put_progress", away)
    times = StepTimes(watched=True)
    with showing_progress(log, record, times):
        times.begin("plan")
        assert tried.wait(60)
    assert times.as_extras()["steps"][0]["step"] == "plan"


def test_a_run_log_that_hangs_holds_no_load_up_and_changes_no_end(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, hangs, goes_on, wrote = open_run_log(), threading.Event(), threading.Event(), threading.Event()
    record, write = begun(log), log.backend.put_progress

    def slow(run: RunRecord) -> None:
        hangs.set()
        goes_on.wait(60)
        write(run)
        wrote.set()

    monkeypatch.setattr(progress, "SHOWN_EVERY_SECONDS", 0.01)
    monkeypatch.setattr(log.backend, "put_progress", slow)
    times = StepTimes(watched=True)
    with showing_progress(log, record, times):
        times.begin("plan")
        assert hangs.wait(60)
    log.record(replace(record, status="succeeded", extras={}))
    goes_on.set()
    assert wrote.wait(60)
    ended = log.get_run("run-1")
    assert ended is not None
    assert (ended.status, ended.extras) == ("succeeded", {})

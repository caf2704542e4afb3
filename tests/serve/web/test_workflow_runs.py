"""A run of a workflow by the API and the command: its jobs are its steps, and it restarts from any of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from ematix_flow.declare.project import load_module
from ematix_flow.serve.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.testclient import TestClient

CHAIN = """
from pathlib import Path

from ematix_flow import ematix, pipeline

@pipeline.register(name="first", schedule=None)
def first():
    return {}

@pipeline.register(name="second", schedule=None, depends_on=["first"])
def second():
    if Path("broken").exists():
        raise ValueError("broken")
    return {}

@pipeline.register(name="third", schedule=None, depends_on=["second"])
def third():
    return {}

ematix.workflow(name="chain", jobs=["first", "second", "third"], triggered_by=["never"])
"""


@pytest.fixture
def chain(project: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., int]:
    """Write a workflow of three jobs, and return the command; no slot of the project comes between them."""
    assert main(["pause", "copy", "-m", "flows"]) == 0
    Path("chained.py").write_text(CHAIN, encoding="utf-8")
    load_module("chained")

    def call(*arguments: str) -> int:
        code = main([*arguments, "-m", "chained"])
        capsys.readouterr()
        return code

    return call


def detail(api: TestClient, run: str) -> dict[str, Any]:
    run_document: dict[str, Any] = api.get(f"/api/runs/{quote(run, safe='')}").json()
    return run_document


def statuses(api: TestClient, run: str) -> list[tuple[str, str]]:
    return [(step["step"], step["status"]) for step in detail(api, run)["steps"]]


def test_a_workflow_restarts_from_a_chosen_job(api: TestClient, chain: Callable[..., int]) -> None:
    run = api.post("/api/workflows/chain/run-now").json()["new_run_id"]
    assert detail(api, run)["actions"]["restart_from_step"] == []
    assert statuses(api, run) == [("first", "waiting"), ("second", "waiting"), ("third", "waiting")]
    assert api.post(f"/api/runs/{quote(run)}/restart", json={"from_step": "second"}).status_code == 400  # it runs
    assert (chain("run-due"), chain("run-due")) == (0, 0)
    known = detail(api, run)
    assert (known["status"], known["kind"]) == ("succeeded", "workflow")
    assert known["actions"]["restart_from_step"] == ["first", "second", "third"]
    assert statuses(api, run) == [("first", "succeeded"), ("second", "succeeded"), ("third", "succeeded")]
    again = api.post(f"/api/runs/{quote(run)}/restart", json={"from_step": "second"}).json()
    assert again["selected_jobs"] == ["second", "third"]
    assert (chain("run-due"), chain("run-due")) == (0, 0)
    new = again["new_run_id"]
    assert statuses(api, new) == [("first", "retained"), ("second", "succeeded"), ("third", "succeeded")]
    runs = [one["pipeline"] for one in api.get("/api/runs").json()["runs"]]
    assert sorted(runs) == ["first", "second", "second", "third", "third"]
    page = api.get(f"/runs/{quote(new, safe='')}").text
    assert "Restart from second" in page
    assert quote(new, safe="") in api.get("/workflows").text
    (action,) = [one for one in api.get("/api/actions").json()["actions"] if one["kind"] == "restart"]
    assert (action["from_step"], bool(action["asked_by"])) == ("second", True)
    assert statuses(api, run) == [("first", "succeeded"), ("second", "succeeded"), ("third", "succeeded")]
    assert detail(api, run)["actions"]["restart_from_step"] == []  # only the last one is restarted
    assert api.get(f"/runs/{quote(run, safe='')}").status_code == 200
    assert api.get("/api/runs/workflow:chain@2026-01-01T00:00:00Z").status_code == 404


def test_a_workflow_that_failed_goes_on(api: TestClient, chain: Callable[..., int]) -> None:
    Path("broken").touch()
    run = api.post("/api/workflows/chain/run-now").json()["new_run_id"]
    chain("run-due")
    chain("run-due")
    assert (detail(api, run)["status"], detail(api, run)["error_summary"]) == ("failed", "second failed")
    assert statuses(api, run) == [("first", "succeeded"), ("second", "failed"), ("third", "not run")]
    refused = api.post(f"/api/runs/{quote(run)}/restart", json={"from_step": "third"})
    assert (refused.status_code, "second has not succeeded" in refused.json()["detail"]) == (400, True)
    assert api.post(f"/api/runs/{quote(run)}/restart", json={"from_step": "nothing"}).status_code == 404
    Path("broken").unlink()
    assert chain("runs", "resume", "chain") == 0
    chain("run-due")
    chain("run-due")
    assert statuses(api, run) == [("first", "succeeded"), ("second", "succeeded"), ("third", "succeeded")]
    assert detail(api, run)["status"] == "succeeded"


def test_the_command_repeats_a_workflow_and_from_a_job_on(api: TestClient, chain: Callable[..., int]) -> None:
    assert chain("runs", "rerun", "chain", "--from", "second") == 2  # it has not run yet
    assert chain("runs", "rerun", "chain") == 0
    assert (chain("run-due"), chain("run-due")) == (0, 0)
    assert chain("runs", "rerun", "chain", "--from", "third") == 0
    assert (chain("run-due"), chain("run-due")) == (0, 0)
    runs = [one["pipeline"] for one in api.get("/api/runs").json()["runs"]]
    assert sorted(runs) == ["first", "second", "third", "third"]


@pytest.mark.usefixtures("history")
def test_a_load_begins_at_no_chosen_step(api: TestClient, capsys: pytest.CaptureFixture[str]) -> None:
    (run,) = api.get("/api/runs", params={"pipeline": "broken"}).json()["runs"]
    key = quote(run["key"], safe="")
    refused = api.post(f"/api/runs/{key}/restart", json={"from_step": "commit"})
    assert (refused.status_code, "goes on by its token" in refused.json()["hint"]) == (400, True)
    assert main(["runs", "rerun", "broken", "--from", "commit", "-m", "flows"]) == 2
    assert "goes on by its token" in capsys.readouterr().err
    assert api.get("/api/actions").json()["actions"] == []

"""Runs, pipelines and workflows by the JSON API, over real runs in a run log of SQLite and of PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from ematix_flow.commit.runlog.open import from_url, open_run_log
from ematix_flow.commit.runlog.records import Action
from ematix_flow.records import PipelineState, RunRecord
from ematix_flow.serve.cli.common.log_files import log_file
from ematix_flow.serve.web.run_logs import PART, log_part

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from starlette.testclient import TestClient

SUMMARY = {"run_id", "pipeline", "status", "started_at", "finished_at", "duration_ms", "attempt", "failed_step", "kind"}
DETAIL = {"failed_watermark", "error_summary", "extras", "attempts", "steps", "actions"}


def key_of(api: TestClient, pipeline: str) -> str:
    (run,) = api.get("/api/runs", params={"pipeline": pipeline}).json()["runs"]
    return quote(run["key"], safe="")


def test_health_needs_nothing_and_me_says_who_asks(api: TestClient) -> None:
    assert api.get("/api/health").json() == {"status": "ok"}
    me = api.get("/api/me").json()
    assert (me["authenticated"], me["rbac_enabled"], me["role"]) == (False, False, "admin")
    assert me["permissions"] == ["read", "query", "write", "admin"]


def test_an_empty_history_is_empty(api: TestClient) -> None:
    assert api.get("/api/runs").json() == {"runs": [], "total": 0, "next_offset": None}
    pipelines = api.get("/api/pipelines").json()["pipelines"]
    assert [one["name"] for one in pipelines] == ["broken", "copy", "count", "never"]
    assert all(one["latest_run"] is None and one["recent_runs"] == [] for one in pipelines)


@pytest.mark.usefixtures("history")
def test_runs_are_listed_newest_first_in_pages(api: TestClient) -> None:
    first = api.get("/api/runs", params={"limit": 2}).json()
    assert [run["pipeline"] for run in first["runs"]] == ["broken", "count"]
    assert (first["total"], first["next_offset"]) == (3, 2)
    assert set(first["runs"][0]) >= SUMMARY
    rest = api.get("/api/runs", params={"limit": 2, "offset": 2}).json()
    assert ([run["pipeline"] for run in rest["runs"]], rest["next_offset"]) == (["copy"], None)
    failed = api.get("/api/runs", params={"status": "failed"}).json()["runs"]
    assert [run["pipeline"] for run in failed] == ["broken"]
    assert api.get("/api/runs", params={"limit": 501}).status_code == 422
    assert api.get("/api/runs", params={"offset": 2**63 - 1}).json()["runs"] == []
    for route in ("runs", "pipelines", f"runs/{key_of(api, 'copy')}/log"):
        assert api.get(f"/api/{route}", params={"offset": 99999999999999999999}).status_code == 422


@pytest.mark.usefixtures("history")
def test_one_run_has_its_steps_its_error_and_what_can_be_done(api: TestClient, project: Path) -> None:
    done = api.get(f"/api/runs/{key_of(api, 'copy')}").json()
    assert set(done) >= SUMMARY | DETAIL
    assert [step["step"] for step in done["steps"]] == ["open", "plan", "expand", "stage", "commit", "clean up"]
    assert done["actions"]["rerun_full"]
    assert done["actions"]["restart_from_step"] == []
    failed = api.get(f"/api/runs/{key_of(api, 'broken')}").json()
    assert failed["failed_step"] == "plan"
    assert "nowhere" in failed["error_summary"]
    assert failed["origin"].startswith(str(project / "flows.py"))
    assert [step["status"] for step in failed["steps"]] == ["succeeded", "failed"]
    assert failed["actions"]["restart_from_step"] == ["plan"]
    assert api.get("/api/runs/unknown").status_code == 404


@pytest.mark.usefixtures("history")
def test_the_log_of_a_run_is_read_in_parts(api: TestClient) -> None:
    address = f"/api/runs/{key_of(api, 'broken')}/log"
    whole = api.get(address).json()
    assert "no such table: nowhere" in whole["text"]
    assert whole["complete"]
    rest = api.get(address, params={"offset": whole["next_offset"]}).json()
    assert (rest["text"], rest["offset"]) == ("", whole["next_offset"])


def parts_of(run: RunRecord) -> list[str]:
    """Read a log to its end, as the page does."""
    texts, offset = [], 0
    while True:
        part = log_part(run, offset)
        if part["next_offset"] == offset:
            return texts
        texts, offset = [*texts, part["text"]], part["next_offset"]


def test_a_line_that_is_longer_than_a_part_does_not_end_the_log() -> None:
    runs = [RunRecord("long", "copy", "running", "2026-01-01T00:00:00+00:00")]
    runs.append(replace(runs[0], status="failed", finished_at="2026-01-01T00:01:00+00:00"))
    file = log_file("long")
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = ["begin", "é" * PART, "ERROR the reason", ""]
    for text in ("\n".join(lines), "\n".join(lines) + "y" * (3 * PART)):
        file.write_text(text, encoding="utf-8")
        for run in runs:
            shown = parts_of(run)
            assert shown[0] == "begin\n"
            assert shown[1].startswith("éé")
            assert "bytes in one line, of which this is the beginning" in shown[1]
            assert shown[2].startswith("ERROR the reason\n")
            assert len(shown) == 3 + (text[-1] == "y" and run.finished_at is not None)
            assert all(len(part) <= PART + 100 for part in shown)


def test_a_secret_where_a_long_line_is_cut_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ematix_flow.connect.config.redact.known_secrets", lambda: frozenset({"c4n4ry-c4n4ry"}))
    file = log_file("long")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("x" * (PART - 6) + "c4n4ry-c4n4ry" + "x" * PART + "\nend\n", encoding="utf-8")
    run = RunRecord("long", "copy", "failed", "2026-01-01T00:00:00+00:00", finished_at="2026-01-01T00:01:00+00:00")
    shown = parts_of(run)
    assert shown[-1] == "end\n"
    assert "c4n4ry" not in "".join(shown)


def test_instants_that_no_year_has_are_refused(api: TestClient) -> None:
    for since in ("9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+14:00"):
        refused = api.get("/api/runs", params={"since": since})
        assert (refused.status_code, "years 1 to 9999" in refused.json()["detail"]) == (400, True)
        assert api.get("/runs", params={"since": since}).status_code == 200
        body = {"from": since, "to": since}
        assert api.post("/api/pipelines/copy/backfill", json=body).status_code == 400
    edges = {"from": "0001-01-01T00:00:00Z", "to": "9999-12-31T23:59:59Z"}
    assert api.post("/api/pipelines/copy/backfill", json=edges).status_code == 400
    assert api.get("/api/backfills").json() == {"backfills": []}


@pytest.mark.usefixtures("history")
def test_pipelines_have_their_recent_history(api: TestClient) -> None:
    by_name = {one["name"]: one for one in api.get("/api/pipelines").json()["pipelines"]}
    copy = by_name["copy"]
    assert (copy["kind"], copy["failure_rate_7d"], copy["latest_run"]["status"]) == ("batch", 0.0, "succeeded")
    assert copy["median_duration_ms"] == copy["latest_run"]["duration_ms"]
    assert copy["next_run_at"] is not None
    assert by_name["broken"]["failure_rate_7d"] == 1.0
    assert by_name["never"]["failure_rate_7d"] is None
    some = api.get("/api/pipelines", params={"q": "C", "limit": 1, "offset": 1}).json()
    assert ([one["name"] for one in some["pipelines"]], some["total"]) == (["count"], 2)


def test_one_pipeline_has_its_declaration_its_plan_and_its_lineage(api: TestClient) -> None:
    count = api.get("/api/pipelines/count").json()
    assert count["declaration"]["source"].startswith("@ematix.pipeline(target=Totals")
    assert count["plan"]["targets"][0]["path_reason"]
    assert count["lineage"][0]["output"].endswith("main.totals")
    broken = api.get("/api/pipelines/broken").json()
    assert broken["plan_error"] or broken["plan"]
    assert api.get("/api/pipelines/nothing").status_code == 404


def test_the_graph_and_the_workflows_are_those_of_the_project(api: TestClient) -> None:
    graph = api.get("/api/dag").json()
    assert {"name", "schedule", "timezone", "state"} <= set(graph["nodes"][0])
    assert {(edge["from"], edge["to"]) for edge in graph["edges"]} == {
        ("copy", "count"), ("count", "nightly"), ("nightly", "never"),
    }  # fmt: skip
    workflows = {one["name"]: one for one in api.get("/api/workflows").json()["workflows"]}
    assert workflows["nightly"]["kind"] == "declared"
    assert workflows["nightly"]["triggers"][0] == {
        "kind": "after_expr", "expression": "all(count)", "waits_for": ["count"], "state": "pending",
    }  # fmt: skip
    assert workflows["copy"]["triggers"][0]["kind"] == "schedule"


def test_a_run_that_is_requested_waits_and_is_done_by_a_scheduler(api: TestClient, run: Callable[..., int]) -> None:
    new = api.post("/api/jobs/never/run-now", json={}).json()
    assert new["cascade_downstream"] is False
    assert api.get(f"/api/runs/{new['new_run_id']}").json()["status"] == "requested"
    run("run-due")
    assert api.get(f"/api/runs/{new['new_run_id']}").json()["status"] == "succeeded"
    assert api.post("/api/jobs/nothing/run-now").status_code == 404


def test_what_depends_on_a_requested_run_waits_for_it(api: TestClient, run: Callable[..., int]) -> None:
    log = open_run_log()
    api.post("/api/jobs/copy/run-now", json={"cascade_downstream": True})
    requested = sorted(action.pipeline for action in log.all(Action))
    assert requested == ["copy", "count"]
    for _ in range(2):
        run("run-due")
    ended = {action.pipeline: action.state for action in log.all(Action)}
    assert ended == {"copy": "done", "count": "done"}
    newest = [run["pipeline"] for run in api.get("/api/runs").json()["runs"]]
    assert newest.index("count") < newest.index("copy")


def test_what_depends_on_a_requested_run_that_failed_is_not_run(
    api: TestClient, project: Path, run: Callable[..., int]
) -> None:
    log = open_run_log()
    first = api.post("/api/jobs/copy/run-now", json={"cascade_downstream": True}).json()["new_run_id"]
    (project / "lite.db").write_text("no database")
    for _ in range(2):
        run("run-due")
    by_name = {action.pipeline: action for action in log.all(Action)}
    assert (by_name["copy"].id, by_name["copy"].state) == (first, "failed")
    assert (by_name["count"].state, by_name["count"].outcome) == ("failed", "copy failed")


@pytest.mark.slow
def test_a_workflow_is_set_off_by_hand_once(api: TestClient, run: Callable[..., int]) -> None:
    started = api.post("/api/workflows/nightly/run-now").json()
    assert started["selected_jobs"] == ["never"]
    assert started["new_run_id"].startswith("workflow:nightly@")
    assert api.post("/api/workflows/nightly/run-now").status_code == 400
    run("run-due")
    assert [run["pipeline"] for run in api.get("/api/runs", params={"pipeline": "never"}).json()["runs"]] == ["never"]
    assert api.post("/api/workflows/nightly/run-now", json={"jobs": ["copy"]}).status_code == 404
    assert api.post("/api/workflows/nothing/run-now").status_code == 404


@pytest.mark.usefixtures("history")
def test_runs_are_repeated_and_restarted_and_pipelines_paused_and_resumed(api: TestClient) -> None:
    log, key = open_run_log(), key_of(api, "broken")
    assert api.post(f"/api/runs/{key}/rerun").json()["new_run_id"].startswith("act-")
    assert api.post(f"/api/runs/{key}/restart", json={"from_step": "plan"}).json()["new_run_id"].startswith("act-")
    assert api.post(f"/api/runs/{key}/pause").json() == {"status": "pause_requested"}
    state = log.find(PipelineState, "broken")
    assert state is not None
    assert state.paused
    assert api.get(f"/api/runs/{key}").json()["actions"]["resume"]
    assert api.post(f"/api/runs/{key}/resume").json() == {"status": "resume_requested"}
    assert api.post(f"/api/runs/{key}/cancel").status_code == 409
    assert api.post("/api/runs/unknown/rerun").status_code == 404
    kinds = [action["kind"] for action in api.get("/api/actions").json()["actions"]]
    assert sorted(kinds) == ["pause", "rerun", "restart", "resume"]
    assert all(action["asked_by"] for action in api.get("/api/actions").json()["actions"])


@pytest.mark.usefixtures("history")
def test_a_backfill_runs_the_slots_of_an_interval_in_the_background(api: TestClient) -> None:
    body = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T00:10:00Z"}
    started = api.post("/api/pipelines/copy/backfill", json=body)
    assert (started.status_code, started.json()["slots"]) == (202, 2)
    deadline = datetime.now(UTC) + timedelta(seconds=30)
    while (done := api.get("/api/backfills").json()["backfills"])[0]["state"] != "done":
        assert datetime.now(UTC) < deadline
    assert done[0]["pipeline"] == "copy"
    assert api.get("/api/runs", params={"pipeline": "copy"}).json()["total"] == 3
    assert api.post("/api/pipelines/count/backfill", json=body).status_code == 400


@pytest.mark.service
def test_a_run_log_in_postgres_has_the_same_pages(
    postgres_url: str, run: Callable[..., int], page: Callable[..., TestClient]
) -> None:
    assert run("run", "copy", "--run-log-url", postgres_url) == 0
    assert run("run", "broken", "--run-log-url", postgres_url) == 1
    log = from_url(postgres_url)
    log.record(RunRecord("old", "copy", "failed", "2020-01-01T00:00:00+00:00", "2020-01-01T00:00:01+00:00"))
    api = page(history=log)
    listed = api.get("/api/runs").json()
    assert [run["pipeline"] for run in listed["runs"]] == ["broken", "copy", "copy"]
    detail = api.get(f"/api/runs/{quote(listed['runs'][1]['key'])}").json()
    assert (detail["status"], len(detail["attempts"]), len(detail["steps"])) == ("succeeded", 1, 6)
    by_name = {one["name"]: one for one in api.get("/api/pipelines").json()["pipelines"]}
    assert by_name["copy"]["failure_rate_7d"] == 0.0
    assert [one["status"] for one in by_name["copy"]["recent_runs"]] == ["failed", "succeeded"]
    log.close()

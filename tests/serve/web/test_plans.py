"""Plans, rejects, quality and connections by the JSON API, over real SQLite tables."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from ematix_flow.declare.project import load_module

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest
    from starlette.testclient import TestClient

CHECKED = """
from ematix_flow import BigInt, Text, ematix

@ematix.table(schema="main", name="people")
class People:
    id: BigInt
    name: Text | None

@ematix.pipeline(target=People, target_connection="lite", mode="append", on_bad_row="reject",
                 expectations=lambda t: t.column("name").not_null(severity="warn"), freshness_sla="1h")
def people(conn):
    return "SELECT '1' AS id, 'a' AS name UNION ALL SELECT 'x', '<script>alert(1)</script>' UNION ALL SELECT '2', NULL"
"""


def rows(sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect("lite.db")) as connection, connection:
        return connection.execute(sql).fetchall()


def test_a_plan_is_made_looked_at_and_applied_once(api: TestClient) -> None:
    planned = api.post("/api/plans", json={"pipeline": "copy"}).json()
    assert planned["status"] == "ready"
    assert rows("SELECT name FROM sqlite_master WHERE name = 'copies'") == []
    plan_id = planned["plan"]["plan_id"]
    shown = api.get(f"/api/plans/{plan_id}").json()
    assert shown["plan"]["targets"]["main.copies"]["rows"]["rows_inserted"] == 2
    assert [one["plan_id"] for one in api.get("/api/plans").json()["plans"]] == [plan_id]
    applied = api.post(f"/api/plans/{plan_id}/apply").json()
    assert applied["result"]["rows_inserted"] == 2
    assert rows("SELECT count(*) FROM copies") == [(2,)]
    again = api.post(f"/api/plans/{plan_id}/apply")
    assert again.json()["result"]["recovered"]
    assert api.get("/api/plans/p-00000000").status_code == 404
    assert api.post("/api/plans", json={"pipeline": "nothing"}).status_code == 404
    broken = api.post("/api/plans", json={"pipeline": "broken"})
    assert (broken.status_code, "nowhere" in broken.json()["detail"]) == (400, True)


def test_a_plan_whose_target_changed_is_refused(api: TestClient, run: Callable[..., int]) -> None:
    assert run("run", "copy") == 0
    plan_id = api.post("/api/plans", json={"pipeline": "copy"}).json()["plan"]["plan_id"]
    rows("DELETE FROM copies WHERE id = 1")
    refused = api.post(f"/api/plans/{plan_id}/apply")
    assert (refused.status_code, refused.json()["type"]) == (409, "StalePlanError")
    assert rows("SELECT count(*) FROM copies") == [(1,)]


def test_rejects_quality_and_freshness_are_those_of_the_loads(
    project: Path, run: Callable[..., int], page: Callable[..., TestClient], capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "checked.py").write_text(CHECKED, encoding="utf-8")
    load_module("checked")
    assert run("run", "people") == 0
    api = page()
    (reject,) = api.get("/api/rejects", params={"pipeline": "people"}).json()["rejects"]
    assert reject["row"]["id"] == "x"
    (measured,) = api.get("/api/quality").json()["quality_runs"]
    assert (measured["pipeline"], measured["checks"][0]["failed_rows"]) == ("people", 1)
    (freshness,) = api.get("/api/freshness").json()["freshness"]
    assert freshness["state"] == "healthy"
    assert api.get("/api/rejects", params={"pipeline": "nothing"}).status_code == 404


def test_connections_are_listed_without_secrets_and_checked(api: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMATIX_FLOW_DSN_WAREHOUSE", "postgres://me:h1dden-c4nary@127.0.0.1:1/db")
    listed = api.get("/api/connections")
    assert {one["name"] for one in listed.json()["connections"]} >= {"lite"}
    assert api.post("/api/connections/lite/check").json()["status"] == "ok"
    failed = api.post("/api/connections/warehouse/check")
    assert failed.json()["status"] == "fail"
    assert "h1dden-c4nary" not in listed.text + failed.text
    assert api.post("/api/connections/nothing/check").status_code == 404


def test_the_engine_page_shows_this_machine(api: TestClient) -> None:
    machine = api.get("/api/engine").json()["machine"]
    assert {one["name"] for one in machine} >= {"python", "java", "run log", "scheduler"}

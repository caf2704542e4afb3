"""The SQL lab by the JSON API: what may be queried, what may not, limits, and what people save."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.engine.query import plain_value
from ematix_flow.serve.web.answers import PlainJSON
from ematix_flow.serve.web.limits import RateLimit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from starlette.testclient import TestClient

FORBIDDEN = (
    "DELETE FROM copies", "SELECT 1; DROP TABLE copies", "WITH x AS (DELETE FROM copies RETURNING *) SELECT * FROM x",
    "SELECT * INTO other FROM copies", "SELECT * FROM '/etc/passwd'", 'SELECT * FROM "/etc/passwd"', "ATTACH 'x' AS y",
    "PRAGMA query_only = OFF", "SELECT load_extension('x')", "SELECT readfile('/etc/passwd')", "VACUUM",
    "SELECT * FROM read_csv('/etc/passwd')", "EXPLAIN DELETE FROM copies", "SELECT 1 /* ; */; SELECT 2", "not sql at all",
)  # fmt: skip


@pytest.fixture
def lab(project: Path, run: Callable[..., int], page: Callable[..., TestClient]) -> TestClient:
    """Return the page with the table of a pipeline that has run."""
    assert run("run", "copy") == 0
    return page(datasources={"lite": "lite", "file": f"sqlite:///{project}/lite.db"})


def post_query(api: TestClient, sql: str, **more: Any) -> Any:
    return api.post("/api/query", json={"datasource_id": "lite", "sql": sql, **more})


def test_a_query_returns_columns_rows_and_numbers(lab: TestClient) -> None:
    assert lab.get("/api/datasources").json() == {
        "datasources": [{"id": "lite", "dialect": "sqlite"}, {"id": "file", "dialect": "sqlite"}]
    }
    assert "main" in lab.get("/api/datasources/lite/schemas").json()["schemas"]
    tables = lab.get("/api/datasources/lite/schemas/main/tables").json()["tables"]
    assert {"name": "copies", "kind": "table"} in tables
    columns = lab.get("/api/datasources/lite/schemas/main/tables/copies/columns").json()["columns"]
    assert [one["name"] for one in columns][:2] == ["id", "name"]
    result = post_query(lab, "SELECT id, name FROM copies ORDER BY id -- all of them").json()
    assert [one["name"] for one in result["columns"]] == ["id", "name"]
    assert result["rows"] == [[1, "a"], [2, "b"]]
    assert {key: result["stats"][key] for key in ("row_count", "truncated", "cached")} == {
        "row_count": 2, "truncated": False, "cached": False,
    }  # fmt: skip
    short = post_query(lab, "SELECT id FROM copies ORDER BY id", max_rows=1).json()
    assert (short["rows"], short["stats"]["truncated"]) == ([[1]], True)
    assert post_query(lab, "EXPLAIN SELECT id FROM copies").json()["rows"]
    assert post_query(lab, "SELECT 1", datasource_id="nothing").status_code == 404
    assert post_query(lab, "SELECT 1", max_rows=100_001).status_code == 422


def test_what_does_more_than_read_is_refused(lab: TestClient) -> None:
    assert {sql: post_query(lab, sql).status_code for sql in FORBIDDEN} == dict.fromkeys(FORBIDDEN, 400)
    with closing(sqlite3.connect("lite.db")) as connection:
        assert connection.execute("SELECT count(*) FROM copies").fetchone() == (2,)


@pytest.mark.slow
def test_a_query_that_takes_too_long_is_stopped(
    page: Callable[..., TestClient], run: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("run", "copy") == 0
    monkeypatch.setenv("EMATIX_FLOW_QUERY_TIMEOUT_S", "0.5")
    api, began = page(datasources={"lite": "lite"}), time.monotonic()
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    assert post_query(api, endless).status_code == 504
    assert time.monotonic() - began < 10


def test_results_are_cached_as_long_as_the_environment_says(
    page: Callable[..., TestClient], run: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("run", "copy") == 0
    monkeypatch.setenv("EMATIX_FLOW_CACHE_TTL_S", "60")
    api = page(datasources={"lite": "lite"})
    cached = [post_query(api, "SELECT count(*) AS n FROM copies").json()["stats"]["cached"] for _ in range(2)]
    assert cached == [False, True]
    assert api.post("/api/cache/clear").json() == {"cleared": 1}
    assert not post_query(api, "SELECT count(*) AS n FROM copies").json()["stats"]["cached"]


def test_a_query_in_the_background_waits_to_be_read(lab: TestClient) -> None:
    started = lab.post("/api/query/async", json={"datasource_id": "lite", "sql": "SELECT count(*) AS n FROM copies"})
    assert started.status_code == 202
    address = f"/api/query/jobs/{started.json()['job_id']}"
    deadline = time.monotonic() + 20
    while (job := lab.get(address).json())["status"] in ("pending", "running"):
        assert time.monotonic() < deadline
    assert (job["status"], job["result"]["rows"]) == ("done", [[2]])
    assert lab.get("/api/query/jobs/nothing").status_code == 404


def test_too_many_queries_in_the_background_are_refused(
    page: Callable[..., TestClient], run: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("run", "copy") == 0
    monkeypatch.setenv("EMATIX_FLOW_MAX_ASYNC_QUERIES", "1")
    monkeypatch.setenv("EMATIX_FLOW_MAX_ASYNC_JOBS", "2")
    monkeypatch.setenv("EMATIX_FLOW_QUERY_TIMEOUT_S", "2")
    api = page(datasources={"lite": "lite"})
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    body = {"datasource_id": "lite", "sql": endless}
    codes = [api.post("/api/query/async", json=body).status_code for _ in range(3)]
    assert codes == [202, 202, 429]


def test_queries_charts_dashboards_and_alerts_are_saved(lab: TestClient) -> None:
    query = {"name": "many", "datasource_id": "lite", "sql": "SELECT count(*) AS n FROM copies"}
    saved = lab.post("/api/saved-queries", json=query)
    assert saved.status_code == 201
    assert {"id", "owner", "created_at", "updated_at"} <= set(saved.json())
    chart = lab.post("/api/charts", json={"name": "bars", "query_id": saved.json()["id"], "y": "n"}).json()
    dashboard = lab.post("/api/dashboards", json={"name": "all", "charts": [chart["id"]]}).json()
    shown = lab.post(f"/api/dashboards/{dashboard['id']}/query").json()
    assert [one["rows"] for one in shown["charts"]] == [[[2]]]
    assert lab.post(f"/api/charts/{chart['id']}/query").json()["rows"] == [[2]]
    alert = {"name": "few", "query_id": saved.json()["id"], "column": "n", "op": "<", "threshold": 5}
    alert_id = lab.post("/api/alerts", json=alert).json()["id"]
    checked = lab.post(f"/api/alerts/{alert_id}/check").json()
    assert (checked["triggered"], checked["value"]) == (True, 2)
    changed = lab.put(f"/api/alerts/{alert_id}", json={**alert, "threshold": 1}).json()
    assert (changed["threshold"], lab.post(f"/api/alerts/{alert_id}/check").json()["triggered"]) == (1, False)
    assert lab.delete(f"/api/alerts/{alert_id}").json() == {"removed": alert_id}
    assert lab.get(f"/api/alerts/{alert_id}").status_code == 404
    assert lab.get("/api/alerts").json() == {"alerts": []}
    done = [(one["kind"], one["pipeline"], one["note"]) for one in lab.get("/api/actions").json()["actions"]]
    assert sorted(done) == [
        ("change", "few", "alert"), ("remove", "few", "alert"), ("save", "all", "dashboard"), ("save", "bars", "chart"),
        ("save", "few", "alert"), ("save", "many", "query"),
    ]  # fmt: skip
    assert lab.post("/api/charts", json={"name": "x", "query_id": "nothing"}).status_code == 404
    assert lab.post("/api/saved-queries", json={**query, "datasource_id": "no"}).status_code == 404
    assert lab.post("/api/saved-queries", json={"name": "x", "surprise": 1}).status_code == 422


def test_the_page_has_forms_for_what_is_saved_where_it_may_be_changed(
    lab: TestClient, page: Callable[..., TestClient]
) -> None:
    assert "New chart" not in lab.get("/sql").text  # there is no query yet
    query = {"name": "<b>many", "datasource_id": "lite", "sql": "SELECT '<img src=x>' AS a, count(*) AS n FROM copies"}
    saved = lab.post("/api/saved-queries", json=query).json()["id"]
    chart = lab.post("/api/charts", json={"name": "bars", "query_id": saved}).json()["id"]
    dashboard = lab.post("/api/dashboards", json={"name": "all", "charts": [chart]}).json()["id"]
    lab.post("/api/alerts", json={"name": "few", "query_id": saved, "column": "n", "op": "<", "threshold": 5})
    text = lab.get("/sql").text
    forms = ("query-form", "chart-form", "dashboard-form", "alert-form")
    assert all(f'id="{form}"' in text for form in forms)
    assert text.count("data-delete=") == 4
    assert not any(raw in text + lab.get(f"/dashboards/{dashboard}").text for raw in ("<b>many", "<img src"))
    lab.delete(f"/api/saved-queries/{saved}")
    assert "a query that is gone" in lab.get("/sql").text
    assert "there is no saved query" in lab.get(f"/dashboards/{dashboard}").text
    page_text = page(datasources={"lite": "lite"}, read_only=True).get("/sql").text
    assert not any(form in page_text for form in (*forms, "data-delete", "data-show", "/check"))


@pytest.mark.service
def test_postgres_is_queried_in_a_read_only_transaction_within_its_time(
    postgres_url: str, page: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMATIX_FLOW_QUERY_TIMEOUT_S", "1")
    api = page(datasources={"lite": postgres_url})
    assert post_query(api, "SELECT g AS n FROM generate_series(1, 3) AS g").json()["rows"] == [[1], [2], [3]]
    assert post_query(api, "SELECT current_user").status_code == 200
    sleepy = "SELECT count(*) FROM generate_series(1, 100000) AS a, generate_series(1, 100000) AS b"
    assert post_query(api, sleepy).status_code in (400, 504)
    for sql in ("SELECT pg_sleep(10)", "SELECT pg_read_file('/etc/passwd')", "SELECT * FROM pg_ls_dir('.')"):
        assert post_query(api, sql).status_code == 400
    wrong = post_query(api, "SELECT nothing FROM nowhere")
    assert (wrong.status_code, postgres_url in wrong.text) == (400, False)


def test_a_dashboard_that_is_opened_counts_as_a_query(lab: TestClient) -> None:
    key = lab.post("/api/dashboards", json={"name": "all", "charts": []}).json()["id"]
    app: Any = lab.app
    app.state.flow.query_limit = RateLimit(2, 60.0)
    assert [lab.get(f"/dashboards/{key}").status_code for _ in range(3)] == [200, 200, 429]
    assert post_query(lab, "SELECT 1").status_code == 429


def refuse_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def test_responses_are_json_whatever_numbers_they_have() -> None:
    content = {"a": [float("nan"), -float("inf"), 1.5, 2], "b": {"c": (float("inf"), True, None)}}
    text = PlainJSON(content).body.decode()
    assert json.loads(text, parse_constant=refuse_constant) == {
        "a": ["nan", "-inf", 1.5, 2],
        "b": {"c": ["inf", True, None]},
    }


def test_numbers_that_a_browser_would_round_are_texts(lab: TestClient) -> None:
    largest = 2**53 - 1
    numbers = post_query(
        lab, f"SELECT {largest} AS a, {largest + 1} AS b, -{largest} AS c, -{largest + 2} AS d, 9e999 AS e"
    ).json()
    assert numbers["rows"] == [[largest, str(largest + 1), -largest, str(-largest - 2), "inf"]]
    assert [plain_value(one) for one in (True, {"a": [2**53]}, 2**63 - 1)] == [
        True,
        {"a": [str(2**53)]},
        str(2**63 - 1),
    ]


def test_the_threshold_of_an_alert_is_a_number(lab: TestClient) -> None:
    query = {"name": "many", "datasource_id": "lite", "sql": f"SELECT {2**53 + 1} AS n"}
    saved = lab.post("/api/saved-queries", json=query).json()["id"]
    alert = {"name": "few", "query_id": saved, "column": "n", "op": ">"}
    for wrong in ('"nan"', "NaN", "Infinity", '"-inf"', "1e999"):
        body = json.dumps(alert)[:-1] + f', "threshold": {wrong}}}'
        refused = lab.post("/api/alerts", content=body, headers={"Content-Type": "application/json"})
        json.loads(refused.text, parse_constant=refuse_constant)
        assert refused.status_code == 422
    key = lab.post("/api/alerts", json={**alert, "threshold": 1}).json()["id"]
    assert lab.post(f"/api/alerts/{key}/check").json()["triggered"] is True

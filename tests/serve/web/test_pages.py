"""The pages: every one renders over an empty and a real history, escapes what comes from data, and needs its login."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from ematix_flow.commit.runlog.open import open_run_log
from ematix_flow.declare.project import load_module
from ematix_flow.records import RunRecord
from ematix_flow.serve.web.pages.render import FOLDER, PAGES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from starlette.testclient import TestClient

MORE = ("/pipelines/copy", "/pipelines/broken", "/workflows?name=nightly", "/runs?status=failed&page=2", "/api/docs")
CANARY = "<img src=x onerror=alert(1)><script>alert(2)</script>\"'>"
CANARIES = '''
from ematix_flow import Text, ematix

@ematix.connection
class lite2:
    kind = "sqlite"
    path = "lite.db"

@ematix.table(schema="main", name="bad")
class Bad:
    name: Text

@ematix.pipeline(target=Bad, target_connection="lite2", mode="append", name="<i>name</i>")
def canary(conn):
    raise ValueError("""{canary}""")
'''


def test_every_page_renders_without_a_history_and_with_one(api: TestClient, run: Callable[..., int]) -> None:
    for name in ("", "copy", "broken"):
        assert not name or run("run", name) in (0, 1)
        for path in (*(path for path, _ in PAGES), *MORE):
            page = api.get(path)
            assert (page.status_code, "<h1>" in page.text) == (200, True), page.text
            assert page.headers["content-type"].startswith("text/html")


def test_an_empty_history_says_how_to_fill_it(api: TestClient) -> None:
    assert "flow run NAME" in api.get("/").text
    assert "flow run NAME" in api.get("/runs").text
    assert "flow run never" in api.get("/pipelines/never").text


@pytest.mark.usefixtures("history")
def test_a_failed_run_shows_its_error_its_step_its_log_and_what_can_be_done(api: TestClient, project: Path) -> None:
    (run,) = api.get("/api/runs", params={"pipeline": "broken"}).json()["runs"]
    page = api.get(f"/runs/{quote(run['key'], safe='')}").text
    assert "no such table: nowhere" in page
    assert f"{project / 'flows.py'}:" in page
    assert "Restart from plan" in page
    assert "Traceback" in page
    assert "<svg" in page
    assert api.get("/runs/unknown").status_code == 404
    assert "<h1>404</h1>" in api.get("/runs/unknown").text
    assert "<h1>404</h1>" in api.get("/nothing").text


def test_what_comes_from_data_is_escaped_everywhere(
    project: Path, run: Callable[..., int], page: Callable[..., TestClient]
) -> None:
    (project / "canaries.py").write_text(CANARIES.replace("{canary}", CANARY), encoding="utf-8")
    load_module("canaries")
    assert run("run", "<i>name</i>") == 1
    log = open_run_log()
    at = "2026-01-01T00:00:00+00:00"
    steps = {"steps": [{"step": CANARY, "started_at": at, "seconds": 1}], "quality": {"outcome": CANARY, "checks": []}}
    log.record(RunRecord(CANARY, CANARY, CANARY, at, at, error_summary=CANARY, target=CANARY, extras=steps))
    api = page()
    (failed,) = api.get("/api/runs", params={"pipeline": "<i>name</i>"}).json()["runs"]
    shown = 0
    for path in (
        *(path for path, _ in PAGES), "/pipelines/" + quote("<i>name</i>", safe=""), "/runs/" + quote(CANARY, safe=""),
        "/runs/" + quote(failed["key"], safe=""), "/runs?pipeline=" + quote(CANARY), "/runs/" + quote("<b>no run"),
        "/login?next=" + quote(CANARY),
    ):  # fmt: skip
        text = api.get(path).text
        shown += "onerror=alert" in text
        for raw in ("<img src=x", "<script>alert", "<i>name", "<b>no run"):
            assert raw not in text, (path, raw)
    assert shown > 4


def test_pages_have_no_script_and_no_style_of_their_own_and_no_other_host() -> None:
    for file in (*(FOLDER / "templates").iterdir(), *(FOLDER / "static").iterdir()):
        text = file.read_text("utf-8")
        assert not re.search(r"\son\w+=|\sstyle=|<style|javascript:|\beval\(|innerHTML =", text), file
        hosts = set(re.findall(r"https?://([\w.-]+)", text))
        assert hosts <= {"www.w3.org"}, file
        assert "|safe" not in text, file
        for script in re.findall(r"<script[^>]*>", text):
            assert 'src="/static/' in script, file


def test_a_browser_logs_in_with_the_token_and_out_again(page: Callable[..., TestClient]) -> None:
    api = page(bearer_token="s3cr3t-t0ken")
    away = api.get("/pipelines")
    assert (away.status_code, away.headers["location"]) == (303, "/login?next=/pipelines")
    assert api.get("/static/flow.css").status_code == 200
    assert api.post("/login", data={"token": "wrong"}).status_code == 401
    logged_in = api.post("/login", data={"token": "s3cr3t-t0ken", "next": "/pipelines"})
    assert (logged_in.status_code, logged_in.headers["location"]) == (303, "/pipelines")
    cookie = logged_in.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "s3cr3t" not in cookie
    assert api.get("/pipelines").status_code == 200
    assert api.post("/api/jobs/never/run-now").status_code == 403  # a cookie without the origin of the request
    own = {"Origin": "http://localhost"}
    assert api.post("/api/jobs/never/run-now", headers=own).status_code == 200
    assert api.post("/logout", headers=own).status_code == 303
    assert api.get("/pipelines").status_code == 303


@pytest.mark.parametrize(
    "target", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)"]
)
def test_a_login_leads_to_no_other_site(page: Callable[..., TestClient], target: str) -> None:
    api = page(bearer_token="s3cr3t-t0ken")
    done = api.post("/login", data={"token": "s3cr3t-t0ken", "next": target})
    assert done.headers["location"] == "/"


def test_logins_are_not_tried_for_ever(page: Callable[..., TestClient]) -> None:
    api = page(bearer_token="s3cr3t-t0ken")
    codes = [api.post("/login", data={"token": "wrong"}).status_code for _ in range(11)]
    assert codes == [401] * 10 + [429]
    assert api.post("/login", data={"token": "s3cr3t-t0ken"}).status_code == 429


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/../etc/passwd"]
)
def test_no_file_besides_the_assets_is_served(api: TestClient, path: str) -> None:
    assert api.get(path).status_code == 404


def test_a_viewer_sees_no_buttons_that_change_something(page: Callable[..., TestClient]) -> None:
    assert "data-post" in page().get("/pipelines/copy").text
    assert "data-post" not in page(read_only=True).get("/pipelines/copy").text


def test_own_pages_are_served_instead(project: Path, page: Callable[..., TestClient]) -> None:
    (project / "dist").mkdir()
    (project / "dist" / "index.html").write_text("mine")
    assert page(ui_dist_dir=project / "dist").get("/").text == "mine"

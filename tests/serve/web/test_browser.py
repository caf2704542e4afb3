"""The page in a real browser, over a live scheduler: actions that are clicked, both widths, both schemes, no barrier.

With FLOW_SCREENSHOTS=FOLDER the pictures of the documents are written there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.services.emulators import axe_script
from tests.services.programs import chromium

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.service, pytest.mark.slow, pytest.mark.xdist_group("browser")]

SRC = str(Path(__file__).parents[3] / "src")
SIZES = {"wide": (1280, 900), "narrow": (390, 844)}
SCHEMES = ("light", "dark")
PICTURES = {("overview", "wide", "light"), ("workflows", "wide", "light"), ("run", "narrow", "dark")}
"""What the documents show."""
WAIT = 60_000


@contextmanager
def command(*arguments: str, failpoints: str = "") -> Iterator[subprocess.Popen[str]]:
    """Run a command of the project in the background until the block ends."""
    environment = {**os.environ, "PYTHONPATH": SRC, "NO_COLOR": "1", "FLOW_FAILPOINTS": failpoints}
    with Path(f"{arguments[0]}.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "ematix_flow", *arguments], env=environment, stdout=log, stderr=log, text=True
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(30)


def address_of(process: subprocess.Popen[str]) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if match := re.search(r"http://\S+", Path("web.log").read_text()):
            return match[0]
        time.sleep(0.1)
    raise AssertionError(Path("web.log").read_text())


@pytest.fixture
def browser() -> Iterator[Browser]:
    """Return the browser of the system."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=str(chromium()), args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def address(history: None) -> Iterator[str]:
    """Return the address of a page over a history, with a live scheduler behind it."""
    with (
        command("scheduler", "-m", "flows", "--poll-interval", "0.5"),
        command("web", "-m", "flows", "--port", "0", "--datasource", "lite") as web,
    ):
        yield address_of(web)


def opened(browser: Browser, url: str, size: str = "wide", scheme: str = "light") -> Page:
    """Return a page that fails the test when its script does."""
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.set_default_timeout(WAIT)
    page.on("pageerror", lambda error: pytest.fail(f"{url}: {error}"))
    page.on("console", lambda line: pytest.fail(line.text) if "Content Security Policy" in line.text else None)
    page.on("request", lambda request: pytest.fail(request.url) if not request.url.startswith(origin(url)) else None)
    page.goto(url)
    return page


def origin(url: str) -> str:
    return re.match(r"https?://[^/]+", url)[0]  # type: ignore[index]


def click(page: Page, label: str) -> None:
    """Click a button and agree to what it asks back."""
    page.get_by_role("button", name=label, exact=True).first.click()
    page.get_by_role("button", name="Do it").click()


def test_a_run_that_is_clicked_is_done_and_seen_without_a_reload(browser: Browser, address: str) -> None:
    page = opened(browser, f"{address}pipelines/never")
    click(page, "Run now")
    expect(page.locator("#toast")).to_contain_text("requested: act-")
    requested = page.locator("#toast").inner_text().removeprefix("requested: ")
    page.goto(f"{address}runs/{requested}")
    expect(page.locator("#run .badge").first).to_have_text("succeeded", timeout=WAIT)
    expect(page.locator("svg.timeline")).to_be_visible()
    page.goto(f"{address}runs?pipeline=never")
    page.locator("tbody a code").first.click()
    expect(page.locator("#log")).to_be_attached()


@pytest.mark.deep
@pytest.mark.usefixtures("moving")
def test_a_run_shows_how_far_it_is_without_a_reload(browser: Browser) -> None:
    with command("web", "-m", "flows", "-m", "moving", "--port", "0") as web:
        address = address_of(web)
        with command("run", "moved", "-m", "moving", failpoints="stage.before_task_commit=sleep:12"):
            page = opened(browser, address)
            page.locator("tbody a code").first.click()  # the overview renews itself when the run begins
            expect(page.locator("#run")).to_contain_text("stage: 3,000 rows so far", timeout=WAIT)
            expect(page.locator("svg.timeline rect.s-running")).to_be_visible()
            expect(page.locator("#run .badge").first).to_have_text("succeeded", timeout=WAIT)
            expect(page.locator("svg.timeline rect.s-succeeded")).to_have_count(6)


@pytest.mark.deep
def test_every_action_is_clicked(browser: Browser, address: str) -> None:
    page = opened(browser, f"{address}pipelines/copy")
    click(page, "Pause")
    expect(page.locator("#state .badge").first).to_have_text("paused")
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_visible()
    click(page, "Run with what depends on it")
    page.goto(f"{address}runs?pipeline=broken")
    page.locator("tbody a code").first.click()
    click(page, "Rerun")
    expect(page.locator("#toast")).to_contain_text("requested")
    click(page, "Restart from plan")
    expect(page.locator("#toast")).to_contain_text("requested")
    page.goto(f"{address}actions")
    for kind in ("pause", "resume", "run", "rerun", "restart"):
        expect(page.locator("tbody tr td:nth-child(3)").get_by_text(kind, exact=True).first).to_be_visible()


@pytest.mark.deep
def test_a_workflow_is_restarted_from_a_job(browser: Browser, address: str) -> None:
    page = opened(browser, f"{address}workflows")  # whose trigger has come true, so that the scheduler sets it off
    page.get_by_role("link", name="last run").click()
    expect(page.locator("#run .badge").first).to_have_text("succeeded", timeout=WAIT)
    assert barriers_of(page, "workflow run") == []
    click(page, "Restart from never")
    expect(page.locator("#toast")).to_contain_text("requested: workflow:nightly@")
    started = page.locator("#toast").inner_text().removeprefix("requested: ")
    page.goto(f"{address}runs/{started}")
    expect(page.locator("#run .badge").first).to_have_text("succeeded", timeout=WAIT)
    page.goto(f"{address}runs?pipeline=never")
    expect(page.locator("tbody tr")).to_have_count(2)


@pytest.mark.deep
def test_plans_and_backfills_are_made_and_every_action_is_written_down(browser: Browser, address: str) -> None:
    page = opened(browser, f"{address}plans?pipeline=copy")
    expect(page.locator("select[name=pipeline]")).to_have_value("copy")
    page.get_by_role("button", name="Make a plan").click()
    expect(page.locator("h1")).to_contain_text("Plan p-")
    click(page, "Apply")
    expect(page.locator("h1")).to_have_text("Runs")
    page.goto(f"{address}backfills?pipeline=copy")
    page.locator("input[name=from]").fill("2026-01-01T00:00")
    page.locator("input[name=to]").fill("2026-01-01T00:10")
    click(page, "Start")
    expect(page.locator("#backfills .badge").first).to_have_text("done", timeout=WAIT)
    page.goto(f"{address}connections")
    page.locator("tbody").get_by_role("button", name="Check").first.click()
    expect(page.locator("#toast")).to_contain_text("ok")
    page.goto(f"{address}workflows")
    click(page, "Run now")
    expect(page.locator("#toast")).to_be_visible()
    page.goto(f"{address}actions")
    for kind in ("run", "plan", "apply", "backfill", "check"):
        expect(page.locator("tbody tr td:nth-child(3)").get_by_text(kind, exact=True).first).to_be_visible()


@pytest.mark.deep
def test_the_sql_lab_shows_rows_as_text(browser: Browser, address: str) -> None:
    page = opened(browser, f"{address}sql")
    page.locator("textarea").fill(
        "SELECT id, '<img src=x onerror=alert(1)>' AS name FROM copies WHERE id < 3 ORDER BY id"
    )
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#query-result tbody tr")).to_have_count(2)
    assert page.locator("#query-result img").count() == 0
    page.locator("select[name=show]").select_option("bar")
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#query-chart svg rect")).to_have_count(2)
    page.locator("textarea").fill("DELETE FROM copies")
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#query-state")).to_contain_text("only SELECT")


@pytest.mark.deep
def test_queries_charts_dashboards_and_alerts_are_saved_changed_and_removed(browser: Browser, address: str) -> None:
    page = opened(browser, f"{address}sql")
    page.locator("textarea").fill("SELECT name, id FROM copies WHERE id < 3 ORDER BY id")
    saved(page, "Save the query above", "query", {"Name of the query": "names"})
    expect(page.locator("#saved-queries li")).to_contain_text("names")
    expect(page.locator("textarea")).not_to_have_value("")  # the page was not loaded again
    for name in ("one", "two"):
        saved(page, "New chart", "chart", {"Name of the chart": name, "Column across": "name", "Column upwards": "id"})
        expect(page.locator("#charts li").filter(has_text=name)).to_be_visible()
    page.get_by_role("button", name="two", exact=True).click()
    expect(page.locator("#query-chart svg rect")).to_have_count(2)
    page.get_by_role("button", name="Edit two").click()
    page.get_by_label("Drawn as").select_option("number")
    page.get_by_role("button", name="Save changes").click()
    expect(page.locator("#charts li").filter(has_text="number of names")).to_have_count(1)
    create_dashboard(page)
    page.goto(f"{address}sql")
    saved(page, "New alert", "alert", {"Name of the alert": "high", "Column of its first row": "id", "than or to": "0"})
    page.locator("#alerts").get_by_role("button", name="Check").click()
    expect(page.locator("#toast")).to_have_text("1: the alert is triggered")
    for label in ("Remove alert high", "Remove dashboard board", "Remove chart one", "Remove chart two"):
        click(page, label)
        expect(page.get_by_role("button", name=label)).to_have_count(0)
    click(page, "Remove query names")
    expect(page.locator("#saved li")).to_have_count(0)
    page.goto(f"{address}actions")
    for kind in ("save", "change", "remove"):
        expect(page.locator("tbody tr td:nth-child(3)").get_by_text(kind, exact=True).first).to_be_visible()


def create_dashboard(page: Page) -> None:
    """Make a dashboard of two charts and look at it."""
    page.get_by_text("New dashboard").click()
    page.get_by_label("Chart 1").select_option("two")
    page.get_by_label("Chart 2").select_option("one")
    expect(page.get_by_label("Chart 3")).to_be_visible()
    assert barriers_of(page, "sql") == []
    page.get_by_label("Name of the dashboard").fill("board")
    page.locator("#dashboard-form").get_by_role("button", name="Save").click()
    page.get_by_role("link", name="board").click()
    expect(page.locator("h2")).to_have_text(["two", "one"])
    expect(page.locator("[data-chart=number]")).to_have_text("1")
    expect(page.locator("[data-chart=bar] svg rect")).to_have_count(2)
    assert barriers_of(page, "dashboard") == []


def saved(page: Page, summary: str, form: str, values: dict[str, str]) -> None:
    """Open a form, fill it in and save."""
    page.get_by_text(summary).click()
    for label, value in values.items():
        page.get_by_label(label).fill(value)
    page.locator(f"#{form}-form").get_by_role("button", name="Save").click()
    expect(page.locator("#toast")).to_contain_text("saved: ")


def barriers_of(page: Page, name: str) -> list[object]:
    """Return what keeps people from using a page, as axe-core finds it."""
    page.evaluate(axe_script().read_text("utf-8"))
    result = page.evaluate("axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa']})")
    return [
        (name, one["id"], [(node["html"], node["failureSummary"]) for node in one["nodes"]][:3])
        for one in result["violations"]
        if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.deep
def test_tables_sort_and_filter_by_keyboard(browser: Browser, address: str) -> None:
    page = opened(browser, f"{address}pipelines")
    names = page.locator("#pipelines-table tbody tr td:first-child")
    assert names.all_inner_texts() == ["broken", "copy", "count", "never"]
    heading = page.get_by_role("button", name="Name")
    for _ in range(2):
        heading.focus()
        page.keyboard.press("Enter")
    assert names.all_inner_texts() == ["never", "count", "copy", "broken"]
    page.get_by_label("Filter").fill("cop")
    expect(names.filter(visible=True)).to_have_text(["copy"])


@pytest.mark.deep
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("size", SIZES)
def test_every_page_fits_and_can_be_used_by_everybody(browser: Browser, address: str, size: str, scheme: str) -> None:
    page = opened(browser, address, size, scheme)
    run = page.locator("tbody a code").first.locator("..").get_attribute("href")
    paths = {"overview": "", "pipelines": "pipelines", "pipeline": "pipelines/copy", "runs": "runs", "run": f"{run}"[1:],
             "workflows": "workflows", "streams": "streams", "plans": "plans", "quality": "quality",
             "backfills": "backfills", "connections": "connections", "sql": "sql", "engine": "engine",
             "actions": "actions", "docs": "api/docs"}  # fmt: skip
    barriers: list[object] = []
    for name, path in paths.items():
        page.goto(f"{address}{path}")
        assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0], name
        barriers += barriers_of(page, name)
        if os.environ.get("FLOW_SCREENSHOTS") and (name, size, scheme) in PICTURES:
            page.screenshot(path=Path(os.environ["FLOW_SCREENSHOTS"]) / f"web-{name}.png")
    assert barriers == []


@pytest.mark.deep
@pytest.mark.usefixtures("history")
def test_a_browser_logs_in(browser: Browser, run: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMATIX_FLOW_WEB_TOKEN", "s3cr3t-t0ken")
    with command("web", "-m", "flows", "--port", "0") as web:
        page = opened(browser, f"{address_of(web)}runs")
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_have_text("this is not the token")
        page.get_by_label("Token").fill("s3cr3t-t0ken")
        page.get_by_role("button", name="Log in").click()
        expect(page.locator("h1")).to_have_text("Runs")
        expect(page.locator("#live-state")).to_have_text("live")
        assert "s3cr3t" not in page.url
        page.get_by_role("button", name="Log out").click()
        expect(page.locator("h1")).to_have_text("Log in")

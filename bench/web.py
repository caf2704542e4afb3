"""Measures how soon pages of `flow web` can be used in Chromium over a long history: `python bench/web.py`.

The run log is an SQLite file with 1,000 pipelines and 1,000,000 runs of a week. A page can be used when its content is
painted and its script has run. `--pipelines` and `--runs` choose other sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from playwright.sync_api import sync_playwright

from ematix_flow.commit.runlog.open import open_run_log
from ematix_flow.commit.runlog.project_keys import scoped, scoped_record
from ematix_flow.commit.runlog.records import columns_of, values_of
from ematix_flow.engine.report.pipelines import RECENT
from ematix_flow.plan.schedule.cron import slot_text
from ematix_flow.plan.schedule.retry import begun, failed, succeeded
from ematix_flow.records import PipelineState
from tests.services.programs import chromium

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 10
WEEK = timedelta(days=7)
BAD = 7
"""The run of each fifty that failed."""
FLOWS = """
from ematix_flow import pipeline

for number in range({count}):
    upstream = [f"p{{number - 1}}"] if number % 10 else None
    schedule = f"{{number % 60}} * * * *"
    pipeline.register(name=f"p{{number}}", schedule=schedule, depends_on=upstream)(lambda: None)
"""
PAGES = {"first page": "", "pipelines": "pipelines", "runs": "runs", "runs that failed": "runs?status=failed",
         "one pipeline": "pipelines/p7", "workflows": "workflows"}  # fmt: skip
ROUTES = ("api/pipelines", "api/runs", "api/runs?status=failed", "api/pipelines/p7")
PAINTED = """() => performance.getEntriesByName("first-contentful-paint").length"""
USABLE = """() => Math.max(
  performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd,
  performance.getEntriesByName("first-contentful-paint")[0].startTime)"""


def filled(path: Path, count: int, runs: int) -> None:
    """Write a history: every pipeline ran each hour of the last week, and one run of fifty failed."""
    log = open_run_log(str(path))
    project, digest, now = log.project.name, log.project.digest, datetime.now(UTC)
    log.close()
    steps = json.dumps({"steps": [{"step": "stage", "started_at": now.isoformat(), "seconds": 1.5}], "mode": "merge"})

    def rows() -> Iterator[tuple[object, ...]]:
        for number in range(runs):
            began = now - WEEK * number / runs
            bad = number % 50 == BAD
            yield (
                scoped(f"r{number:07d}", digest), f"p{number % count}", "failed" if bad else "succeeded",
                began.isoformat(), (began + timedelta(seconds=2)).isoformat(), "broken" if bad else None,
                None if bad else number % 1000, f"main.t{number % count}", scoped(f"q{number}", digest), steps, project,
            )  # fmt: skip

    states = [_state(number, count, now) for number in range(count)]
    names = [name for name, _ in columns_of(PipelineState)]
    columns = (
        "run_id, pipeline, status, started_at, finished_at, error_summary, rows_inserted, target, request_id, extras, "
        "project"
    )
    with closing(sqlite3.connect(path)) as file, file:
        file.executemany(
            f"INSERT INTO pipeline_state ({', '.join(names)}) VALUES ({', '.join('?' for _ in names)})",
            [values_of(scoped_record(state, digest)) for state in states],
        )
        file.executemany(f"INSERT INTO run_records ({columns}) VALUES ({', '.join('?' for _ in range(11))})", rows())


def _state(number: int, count: int, now: datetime) -> PipelineState:
    at = now - WEEK * number / max(count, 1) / 168
    state = begun(PipelineState(f"p{number}", version=1), slot_text(at), at)
    return failed(state, None, "broken", at) if number % 50 == BAD else succeeded(state, "", at)


@contextmanager
def served(path: Path) -> Iterator[tuple[str, int]]:
    """Run the page over the history and return its address and its process."""
    command = [sys.executable, "-m", "ematix_flow", "web", "-m", "many", "--run-log-path", str(path), "--port", "0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            address = next(match[0] for line in process.stderr or () if (match := re.search(r"http://\S+", line)))
            yield address, process.pid
        finally:
            process.terminate()


def usable(browser: Browser, address: str) -> tuple[float, int]:
    """Return the milliseconds until a page can be used, in a browser that has nothing of it yet, and its bytes."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    response = page.goto(address, timeout=120_000)
    if response is None or not response.ok:
        raise RuntimeError(f"{address} answered {response and response.status}")
    page.wait_for_function(PAINTED)
    took, size = float(page.evaluate(USABLE)), len(response.body())
    context.close()
    return took, size


def answers(address: str) -> Iterator[str]:
    """Return for routes of the API how soon they answer."""
    for route in ROUTES:
        took = []
        for _ in range(100):
            began = time.perf_counter()
            with urlopen(f"{address}{route}") as response:  # noqa: S310 - the page that was started here
                response.read()
            took.append(1000 * (time.perf_counter() - began))
        ordered = sorted(took)
        yield f"{route}: median {ordered[49]:.0f} ms, p95 {ordered[94]:.0f} ms of 100"


def log_alone(path: Path, count: int) -> str:
    """Return how long the run log itself takes for what `api/pipelines` asks of it."""
    log, names, took = open_run_log(str(path)), [f"p{number}" for number in range(count)], []
    for _ in range(20):
        began = time.perf_counter()
        log.all(PipelineState)
        log.newest_runs(names, RECENT)
        took.append(1000 * (time.perf_counter() - began))
    log.close()
    return f"the run log alone, for api/pipelines: median {statistics.median(took):.0f} ms, at most {max(took):.0f} ms of 20"


def watched(address: str, pid: int, viewers: int, seconds: int = 30) -> str:
    """Return what the server needs while so many viewers listen to its events."""
    before, began = _usage(pid), time.perf_counter()
    open_streams = [urlopen(f"{address}api/events") for _ in range(viewers)]  # noqa: S310
    time.sleep(seconds)
    after, took = _usage(pid), time.perf_counter() - began
    for stream in open_streams:
        stream.close()
    share = 100 * (after[0] - before[0]) / took
    return (
        f"{viewers} viewers for {took:.0f} s: {share:.1f} % of a core, {before[1]} MiB before and {after[1]} MiB then"
    )


def _usage(pid: int) -> tuple[float, int]:
    """Return the processor seconds and the MiB of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    pages = int(Path(f"/proc/{pid}/statm").read_text("utf-8").split()[1])
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE") >> 20


def main() -> int:
    """Print one line for each page, route and number of viewers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pipelines", type=int, default=1_000)
    parser.add_argument("--runs", type=int, default=1_000_000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        os.chdir(folder)
        Path("many.py").write_text(FLOWS.format(count=chosen.pipelines), encoding="utf-8")
        path = Path(folder) / "history.db"
        filled(path, chosen.pipelines, chosen.runs)
        browser = playwright.chromium.launch(executable_path=str(chromium()), args=["--no-sandbox"])
        with served(path) as (address, pid):
            for name, location in PAGES.items():
                first, size = usable(browser, f"{address}{location}")
                took = sorted(usable(browser, f"{address}{location}")[0] for _ in range(ROUNDS))
                sys.stdout.write(
                    f"{name}: first {first:.0f} ms, then {statistics.median(took):.0f} ms (median of {ROUNDS}, "
                    f"{took[0]:.0f} to {took[-1]:.0f}), {size / 1000:.0f} kB; load {os.getloadavg()[0]:.0f}\n"
                )
            browser.close()
            sys.stdout.writelines(f"{line}\n" for line in answers(address))
            sys.stdout.write(log_alone(path, chosen.pipelines) + "\n")
            for viewers in (0, 1, 200):
                sys.stdout.write(watched(address, pid, viewers) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

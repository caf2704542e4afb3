"""The documented ways to schedule, retry, remember, alert and measure, unchanged where no address has to differ."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ematix_flow import pipeline
from ematix_flow.declare.project import PROJECT
from ematix_flow.run_log import from_url
from ematix_flow.serve.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.examples.databases import UserDatabase

pytestmark = pytest.mark.slow

NOW = "2026-03-01T10:05:20Z"
MODULE = """
import urllib.request

from ematix_flow import pipeline


@pipeline.register(name="ingest", schedule="*/5 * * * *")
def ingest():
    return {"scraped": urllib.request.urlopen("http://127.0.0.1:9100/metrics").read().decode()} if SCRAPE else {}


@pipeline.register(
    name="mart",
    schedule="*/5 * * * *",
    depends_on=["ingest"],
    upstream_freshness_secs=3600,
    retry={"max_attempts": 5, "backoff_seconds": 30, "backoff_factor": 2.0},
)
def mart():
    if FAILS:
        raise ConnectionError("the mart is away")
    return {}
"""


@pytest.fixture
def flow(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Return the command, run in this process."""

    def run(*arguments: str) -> tuple[int, str, str]:
        PROJECT.clear()
        sys.modules.pop("my_pipelines", None)
        capsys.readouterr()
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Write the module of the documents into the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("my_pipelines", None)  # another test may have had one of this name

    def write(*, scrape: bool = False, fails: bool = False) -> None:
        content = MODULE.replace("SCRAPE", str(scrape)).replace("FAILS", str(fails))
        (tmp_path / "my_pipelines.py").write_text(content)

    yield write
    sys.modules.pop("my_pipelines", None)


@pytest.mark.service
def test_run_due_with_a_server_as_run_log_slack_and_prometheus(
    flow: Callable[..., Any], module: Callable[..., None], postgres: UserDatabase
) -> None:
    module(scrape=True)
    command = (
        "run-due", "--module", "my_pipelines",
        "--run-log", postgres.url,
        "--alerter", "slack://hooks.slack.com/services/T000/B000/XXXX",
        "--metrics", "prometheus://:9100",
        "--now", NOW,
    )  # fmt: skip
    code, out, err = flow(*command)
    assert code == 0, err
    ran = json.loads(out)["ran"]
    assert [one["_pipeline"] for one in ran] == ["ingest", "mart"]
    assert list(text_string_to_metric_families(ran[0]["scraped"])) is not None
    code, out, _ = flow(*command)
    assert (code, json.loads(out)) == (0, {"ran": [], "failed": [], "skipped": []}), (
        "the same window fires nothing twice"
    )
    assert postgres.rows("SELECT pipeline, last_slot FROM ematix_flow.pipeline_state ORDER BY 1") == [
        ("ingest", "2026-03-01T10:05:00Z"),
        ("mart", "2026-03-01T10:05:00Z"),
    ]
    code, out, _ = flow("runs", "list", "--run-log", postgres.url, "--format", "json")
    assert (code, json.loads(out)["total"]) == (0, 2)


def test_both_spellings_of_retries_wait_longer_each_time(flow: Callable[..., Any], module: Callable[..., None]) -> None:
    module(fails=True)
    now, reasons = datetime.fromisoformat(NOW), []
    for seconds in (0, 10, 31, 40, 100, 220, 500):
        at = (now + timedelta(seconds=seconds)).isoformat()
        _, out, err = flow("run-due", "--module", "my_pipelines", "--run-log", "sqlite://runs.db", "--now", at)
        reasons += [(seconds, one["reason"]) for one in json.loads(out)["skipped"]]
        reasons += [(seconds, one["attempt_count"]) for one in json.loads(out)["failed"]]
        assert "the mart is away" in err or "backoff" in err, (seconds, out, err)
    assert reasons == [
        (0, 1),
        (10, "retry backoff (attempt 1/5; next eligible at 2026-03-01T10:05:50Z)"),
        (31, 2),
        (40, "retry backoff (attempt 2/5; next eligible at 2026-03-01T10:06:51Z)"),
        (100, 3),
        (220, 4),
        (500, 1),
    ], "after the fourth failure the slot of 10:10 comes first, and begins afresh"


def test_what_is_due_runs_from_python_too(module: Callable[..., None]) -> None:
    module()
    import my_pipelines  # type: ignore[import-not-found]  # noqa: F401 - declares the pipelines

    log = from_url("memory://")
    now = datetime(2026, 3, 1, 10, 5, tzinfo=UTC)
    due = [name for name in pipeline.list_pipelines() if pipeline.is_due("*/5 * * * *", now, 60)]
    result = pipeline.run_due_with_dag_detailed(due, now=now, run_log=log)
    assert [event.name for event in result.fired] == ["ingest", "mart"]
    assert pipeline.run_due_with_dag(due, now=now, run_log=log) == []


@pytest.mark.filterwarnings("default")
def test_a_run_log_that_cannot_be_written_stops_nothing(flow: Callable[..., Any], module: Callable[..., None]) -> None:
    module()
    code, out, err = flow(
        "run-due", "--module", "my_pipelines", "--run-log", "postgres://flow:pw@127.0.0.1:1/flow_history", "--now", NOW
    )
    assert code == 0, err
    assert [one["_pipeline"] for one in json.loads(out)["ran"]] == ["ingest", "mart"]
    assert "warning" in err
    assert "flow:pw" not in err

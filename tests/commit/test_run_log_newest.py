"""The newest runs of many pipelines, counts of a week and the attempts at a request, in every kind of run log."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from ematix_flow.commit.runlog.open import from_url
from ematix_flow.records import RunRecord

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.commit.runlog.log import RunLog

NOW = datetime(2026, 3, 8, 12, tzinfo=UTC)


@pytest.fixture(params=["sqlite", "duckdb", "file", "postgres", "mysql"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> RunLog:
    """Return an empty run log of a kind."""
    match request.param:
        case "sqlite":
            return from_url(str(tmp_path / "log.db"))
        case "duckdb":
            return from_url(f"duckdb://{tmp_path / 'log.duckdb'}")
        case "file":
            (tmp_path / "folder").mkdir()
            return from_url(f"file://{tmp_path / 'folder'}")
    return from_url(request.getfixturevalue(f"{request.param}_url"))


def run(pipeline: str, number: int, status: str = "succeeded", attempt: int = 1) -> RunRecord:
    at = (NOW - timedelta(hours=number)).isoformat()
    return RunRecord(
        f"{pipeline}-{number}", pipeline, status, at, at, attempt, request_id=f"req-{pipeline}-{number}", target="t"
    )


@pytest.mark.service
def test_the_newest_runs_of_many_pipelines_are_read_at_once(log: RunLog) -> None:
    for number in range(5):
        log.record(run("a", number))
    log.record(run("b", 3, "failed"))
    log.record(run("b", 3, attempt=2))
    names = ["a", "b", *(f"other{number}" for number in range(120))]
    newest = log.newest_runs(names, 3)
    assert [one.run_id for one in newest["a"]] == ["a-0", "a-1", "a-2"]
    assert [(one.attempt, one.status) for one in newest["b"]] == [(2, "succeeded"), (1, "failed")]
    assert newest["other119"] == []
    assert [one.run_id for one in log.latest_runs(2)] == ["a-0", "a-1"]


@pytest.mark.service
def test_runs_are_counted_by_pipeline_and_status(log: RunLog) -> None:
    for number in range(4):
        log.record(run("a", number))
    log.record(run("a", 1000))
    log.record(run("b", 1, "failed"))
    assert log.count_outcomes(NOW - timedelta(days=7)) == {("a", "succeeded"): 4, ("b", "failed"): 1}


@pytest.mark.service
def test_the_attempts_at_a_request_are_listed_in_order(log: RunLog) -> None:
    log.record(run("a", 1, "failed"))
    log.record(run("a", 1, attempt=2))
    log.record(run("a", 2))
    assert [(one.run_id, one.attempt) for one in log.runs_of_request("req-a-1", "a")] == [("a-1", 1), ("a-1", 2)]
    assert log.runs_of_request("nothing", "a") == []

# ruff: noqa: TC001 - annotations are looked up in this module while the tests run
"""Loads whose run log goes away: the rows arrive, nothing is loaded twice, and the log hears of it when it is back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from ematix_flow import BigInt, ematix, pk
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine import Options, run_pipeline
from ematix_flow.run_log import SqliteRunLog
from tests.examples.databases import UserDatabase

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.run_log import RunLog


@ematix.table(schema="analytics")
class Items:
    item_id: Annotated[BigInt, pk()]


@pytest.fixture
def duck(duckdb_path: Path, monkeypatch: pytest.MonkeyPatch) -> UserDatabase:
    """Return a DuckDB file as the connection named `default`."""
    monkeypatch.setenv("EMATIX_FLOW_DSN", f"duckdb:///{duckdb_path}")
    database = UserDatabase(f"duckdb:///{duckdb_path}")
    database.run("CREATE TABLE src (item_id BIGINT)")
    database.run("INSERT INTO src VALUES (1)")
    return database


def goes() -> None:
    Path("log.db").rename("away.db")
    Path("log.db").mkdir()


def comes_back() -> None:
    Path("log.db").rmdir()
    Path("away.db").rename("log.db")


def loaded(log: RunLog, during: Callable[[], None]) -> Any:
    PROJECT.clear()

    @ematix.pipeline(target=Items, mode="append", name="load")
    def load(conn: Any) -> str:
        during()
        return "SELECT * FROM src"

    return run_pipeline(load.pipeline, Options(run_log=log))


@pytest.mark.slow
def test_a_log_that_goes_during_a_load_hears_of_it_later(duck: UserDatabase) -> None:
    log = SqliteRunLog("log.db")
    with pytest.warns(UserWarning, match="the run log lacks 2 entries about this run"):
        result = loaded(log, goes)
    assert result["rows_inserted"] == 1
    assert duck.rows("SELECT item_id FROM analytics.items") == [(1,)]
    comes_back()
    assert log.reconcile() == 0
    (run,), _ = log.list_runs()
    assert (run.pipeline, run.status, run.rows_inserted) == ("load", "succeeded", 1)
    assert not log.open_request("load", Options().clock.now()).resumed


@pytest.mark.slow
def test_a_request_whose_end_never_arrives_loads_nothing_twice(duck: UserDatabase) -> None:
    with pytest.warns(UserWarning, match="the run log lacks"):
        loaded(SqliteRunLog("log.db"), goes)
    comes_back()
    loaded(SqliteRunLog("log.db"), lambda: None)
    assert duck.rows("SELECT item_id FROM analytics.items") == [(1,)]


@pytest.mark.slow
def test_a_log_that_is_away_before_a_load_stops_nothing(duck: UserDatabase) -> None:
    log = SqliteRunLog("log.db")
    goes()
    with pytest.warns(UserWarning, match="not remembered and cannot be resumed"):
        assert loaded(log, lambda: None)["rows_inserted"] == 1
    comes_back()
    assert log.list_runs() == ([], 0)

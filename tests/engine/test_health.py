"""Public names of `flow doctor` and of the warehouses: they exist, and say what the engine says."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow import SQLiteConnection, register_connection
from ematix_flow.declare.pipeline.pipeline import Source
from ematix_flow.doctor import HealthReport, run_doctor
from ematix_flow.engine.doctor import machine_health
from ematix_flow.errors import MissingExtraError
from ematix_flow.plan.source import source_value
from ematix_flow.warehouses import BigQueryConnection, SnowflakeConnection

if TYPE_CHECKING:
    from pathlib import Path

WAREHOUSES: list[tuple[Any, Any]] = [
    (Source.snowflake_query, SnowflakeConnection("w", account="a", user="u", password="p")),
    (Source.bigquery_query, BigQueryConnection("w", project="p", dataset="d")),
]


def test_a_doctor_reports_on_every_registered_connection(tmp_path: Path) -> None:
    register_connection(SQLiteConnection("here", path=str(tmp_path / "x.db")))
    [report] = [report for report in run_doctor() if report.name == "here"]
    assert isinstance(report, HealthReport)
    assert (report.kind, report.status) == ("sqlite", "ok")
    assert not (tmp_path / "x.db").exists()


@pytest.mark.parametrize(("query", "connection"), WAREHOUSES)
def test_a_query_of_a_warehouse_is_a_source_that_names_what_it_needs(
    query: Any, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ematix_flow.engine.batch.source import attach

    for module in ("snowflake.connector", "google.cloud.bigquery"):
        monkeypatch.setitem(sys.modules, module, None)
    value = source_value(query(connection, "SELECT 1"), None, None, "")
    assert (value.sql, value.connection) == ("SELECT 1", connection)
    with pytest.raises(MissingExtraError, match=rf"ematix-flow-spark\[{connection.kind}\]"):
        attach(value, "w")
    register_connection(connection)
    [report] = [report for report in run_doctor() if report.name == "w"]
    assert (report.status, connection.kind in report.detail) == ("skip", True)


def test_the_run_log_is_told_with_the_project_whose_part_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def output() -> str:
        return next(report.detail for report in machine_health() if report.name == "run log")

    assert output().endswith("run_log.db")
    monkeypatch.setenv("EMATIX_FLOW_PROJECT", "shop")
    assert output().endswith("run_log.db, for project shop")

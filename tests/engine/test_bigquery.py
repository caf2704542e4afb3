"""Pipelines into and out of BigQuery, against a stand-in for it: the order of requests, and that no row comes twice."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.declare.connection.registry import BigQueryConnection
from ematix_flow.errors import MissingExtraError, RunError
from ematix_flow.warehouse_pipeline import FileWatermarkStore
from tests.engine.bigquery_project import Project
from tests.engine.warehouse_flows import copying, interrupted_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CONNECTION = BigQueryConnection("big", project="proj", dataset="shop", location="EU")
ORDERS = """CREATE TABLE orders AS SELECT * FROM (VALUES
(1::BIGINT, 'tea', 2.50::DECIMAL(10, 2), TRUE, 0.5::DOUBLE, DATE '2026-01-01', TIMESTAMP '2026-01-01 10:00:00',
 TIMESTAMPTZ '2026-01-01 10:00:00+00'),
(300, 'it''s \\ "salt"', 1.20, FALSE, NULL, NULL, NULL, NULL)) AS t(id, name, price, paid, weight, day, made, seen)"""


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    project = Project()
    project.rows(ORDERS)
    monkeypatch.setitem(sys.modules, "google.cloud.bigquery", project.bigquery)
    monkeypatch.setitem(sys.modules, "google.api_core.exceptions", project.exceptions)
    yield project
    project.database.close()


def pipeline(sql: str = "SELECT * FROM orders", transform: str | None = None, **more: Any) -> Callable[[], Any]:
    return copying(CONNECTION, sql, transform, **more)


@pytest.mark.slow
def test_rows_arrive_as_they_were(project: Project) -> None:
    result = pipeline()()
    assert (result["status"], result["rows_read"], result["rows_written"]) == ("success", 2, 2)
    assert project.rows("SELECT * FROM copied ORDER BY id") == project.rows("SELECT * FROM orders ORDER BY id")
    [config] = project.configs
    assert vars(config) == {
        "source_format": "PARQUET",
        "write_disposition": "WRITE_APPEND",
        "create_disposition": "CREATE_NEVER",
        "decimal_target_types": ["NUMERIC", "BIGNUMERIC"],
    }


@pytest.mark.slow
def test_statements_come_in_the_order_that_keeps_rows_single(project: Project) -> None:
    pipeline("SELECT id FROM orders", "SELECT id + 1 AS id FROM source")()
    kinds = [" ".join(statement.split()[:3]) for statement in project.statements]
    assert kinds[:3] == ["CREATE TABLE IF", "INSERT INTO `ematix_flow_loads`", "SELECT rows_read, rows_written,"]
    begin = kinds.index("BEGIN TRANSACTION")
    assert kinds[begin - 1 : begin + 6] == [
        "CREATE TABLE IF",
        "BEGIN TRANSACTION",
        "UPDATE `ematix_flow_loads` SET",
        "SELECT rows_read, rows_written,",
        "INSERT INTO `copied`",
        "INSERT INTO `ematix_flow_loads`",
        "COMMIT TRANSACTION",
    ]
    assert "expiration_timestamp = TIMESTAMP_ADD(CURRENT_TIMESTAMP(), INTERVAL 1 DAY)" in " ".join(project.statements)
    assert [table for (table,) in project.rows("SHOW TABLES") if table.startswith("_flow")] == []


@pytest.mark.slow
@pytest.mark.parametrize("point", ["warehouse.before_commit", "warehouse.after_commit"])
def test_a_run_that_is_interrupted_adds_its_rows_once(project: Project, point: str) -> None:
    copy = pipeline()
    with interrupted_at(point):
        copy()
    assert copy()["rows_written"] == 2
    assert project.rows("SELECT count(*) FROM copied") == [(2,)]


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["COMMIT TRANSACTION", "load"])
def test_an_answer_that_is_lost_is_looked_up(project: Project, lost: str) -> None:
    project.cut_at = lost
    assert pipeline()()["rows_written"] == 2
    assert project.rows("SELECT count(*) FROM copied") == [(2,)]
    assert not project.cut_at


@pytest.mark.slow
def test_only_rows_above_the_watermark_are_read(project: Project, tmp_path: Path) -> None:
    store = FileWatermarkStore(tmp_path / "watermarks.json")
    copy = pipeline(incremental_column="seen", watermark_store=store)
    assert [copy()["rows_read"], copy()["rows_read"]] == [2, 0]
    assert store.get("copy") == '"2026-01-01 10:00:00+00:00"'


def test_errors_name_the_connection(project: Project) -> None:
    with pytest.raises(RunError, match=r"bigquery connection 'big': .*missing"):
        pipeline("SELECT * FROM missing")()
    assert project.sessions == 2


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.cloud.bigquery", None)
    with pytest.raises(MissingExtraError, match=r"ematix-flow-spark\[bigquery\]"):
        pipeline()()

"""Loads on executors that have neither the product nor the user's modules, nor the disk of the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pytest

if TYPE_CHECKING:
    from tests.run.cluster.conftest import Project
    from tests.services.standalone import Standalone

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(600)]


@pytest.mark.parametrize("kind", ["classic", pytest.param("connect", marks=pytest.mark.deep)])
def test_product_module_and_helpers_travel_with_the_job_and_rows_come_back(
    kind: str, cluster: Standalone, project: Project, request: pytest.FixtureRequest
) -> None:
    settings = cluster.settings() if kind == "classic" else request.getfixturevalue("connected")
    results = project.drive(
        settings, "database", "files", "frame", "into_duckdb", "into_sqlite", "from_sqlite", "as_frame"
    )
    refused = results.pop("from_sqlite")
    inserted = {name: result.get("rows_inserted", result) for name, result in results.items()}
    assert inserted == {"database": 1000, "files": 4, "frame": 10, "into_duckdb": 999, "into_sqlite": 4, "as_frame": 10}
    assert "which only this machine has" in refused["text"]
    assert {result["engine"] for result in results.values()} == {"spark"}
    assert project.rows("SELECT count(*), count(DISTINCT id), min(note) FROM orders") == [(1000, 1000, "note 1")]
    assert project.rows("SELECT price FROM priced ORDER BY id") == [(3.0,), (6.0,), (None,), (15.75,)]
    assert project.rows("SELECT note FROM labelled WHERE id = 7") == [("no. 7",)]
    with duckdb.connect(project.connections["duck"]["path"], read_only=True) as target:
        assert target.execute("SELECT count(*), count(DISTINCT id) FROM public.orders").fetchall() == [(999, 999)]

"""Loads on executors that have neither the product nor the user's modules, nor the disk of the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.run.cluster.conftest import Project
    from tests.services.standalone import Standalone

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(600)]


@pytest.mark.parametrize("kind", ["classic", "connect"])
def test_product_module_and_helpers_travel_with_the_job(
    kind: str, cluster: Standalone, project: Project, request: pytest.FixtureRequest
) -> None:
    settings = cluster.settings() if kind == "classic" else request.getfixturevalue("connected")
    results = project.drive(settings, "database", "files", "frame")
    inserted = {name: result.get("rows_inserted", result) for name, result in results.items()}
    assert inserted == {"database": 1000, "files": 4, "frame": 10}
    assert {result["engine"] for result in results.values()} == {"spark"}
    assert project.rows("SELECT count(*), count(DISTINCT id), min(note) FROM orders") == [(1000, 1000, "note 1")]
    assert project.rows("SELECT price FROM priced ORDER BY id") == [(3.0,), (6.0,), (None,), (15.75,)]
    assert project.rows("SELECT note FROM labelled WHERE id = 7") == [("no. 7",)]

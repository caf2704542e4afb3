"""Rows that executors stage for a target which is a file of the driver: with results of tasks, and through a bucket."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import duckdb
import pytest

from tests.services.s3 import KEY, REGION, SECRET

if TYPE_CHECKING:
    from tests.run.cluster.conftest import Project
    from tests.services.s3 import S3Server
    from tests.services.standalone import Standalone

pytestmark = [
    pytest.mark.deep,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(600),
]

PRICES = [(1, 2.0), (2, 4.0), (3, None), (4, 10.5)]


def _stored(project: Project) -> tuple[object, object]:
    with duckdb.connect(project.connections["duck"]["path"]) as duck:
        orders = duck.execute("SELECT count(*), min(id), max(id), min(note) FROM public.orders").fetchall()
    with sqlite3.connect(project.connections["lite"]["path"]) as lite:
        return orders, lite.execute("SELECT id, price FROM public_priced ORDER BY id").fetchall()


@pytest.mark.parametrize("through", ["results", "store"])
@pytest.mark.parametrize("kind", ["classic", "connect"])
def test_files_of_the_driver_are_loaded_by_executors_that_cannot_see_them(
    kind: str, through: str, cluster: Standalone, project: Project, s3_server: S3Server, request: pytest.FixtureRequest
) -> None:
    settings = dict(cluster.settings() if kind == "classic" else request.getfixturevalue("connected"))
    bucket = project.connections["bucket"]["bucket"]
    if through == "store":
        login = f"endpoint={s3_server.endpoint}&region={REGION}&access_key_id={KEY}&secret_access_key={SECRET}"
        settings["EMATIX_FLOW_SPARK_STAGING"] = f"s3://{bucket}/between?{login}"
    done = project.drive(settings, "into_duckdb", "into_sqlite", "from_sqlite")
    assert done["into_duckdb"].get("rows_inserted") == 999, done
    assert done["into_duckdb"]["rows_rejected"] == 1
    assert done["into_sqlite"].get("rows_inserted") == 4, done
    assert _stored(project) == ([(999, 1, 1000, "note 1")], PRICES)
    assert "which only this machine has" in done["from_sqlite"]["text"]
    left = s3_server.client().list_objects_v2(Bucket=bucket).get("Contents", [])
    assert [entry["Key"] for entry in left] == ["prices.csv"]
    assert not list(project.folder.glob("*.flow_stage/*"))

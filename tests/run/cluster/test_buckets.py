"""Tables in buckets as targets of a cluster: executors write their files there, and the driver commits them."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

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


def test_executors_write_the_files_of_tables_in_buckets(
    cluster: Standalone, project: Project, s3_server: S3Server
) -> None:
    done = project.drive(cluster.settings(), "into_parquet", "into_delta", "merged_delta", "from_delta")
    assert {name: one.get("engine", one) for name, one in done.items()} == dict.fromkeys(done, "spark")
    assert done["into_parquet"]["rows_inserted"] == 1000
    assert done["into_delta"]["rows_inserted"] == 600
    assert [done["merged_delta"][f"rows_{kind}"] for kind in ("inserted", "updated", "unchanged")] == [400, 300, 300]
    bucket, client = project.connections["outbox"]["bucket"], s3_server.client()
    objects = client.list_objects_v2(Bucket=bucket, Prefix="outbox/")["Contents"]
    files = [one["Key"] for one in objects if one["Key"].endswith(".parquet") and "/_" not in one["Key"]]
    rows = [
        row["id"]
        for key in files
        for row in pq.read_table(io.BytesIO(client.get_object(Bucket=bucket, Key=key)["Body"].read())).to_pylist()
    ]
    assert sorted(rows) == list(range(1, 1001))
    assert project.rows("SELECT count(*), count(*) FILTER (WHERE note = 'even') FROM copied") == [(1000, 500)]

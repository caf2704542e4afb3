"""Iceberg tables in the catalogs of services, REST and Glue: Spark loads into them, once, and reads them."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ematix_flow.connect.storage.s3.client import location_of
from ematix_flow.connect.storage.s3_spark import bucket_settings
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.review.preview import preview_pipeline
from ematix_flow.engine.spark.session import session_for
from tests.depth import deep
from tests.lakes.targets import START, TargetTable, bucket_of, row_counts
from tests.lakes.test_buckets import MERGED, loaded_at_last
from tests.lakes.test_faults import FIRST, SECOND, committed, keys_and_texts, locks
from tests.lakes.test_loads import copied
from tests.services.http_faults import FaultyProxy
from tests.services.rest_catalog import CLIENT, CLIENT_SECRET, TOKEN, RestCatalog
from tests.services.s3 import KEY, SECRET

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.services.s3 import S3Server

pytestmark = [pytest.mark.spark, pytest.mark.service, pytest.mark.xdist_group("lakes")]


@pytest.fixture
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RestCatalog]:
    """Return a REST catalog whose tables are in the bucket of this test."""
    bucket = bucket_of(request)
    location = location_of(connection_from_fields("lake", {"kind": "delta_s3", **bucket}))  # type: ignore[arg-type]
    spark, warehouse = session_for(Options())(), f"s3://{bucket['bucket']}/tables"
    started = RestCatalog(spark, tmp_path, warehouse, bucket_settings(location))
    yield started
    started.close()


@pytest.fixture
def proxy(service: RestCatalog) -> Iterator[FaultyProxy]:
    """Return the faults of the way to the REST catalog."""
    between = FaultyProxy(service.server_port)
    yield between
    between.close()


@pytest.fixture
def rest(request: pytest.FixtureRequest, proxy: FaultyProxy, tmp_path: Path) -> TargetTable:
    """Return a table in a bucket whose catalog is a REST service that wants a client id and a secret."""
    login = {"uri": proxy.endpoint, "user": CLIENT, "password": CLIENT_SECRET}
    catalog = {"kind": "iceberg", "catalog_type": "rest", "prefix": "books", **login}
    return TargetTable({**catalog, **bucket_of(request)}, tmp_path, {"mode": "merge"})


@pytest.fixture
def glue(request: pytest.FixtureRequest, s3_server: S3Server, tmp_path: Path) -> Iterator[TargetTable]:
    """Return a table in a bucket whose catalog is Glue; Python and Java find the keys where the AWS libraries look."""
    given = request.getfixturevalue("monkeypatch")
    given.setenv("AWS_ACCESS_KEY_ID", KEY)
    given.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    java = session_for(Options())().sparkContext._jvm.java.lang.System
    java.setProperty("aws.accessKeyId", KEY)
    java.setProperty("aws.secretAccessKey", SECRET)
    bucket = {name: value for name, value in bucket_of(request).items() if not name.endswith(("key_id", "access_key"))}
    catalog = {"kind": "iceberg", "catalog_type": "glue", "uri": s3_server.endpoint, "default_credentials": True}
    yield TargetTable({**catalog, "prefix": "lake", **bucket}, tmp_path, {})
    java.clearProperty("aws.accessKeyId")
    java.clearProperty("aws.secretAccessKey")


@pytest.mark.parametrize("catalog", ["rest", deep("glue")])
def test_loads_are_made_once_and_read_through_the_catalog(catalog: str, request: pytest.FixtureRequest) -> None:
    target: TargetTable = request.getfixturevalue(catalog)
    for options, rows in (({"mode": "append"}, FIRST), ({"mode": "merge"}, SECOND)):
        target.options = options
        result = target.load(rows)
    appending = replace(target, options={"mode": "append"}).pipeline("id, word, share, amount, at")
    assert "ADD FILES" in preview_pipeline(appending).text()
    assert keys_and_texts(target) == MERGED
    assert row_counts(target.again([(9, "other", None, None, START)], "slot-2")) == row_counts(result), (
        "this load was made"
    )
    assert copied(target, "SELECT id, word FROM shop.things") == [(1, "a"), (2, "c"), (3, "d")]
    assert (committed(target), locks(target)) == (2, [])
    shown = str(target.database().engine().query("SET"))  # type: ignore[attr-defined]
    assert not [secret for secret in (CLIENT_SECRET, TOKEN, SECRET) if secret in shown]


@pytest.mark.deep
@pytest.mark.parametrize("fault", ["unanswered", "lost"])
def test_an_append_whose_answer_is_lost_is_made_once(rest: TargetTable, proxy: FaultyProxy, fault: str) -> None:
    rest.options = {"mode": "append"}
    rest.load(FIRST)
    assert "ADD FILES" in preview_pipeline(rest.pipeline("id, word, share, amount, at")).text()
    proxy.faults = deque([("POST tables/things", fault)])
    loaded_at_last(rest, SECOND, "slot-2")
    assert not proxy.faults
    assert keys_and_texts(rest) == sorted([("1", "a"), ("2", "b"), ("2", "c"), ("3", "d")])
    assert (committed(rest), locks(rest)) == (2, [])


@pytest.mark.deep
def test_a_commit_whose_answer_is_lost_is_made_once(rest: TargetTable, proxy: FaultyProxy) -> None:
    rest.load(FIRST)
    proxy.faults = deque([("POST tables/things", "unanswered")] * 2)
    loaded_at_last(rest, SECOND, "slot-2")
    assert not proxy.faults
    assert keys_and_texts(rest) == MERGED
    assert (committed(rest), locks(rest)) == (2, [])

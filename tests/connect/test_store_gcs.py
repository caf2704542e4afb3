"""What only Google has: uploads that go on from what has arrived, and generations of an object."""

from __future__ import annotations

import gzip
import os
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
import requests

from ematix_flow.connect.storage import object_io as bucket_streams
from ematix_flow.connect.storage.base import StoreUnavailableError
from tests.services.buckets import TOGETHER, bucket_store
from tests.services.gcs import gcs_fields
from tests.services.http_faults import FaultyProxy

if TYPE_CHECKING:
    from ematix_flow.connect.storage.object_store import BucketStore
    from tests.services.gcs import GcsServer

pytestmark = [pytest.mark.service, pytest.mark.usefixtures("no_waits"), TOGETHER]

PART = 1 << 20


@pytest.fixture
def store(gcs_server: GcsServer, gcs_bucket: str) -> BucketStore[Any]:
    return bucket_store(gcs_fields(gcs_server, gcs_bucket, prefix="lake"))


def test_an_upload_of_which_the_service_forgot_a_part_fails(
    gcs_server: GcsServer, gcs_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_streams, "PART", PART)
    with closing(FaultyProxy(gcs_server.port)) as proxy:
        store = bucket_store(gcs_fields(gcs_server, gcs_bucket, endpoint=proxy.endpoint))
        output = store.output("stage/a")
        output.stream.write(os.urandom(PART + 1))
        proxy.received.clear()
        proxy.faults.append(("PUT", "lost"))
        with pytest.raises(StoreUnavailableError, match="lost a part"):
            output.stream.write(os.urandom(PART))
        output.abandon()
        assert store.size("stage/a") is None


def test_an_object_that_says_it_is_compressed_is_read_as_it_is(
    store: BucketStore[Any], gcs_server: GcsServer, gcs_bucket: str
) -> None:
    data = gzip.compress(b"id\n1\n")
    url = f"{gcs_server.endpoint}/upload/storage/v1/b/{gcs_bucket}/o"
    which = {"uploadType": "media", "name": "lake/a.csv.gz", "contentEncoding": "gzip"}
    requests.post(url, params=which, data=data, timeout=10).raise_for_status()
    assert store.read("a.csv.gz") == data
    with store.reader("a.csv.gz") as reader:
        assert reader.read() == data

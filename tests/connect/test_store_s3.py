"""What only S3 has: conflicts of conditional writes, copies in parts, uploads that can be listed, its refusals."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ematix_flow.connect.storage import object_io as bucket_streams
from ematix_flow.connect.storage import object_store as bucket
from ematix_flow.connect.storage.base import StoreError
from ematix_flow.connect.storage.s3 import store as store_s3
from ematix_flow.connect.storage.s3.client import S3Location
from ematix_flow.connect.storage.s3.store import S3Store
from ematix_flow.errors import MissingExtraError
from tests.services.http_faults import FaultyProxy
from tests.services.s3 import KEY, REGION, SECRET

if TYPE_CHECKING:
    from tests.services.s3 import S3Server

pytestmark = [pytest.mark.service, pytest.mark.usefixtures("no_waits")]

SMALLEST_PART = 5 << 20
"""What the service takes as a part that is not the last one."""


@pytest.fixture
def store(s3_server: S3Server, s3_bucket: str) -> S3Store:
    return S3Store(S3Location(s3_bucket, "lake/", s3_server.endpoint, REGION, True, "", KEY, SECRET))


def test_a_writer_that_raced_with_nobody_else_wins(
    store: S3Store, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(FaultyProxy(s3_server.port)) as proxy:
        proxy.faults.append(("PUT", "raced"))
        raced = S3Store(replace(store.location, endpoint=proxy.endpoint))
        assert raced.create("k", b"mine")
        assert (raced.read("k"), list(proxy.faults)) == (b"mine", [])


def test_requests_are_repeated_where_stamina_is_not_installed(
    store: S3Store, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "stamina", None)
    with closing(FaultyProxy(s3_server.port)) as proxy:
        proxy.faults.extend([("PUT", "busy"), ("PUT", "broken")])
        S3Store(replace(store.location, endpoint=proxy.endpoint)).put("k", b"x")
    assert store.read("k") == b"x"


def test_a_large_object_is_copied_in_parts(store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_s3, "COPIED_WHOLE", 1)
    monkeypatch.setattr(store_s3, "COPY_PART", SMALLEST_PART)
    data = os.urandom(SMALLEST_PART + 17)
    store.put("stage/part.bin", data)
    store.move("stage/part.bin", "table/final.bin")
    assert (store.read("stage/part.bin"), store.read("table/final.bin")) == (None, data)


@pytest.mark.parametrize("request_", ["PUT partNumber=2", "POST uploadId"])
def test_a_large_copy_that_gets_no_answer_is_made_again_and_leaves_no_upload(
    store: S3Store, s3_server: S3Server, request_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_s3, "COPIED_WHOLE", 1)
    monkeypatch.setattr(store_s3, "COPY_PART", SMALLEST_PART)
    data = os.urandom(SMALLEST_PART + 17)
    store.put("stage/part.bin", data)
    with closing(FaultyProxy(s3_server.port)) as proxy:
        proxy.faults.append((request_, "unanswered"))
        S3Store(replace(store.location, endpoint=proxy.endpoint)).move("stage/part.bin", "table/final.bin")
        assert not proxy.faults
    assert (store.read("stage/part.bin"), store.read("table/final.bin")) == (None, data)
    assert s3_server.client().list_multipart_uploads(Bucket=store.location.bucket).get("Uploads", []) == []


def test_no_upload_is_left(store: S3Store, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_streams, "PART", SMALLEST_PART)
    outputs = [store.output(f"stage/{name}.bin") for name in ("one", "two", "three")]
    for output in outputs:
        output.stream.write(bytes(SMALLEST_PART + 1))
    outputs[0].abandon()
    store.put("stage/kept.bin", b"x")
    store.remove_below("stage/")
    client = s3_server.client()
    assert list(store.listed("stage/")) == []
    assert client.list_multipart_uploads(Bucket=store.location.bucket).get("Uploads", []) == []


def test_no_key_is_shown(store: S3Store) -> None:
    wrong = S3Store(replace(store.location, access_key_id="AKIAWRONG", secret_access_key="canary-wrong"))
    with pytest.raises(StoreError) as refused:
        wrong.probe()
    texts = [repr(store), str(store), repr(store.location), store.display_address, store.probe(), str(refused.value)]
    assert not [text for text in texts for secret in (KEY, SECRET, "canary-wrong", "AKIAWRONG") if secret in text]


def test_refusals_say_what_is_wrong(store: S3Store) -> None:
    expected = {
        "bucket 'no-such-bucket' does not exist": {"bucket": "no-such-bucket"},
        "may not list there": {"bucket": "forbidden-bucket"},
        "does not know the access_key_id": {"access_key_id": "AKIAWRONG"},
        "cannot be reached": {"endpoint": "http://127.0.0.1:9"},
        "no credentials were found": {"access_key_id": ""},
        "profile (nobody) could not be found": {"profile": "nobody", "access_key_id": ""},
    }
    for message, change in expected.items():
        with pytest.raises(StoreError) as refused:
            S3Store(replace(store.location, **change)).probe()  # type: ignore[arg-type]
        assert message in str(refused.value)


@pytest.mark.parametrize("request_text", ["probe", "read"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    request_text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("boto3", "botocore", "botocore.exceptions", "botocore.config"):
        monkeypatch.setitem(sys.modules, name, None)
    bucket._client.cache_clear()
    store = S3Store(S3Location("bucket"))
    with pytest.raises(MissingExtraError, match=r'pip install "ematix-flow-spark\[s3\]"'):
        store.probe() if request_text == "probe" else store.read("k")

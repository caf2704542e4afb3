"""What only Azure has: blocks without a blob, names that stand for folders, large copies, tokens of a directory."""

from __future__ import annotations

import base64
import gzip
import json
import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from azure.storage.blob import ContentSettings

from ematix_flow.connect.storage import object_io as bucket_streams
from ematix_flow.connect.storage.azure import client as azure_client
from ematix_flow.connect.storage.azure import store as store_azure
from ematix_flow.connect.storage.base import StoreError
from tests.services.azure import ACCOUNT, TlsAzureServer, azure_fields
from tests.services.buckets import TOGETHER, bucket_store

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.connect.storage.object_store import BucketStore
    from tests.services.azure import AzureServer

pytestmark = [pytest.mark.service, TOGETHER]

BLOCK = 1 << 20


@pytest.fixture
def store(azure_server: AzureServer, azure_bucket: str) -> BucketStore[Any]:
    return bucket_store(azure_fields(azure_server, azure_bucket, prefix="lake"))


def test_a_large_blob_is_copied_in_parts(store: BucketStore[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_azure, "COPIED_WHOLE", 1)
    monkeypatch.setattr(store_azure, "PART", BLOCK)
    monkeypatch.setattr(bucket_streams, "PART", BLOCK)
    data = os.urandom(2 * BLOCK + 17)
    store.put("stage/part.bin", data)
    store.move("stage/part.bin", "table/final.bin")
    assert (store.read("stage/part.bin"), store.read("table/final.bin")) == (None, data)


def test_no_block_is_left(
    store: BucketStore[Any], azure_server: AzureServer, azure_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_streams, "PART", BLOCK)
    outputs = [store.output(f"stage/{name}.bin") for name in ("one", "two")]
    for output in outputs:
        output.stream.write(bytes(BLOCK + 1))
    container = azure_server.client().get_container_client(azure_bucket)
    assert len(list(container.list_blobs(include=["uncommittedblobs"]))) == 2
    outputs[0].abandon()
    assert len(list(container.list_blobs(include=["uncommittedblobs"]))) == 1
    store.remove_below("stage/")
    assert list(container.list_blobs(include=["uncommittedblobs"])) == []


def test_a_name_that_stands_for_a_folder_is_no_file(
    store: BucketStore[Any], azure_server: AzureServer, azure_bucket: str
) -> None:
    store.put("in/a.csv", b"x")
    container = azure_server.client().get_container_client(azure_bucket)
    container.upload_blob("lake/in", b"", metadata={"hdi_isfolder": "true"})
    container.upload_blob("lake/in/", b"")
    assert [entry.key for entry in store.listed("")] == ["in/a.csv"]


def test_a_blob_with_a_snapshot_is_deleted(
    store: BucketStore[Any], azure_server: AzureServer, azure_bucket: str
) -> None:
    store.put("k", b"x")
    azure_server.client().get_blob_client(azure_bucket, "lake/k").create_snapshot()
    store.delete("k")
    assert store.size("k") is None


def test_a_blob_that_says_it_is_compressed_is_read_as_it_is(
    store: BucketStore[Any], azure_server: AzureServer, azure_bucket: str
) -> None:
    data = gzip.compress(b"id\n1\n")
    container = azure_server.client().get_container_client(azure_bucket)
    container.upload_blob("lake/a.csv.gz", data, content_settings=ContentSettings(content_encoding="gzip"))
    assert store.read("a.csv.gz") == data
    with store.reader("a.csv.gz") as reader:
        assert reader.read() == data


def test_the_token_of_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = TlsAzureServer()
    try:
        server.start()
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(server.certificate))
        monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "AzureCliCredential")
        azure_client._default_credential.cache_clear()
        store = bucket_store(azure_fields(server, server.create_database(), account_key=None, default_credentials=True))
        with monkeypatch.context() as nowhere:
            nowhere.setenv("PATH", str(tmp_path))
            with pytest.raises(StoreError, match="no credentials were found"):
                store.probe()
        monkeypatch.setenv("PATH", f"{written_cli(tmp_path)}{os.pathsep}{os.environ['PATH']}")
        assert store.probe() == f"container {store.location.container} at {server.endpoint}"
        assert [store.create("stage/k", b"x"), store.create("stage/k", b"y")] == [True, False]
        store.move("stage/k", "k")
        assert (store.read("k"), store.size("stage/k")) == (b"x", None)
    finally:
        azure_client._default_credential.cache_clear()
        server.close()


def written_cli(folder: Path) -> Path:
    """Write a program `az` that gives out a token as the command line of Azure does, and return its folder."""
    now = int(time.time())
    claims = {"aud": "https://storage.azure.com", "iss": f"https://sts.windows.net/{ACCOUNT}/",
              "iat": now - 60, "nbf": now - 60, "exp": now + 3600}  # fmt: skip
    parts = ({"alg": "none", "typ": "JWT"}, claims)
    token = ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    answer = json.dumps(
        {"accessToken": f"{token}.canary", "expires_on": now + 3600, "expiresOn": "2099-01-01 00:00:00.0"}
    )
    program = folder / "az"
    program.write_text(f"#!/bin/sh\necho '{answer}'\n")
    program.chmod(0o755)
    return folder

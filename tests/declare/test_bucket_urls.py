"""What a URL says about a bucket, and what must not stand in one."""

from __future__ import annotations

import pytest

from ematix_flow.declare.connection.registry import (
    ObjectStoreAzureConnection,
    ObjectStoreGCSConnection,
    connection_from_fields,
)
from ematix_flow.errors import DeclareError

GCS = {"format": "csv", "anonymous": True}
AZURE = {"format": "csv", "account_key": "canary"}


@pytest.mark.parametrize(
    ("url", "bucket", "prefix"),
    [("gs://b", "b", ""), ("gs://b/", "b", ""), ("gs://my.bucket/raw/2026/", "my.bucket", "raw/2026/")],
)
def test_a_url_names_a_bucket_of_google(url: str, bucket: str, prefix: str) -> None:
    for kind in ({}, {"kind": "object_store_gcs"}):
        connection = connection_from_fields("lake", {**kind, **GCS, "url": url})
        assert isinstance(connection, ObjectStoreGCSConnection)
        assert (connection.bucket, connection.prefix) == (bucket, prefix)


@pytest.mark.parametrize(
    ("url", "account", "container", "prefix", "endpoint"),
    [
        ("abfss://c@acme.dfs.core.windows.net/raw", "acme", "c", "raw", ""),
        ("abfs://c@acme.blob.core.windows.net", "acme", "c", "", ""),
        ("https://acme.blob.core.windows.net/c/raw/x", "acme", "c", "raw/x", ""),
        ("abfss://c@acme.dfs.core.chinacloudapi.cn/", "acme", "c", "", "https://acme.blob.core.chinacloudapi.cn"),
    ],
)
def test_a_url_names_an_account_and_a_container_of_azure(
    url: str, account: str, container: str, prefix: str, endpoint: str
) -> None:
    kind = {"kind": "azure"} if url.startswith("https") else {}
    connection = connection_from_fields("lake", {**kind, **AZURE, "url": url})
    assert isinstance(connection, ObjectStoreAzureConnection)
    assert (connection.account, connection.container, connection.prefix, connection.endpoint) == (
        account,
        container,
        prefix,
        endpoint,
    )
    assert "canary" not in repr(connection)


def test_a_url_without_an_account_needs_one_beside_it() -> None:
    connection = connection_from_fields("lake", {**AZURE, "url": "az://c/raw", "account": "acme"})
    assert isinstance(connection, ObjectStoreAzureConnection)
    assert (connection.account, connection.container, connection.prefix) == ("acme", "c", "raw")
    with pytest.raises(DeclareError, match="needs account"):
        connection_from_fields("lake", {**AZURE, "url": "az://c/raw"})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({**GCS, "url": "gs://"}, "names no bucket"),
        ({**GCS, "url": "gs://b/p?token=canary"}, "names no bucket"),
        ({**GCS, "url": "gs://b/p", "bucket": "other"}, "two things about its bucket"),
        ({**GCS, "kind": "gcs", "url": "s3://b/p"}, "names no bucket"),
        ({**GCS, "url": "gs://b", "credentials_path": "key.json"}, "has credentials_path and anonymous"),
        ({"format": "csv", "url": "gs://b"}, "needs credentials_path, default_credentials or anonymous"),
        ({**AZURE, "url": "az://c/p?sig=canary", "account": "a"}, "names no container"),
        ({**AZURE, "url": "abfss://c@acme.dfs.core.windows.net/p", "container": "d"}, "two things about its container"),
        ({**AZURE, "url": "az://c", "account": "a", "sas_token": "canary"}, "has account_key and sas_token"),
    ],
)
def test_what_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(DeclareError, match=message) as refused:
        connection_from_fields("lake", fields)
    assert "canary" not in f"{refused.value} {refused.value.hint}"


def test_short_words_for_the_kinds() -> None:
    gcs = connection_from_fields("lake", {"kind": "gcs", "bucket": "b"})
    azure = connection_from_fields("lake", {"kind": "azure", "account": "a", "container": "c", "sas_token": "t"})
    assert isinstance(gcs, ObjectStoreGCSConnection)
    assert isinstance(azure, ObjectStoreAzureConnection)
    assert (gcs.format, gcs.default_credentials) == ("parquet", True)
    assert (azure.format, azure.default_credentials) == ("parquet", False)


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "delta", "path": "gs://b/lake"},
        {"kind": "delta_local", "path": "abfss://c@acme.dfs.core.windows.net/lake"},
        {"kind": "iceberg", "catalog_type": "jdbc", "uri": "jdbc:sqlite:x", "warehouse": "gs://b/lake"},
    ],
)
def test_lake_tables_in_these_buckets_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(DeclareError, match="cannot keep its tables in Google Cloud Storage or Azure"):
        connection_from_fields("lake", fields)

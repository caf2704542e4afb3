"""Buckets of Google and Microsoft as connections: what is said when they answer and when they do not, and no secret."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow import register_connection
from ematix_flow.connect.registry import open_system
from ematix_flow.connect.storage import object_store as bucket
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.engine import Options, run_pipeline
from ematix_flow.engine.api.references import check_connection
from ematix_flow.engine.doctor import run_doctor
from ematix_flow.engine.review.dry_run import dry_run_pipeline
from ematix_flow.engine.review.preview import preview_pipeline
from ematix_flow.errors import FlowError, MissingExtraError, PlanError
from tests.engine.bucket_loads import Bucket, pipeline_of, write_source
from tests.engine.inboxes import Inbox, content
from tests.services.azure import ACCOUNT, KEY, azure_fields, sas_token
from tests.services.buckets import CLOUDS, TOGETHER, bucket_fields
from tests.services.gcs_gate import GcsGate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.services.azure import AzureServer
    from tests.services.gcs import GcsServer

pytestmark = [pytest.mark.service, pytest.mark.slow, pytest.mark.usefixtures("no_waits"), TOGETHER]

QUERY = "SELECT id, label FROM orders"
WRONG_KEY = KEY.replace("Y2Fu", "d3Jv")
WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "no bucket": ("gcs", {"bucket": "no-such-bucket"}, "bucket 'no-such-bucket' does not exist"),
    "no gcs": ("gcs", {"endpoint": "http://127.0.0.1:9"}, "cannot be reached"),
    "no file": (
        "gcs",
        {"anonymous": False, "credentials_path": "nothing.json"},
        "is no file with the key of a service account",
    ),
    "no adc": ("gcs", {"anonymous": False, "default_credentials": True}, "no credentials were found"),
    "scheme": ("gcs", {"endpoint": "storage:443"}, "begins with http:// or https://"),
    "no container": ("azure", {"container": "no-such-container"}, "container 'no-such-container' does not exist"),
    "no azure": ("azure", {"endpoint": f"http://127.0.0.1:9/{ACCOUNT}"}, "cannot be reached"),
    "key": ("azure", {"account_key": WRONG_KEY}, "may not list there"),
    "no key": ("azure", {"account_key": "canary no base64"}, "cannot be used"),
    "token": ("azure", {"account_key": None, "sas_token": "sv=2024-11-04&sig=canary"}, "the credentials"),
}


@pytest.fixture
def fields(request: pytest.FixtureRequest) -> dict[str, Any]:
    return bucket_fields(request, request.param, prefix="lake")


@pytest.fixture
def source(tmp_path: Path) -> dict[str, Any]:
    return {"kind": "sqlite", "path": write_source(tmp_path / "source.sqlite", [(1, "one")])}


@pytest.fixture
def gate(gcs_server: GcsServer, tmp_path: Path) -> Iterator[GcsGate]:
    gate = GcsGate(gcs_server.port, tmp_path / "key.json")
    yield gate
    gate.close()


def shows_secret(*texts: object) -> bool:
    secrets = (KEY, WRONG_KEY, "canary no base64", "sig=", "canary-token")
    return any(secret in str(text) for text in texts for secret in secrets)


@pytest.mark.parametrize("fields", CLOUDS, indirect=True)
def test_a_bucket_that_answers(fields: dict[str, Any]) -> None:
    register_connection(connection_from_fields("lake", fields))
    fine, message = check_connection("lake")
    name = fields.get("bucket") or fields["container"]
    assert (fine, message.split(" at ")) == (
        True,
        [f"{'bucket' if 'bucket' in fields else 'container'} {name}", fields["endpoint"]],
    )
    (report,) = run_doctor()
    assert (report.name, report.kind, report.status, report.detail) == ("lake", fields["kind"], "ok", message)


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_with_a_connection_is_said(
    request: pytest.FixtureRequest, source: dict[str, Any], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    service, change, expected = WRONG[what]
    wrong = {**bucket_fields(request, service), **change}
    register_connection(connection_from_fields("lake", wrong))
    fine, message = check_connection("lake")
    assert not fine
    assert expected in message
    (report,) = run_doctor()
    assert (report.status, expected in report.detail) == ("fail", True)
    for pipeline in (
        pipeline_of(wrong, source, "in", name="reading"),
        pipeline_of(source, wrong, QUERY, name="writing"),
    ):
        with pytest.raises((FlowError, OSError)) as refused:
            run_pipeline(pipeline, Options())
        assert expected in str(refused.value)
        assert not shows_secret(message, report, refused.value)


@pytest.mark.parametrize("fields", CLOUDS, indirect=True)
def test_what_a_load_would_do(fields: dict[str, Any], source: dict[str, Any], tmp_path: Path) -> None:
    bucket = Bucket(fields)
    bucket.put("in/a.csv", b"id,label\n1,one\n")
    other = {"kind": "sqlite", "path": str(tmp_path / "other.sqlite")}
    for pipeline in (pipeline_of(source, fields, QUERY), pipeline_of(fields, other, "in", name="reading")):
        before = bucket.keys("")
        previewed = preview_pipeline(pipeline)
        tried = dry_run_pipeline(pipeline)
        assert tried.targets[0].dry_run_error is None
        assert (tried.targets[0].dry_run_rows_affected or {})["rows_inserted"] == 1
        assert bucket.keys("") == before
        assert not shows_secret(previewed, tried, asdict(previewed), connection_from_fields("lake", fields))


@pytest.mark.parametrize("fields", CLOUDS, indirect=True)
def test_objects_are_loaded_once_and_a_content_that_was_put_again_is_another(
    fields: dict[str, Any], tmp_path: Path
) -> None:
    bucket = Bucket({**fields, "format": "csv"})
    target = {"kind": "sqlite", "path": str(tmp_path / "target.db")}
    inbox = Inbox(str(tmp_path), target, str(tmp_path / "log.db"), source=bucket.fields)
    bucket.put("in/b.csv", content(1).encode())
    assert inbox.run()["rows_inserted"] == 1
    bucket.put("in/a.csv", content(2).encode())
    second = inbox.run()
    assert (second["files_loaded"], second["files_known"], inbox.run()["files_loaded"]) == (1, 1, 0)
    bucket.put("in/b.csv", content(1).encode())
    with pytest.raises(PlanError, match=r"in/b\.csv"):
        inbox.run()
    assert inbox.ids() == [1, 2]


def test_tokens_and_connection_strings_of_azure(
    azure_server: AzureServer, azure_bucket: str, source: dict[str, Any]
) -> None:
    endpoint = azure_server.endpoint
    keyless = {name: value for name, value in azure_fields(azure_server, azure_bucket).items() if name != "account_key"}
    named = {"kind": "object_store_azure", "format": "parquet", "container": azure_bucket}
    for fields in (
        {**keyless, "sas_token": f"?{sas_token()}"},
        {**named, "connection_string": f"AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={endpoint}/;"},
        {**named, "connection_string": f"BlobEndpoint={endpoint};SharedAccessSignature={sas_token()}"},
    ):
        assert probe(fields) == f"container {azure_bucket} at {endpoint}"
        run_pipeline(pipeline_of(source, fields, QUERY), Options())
        assert not shows_secret(connection_from_fields("lake", fields))
    assert Bucket(azure_fields(azure_server, azure_bucket)).rows() == [(1, "one")] * 3


def test_the_key_of_a_service_account(
    gate: GcsGate, gcs_bucket: str, source: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"url": f"gs://{gcs_bucket}/lake", "endpoint": gate.endpoint, "format": "parquet"}
    keyed = {**fields, "credentials_path": str(gate.key_file)}
    assert probe(keyed) == f"bucket {gcs_bucket} at {gate.endpoint}"
    assert run_pipeline(pipeline_of(source, {"kind": "gcs", **keyed}, QUERY), Options())["rows_inserted"] == 1
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(gate.key_file))
    assert probe({**fields, "default_credentials": True}).startswith("bucket")
    for refused, change in {
        "requires credentials": {"anonymous": True},
        "may not list there": {**keyed, "url": "gs://forbidden-bucket"},
    }.items():
        with pytest.raises(FlowError, match=refused):
            probe({**fields, **change})
    gate.gives_tokens = False
    with pytest.raises(FlowError, match="refused by the service that gives out tokens") as raised:
        probe(keyed)
    assert not shows_secret(raised.value)


@pytest.mark.parametrize(
    ("extra", "module", "fields"),
    [
        ("gcs", "google.cloud.storage", {"kind": "object_store_gcs", "bucket": "b", "anonymous": True}),
        ("azure", "azure.storage.blob", {"kind": "azure", "account": "a", "container": "c", "account_key": "k"}),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    extra: str, module: str, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf'pip install "ematix-flow-spark\[{extra}\]"'):
        probe({**fields, "format": "csv"})


def probe(fields: dict[str, Any]) -> str:
    bucket._client.cache_clear()
    return str(open_system(connection_from_fields("lake", fields)).probe())

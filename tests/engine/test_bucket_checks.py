from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
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
from ematix_flow.engine.review.validate import validate_pipeline
from ematix_flow.errors import DeclareError, FlowError
from tests.engine.bucket_loads import Bucket, pipeline_of, write_source
from tests.services.s3 import KEY, SECRET, s3_fields

if TYPE_CHECKING:
    from tests.services.s3 import S3Server

pytestmark = [pytest.mark.service, pytest.mark.slow, pytest.mark.usefixtures("no_waits")]

QUERY = "SELECT id, label FROM orders"
WRONG = {
    "bucket": ({"bucket": "no-such-bucket"}, "bucket 'no-such-bucket' does not exist"),
    "rights": ({"bucket": "forbidden-bucket"}, "the credentials may not list there"),
    "keys": ({"access_key_id": "AKIACANARYWRONG"}, "the service does not know the access_key_id"),
    "endpoint": ({"endpoint": "http://127.0.0.1:9"}, "cannot be reached"),
    "scheme": ({"endpoint": "minio:9000"}, "begins with http:// or https://"),
}


@pytest.fixture
def fields(s3_server: S3Server, s3_bucket: str) -> dict[str, Any]:
    return s3_fields(s3_server, s3_bucket, prefix="lake")


@pytest.fixture
def source(tmp_path: Path) -> dict[str, Any]:
    return {"kind": "sqlite", "path": write_source(tmp_path / "source.sqlite", [(1, "one")])}


def shows_secret(*texts: object) -> bool:
    return any(secret in str(text) for text in texts for secret in (KEY, SECRET, "AKIACANARYWRONG"))


def test_a_bucket_that_answers(fields: dict[str, Any]) -> None:
    register_connection(connection_from_fields("lake", fields))
    fine, message = check_connection("lake")
    assert (fine, message) == (True, f"bucket {fields['bucket']} at {fields['endpoint']}")
    (report,) = run_doctor()
    assert (report.name, report.kind, report.status, report.detail) == ("lake", "object_store_s3", "ok", message)


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_with_a_connection_is_said(
    fields: dict[str, Any], source: dict[str, Any], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, expected = WRONG[what]
    wrong = {**fields, **change}
    register_connection(connection_from_fields("lake", wrong))
    fine, message = check_connection("lake")
    assert not fine
    assert expected in message
    (report,) = run_doctor()
    assert (report.status, expected in report.detail) == ("fail", True)
    reading = pipeline_of(wrong, source, "in", name="reading")
    writing = pipeline_of(source, wrong, QUERY, name="writing")
    for pipeline in (reading, writing):
        with pytest.raises((FlowError, OSError)) as refused:
            run_pipeline(pipeline, Options())
        assert expected in str(refused.value)
        assert not shows_secret(message, report, refused.value)


def test_what_a_load_would_do(fields: dict[str, Any], source: dict[str, Any], tmp_path: Path) -> None:
    bucket = Bucket(fields)
    bucket.put("in/a.csv", b"id,label\n1,one\n")
    other = {"kind": "sqlite", "path": str(tmp_path / "other.sqlite")}
    for pipeline in (pipeline_of(source, fields, QUERY), pipeline_of(fields, other, "in", name="reading")):
        before = bucket.keys("")
        previewed = preview_pipeline(pipeline)
        checked = validate_pipeline(pipeline)
        tried = dry_run_pipeline(pipeline)
        assert tried.targets[0].dry_run_error is None
        assert (tried.targets[0].dry_run_rows_affected or {})["rows_inserted"] == 1
        assert bucket.keys("") == before
        assert not shows_secret(previewed, checked, tried, asdict(previewed))


def test_credentials_of_the_chain_and_of_a_profile(
    fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keyless = {name: value for name, value in fields.items() if name not in ("access_key_id", "secret_access_key")}
    home = Path(os.environ["HOME"]) / ".aws"
    home.mkdir()
    (home / "credentials").write_text(f"[lake]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
    assert probe({**keyless, "profile": "lake"}).startswith("bucket")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    assert probe({**keyless, "default_credentials": True}).startswith("bucket")
    monkeypatch.setenv("AWS_ENDPOINT_URL", keyless.pop("endpoint"))
    assert probe({**keyless, "default_credentials": True, "path_style": True}).startswith("bucket")
    with pytest.raises(DeclareError, match="has a profile and keys"):
        probe({**fields, "profile": "lake"})


def probe(fields: dict[str, Any]) -> str:
    bucket._client.cache_clear()
    return str(open_system(connection_from_fields("lake", fields)).probe())

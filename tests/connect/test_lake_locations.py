"""What Spark is told of a bucket and of a catalog, and what a check says of them; Spark itself is not started."""

from __future__ import annotations

import os
import pickle
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from ematix_flow import register_connection
from ematix_flow.connect.delta.table import JAR, LOG_STORE
from ematix_flow.connect.iceberg.catalog import IcebergCatalog
from ematix_flow.connect.registry import system_of, target_of
from ematix_flow.connect.storage.s3.client import location_of
from ematix_flow.connect.storage.s3_spark import bucket_settings
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.engine.doctor import check_health
from ematix_flow.errors import DeclareError, UnsupportedError
from tests.services.postgres import PASSWORD
from tests.services.s3 import KEY, SECRET, s3_fields

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.services.s3 import S3Server

DELTA = {
    "kind": "delta_s3",
    "endpoint": "http://127.0.0.1:9000",
    "bucket": "lake",
    "region": "eu-central-1",
    "access_key_id": KEY,
    "secret_access_key": SECRET,
}
ICEBERG = {"kind": "iceberg", "catalog_type": "jdbc", "uri": "jdbc:postgresql://h/d", "warehouse": "s3://lake/w"}
CHAIN = {**DELTA, "default_credentials": True, "access_key_id": "", "secret_access_key": ""}


def settings(fields: dict[str, Any]) -> dict[str, str]:
    """Return what Spark is told of a bucket."""
    bucket = bucket_settings(location_of(connection_from_fields("lake", fields)))  # type: ignore[arg-type]
    return {name.removeprefix("fs.s3a.bucket.lake."): value for name, value in bucket.items()}


def catalog(**fields: Any) -> IcebergCatalog:
    """Return a catalog."""
    return IcebergCatalog(connection_from_fields("lake", {**ICEBERG, **fields}))  # type: ignore[arg-type]


def test_keys_of_a_bucket_are_told_by_bucket() -> None:
    configured = settings(DELTA)
    assert (configured["access.key"], configured["secret.key"]) == (KEY, SECRET)
    assert (configured["path.style.access"], configured["connection.ssl.enabled"]) == ("true", "false")
    assert configured["create.conditional.enabled"] == "true"
    amazon = settings({**DELTA, "endpoint": "https://s3.eu-central-1.amazonaws.com"})
    assert (amazon["path.style.access"], amazon["connection.ssl.enabled"]) == ("false", "true")


def test_java_looks_for_keys_itself_and_a_profile_is_read_here() -> None:
    configured = settings(CHAIN)
    assert "DefaultCredentialsProvider" in configured["aws.credentials.provider"]
    assert "access.key" not in configured
    home = Path(os.environ["HOME"]) / ".aws"
    home.mkdir()
    profile = f"[mine]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\naws_session_token = fleeting\n"
    (home / "credentials").write_text(profile)
    configured = settings({**CHAIN, "default_credentials": False, "profile": "mine"})
    assert (configured["access.key"], configured["session.token"]) == (KEY, "fleeting")
    assert "TemporaryAWSCredentialsProvider" in configured["aws.credentials.provider"]
    with pytest.raises(OSError, match="could not be found"):
        settings({**CHAIN, "default_credentials": False, "profile": "other"})


def test_the_way_to_a_bucket_is_a_need_of_its_tables() -> None:
    target = target_of(connection_from_fields("lake", DELTA), ("sales", "orders"))
    assert any("hadoop-aws" in package for package in target.spark_requirements.packages)
    assert "software.amazon.awssdk:bundle" in target.spark_requirements.excludes
    assert (repr(target), target.identity()) == (
        "DeltaS3('s3://lake')",
        ("delta", "s3", "http://127.0.0.1:9000", "lake", ""),
    )
    assert SECRET not in str(target.spark_requirements) + str(target.info()) + repr(target.__dict__)
    local = target_of(connection_from_fields("lake", {"kind": "delta_local", "path": "x"}), ("sales", "orders"))
    assert local.spark_requirements.excludes == ()


def test_the_jar_is_made_from_the_sources_beside_it() -> None:
    with zipfile.ZipFile(JAR) as jar:
        sources = {name.rpartition("/")[2]: jar.read(name) for name in jar.namelist() if name.endswith(".java")}
        assert f"{LOG_STORE[1].replace('.', '/')}.class" in jar.namelist()
    assert sources == {file.name: file.read_bytes() for file in Path(JAR).parent.glob("*.java")}, "run `make jar`"


def test_each_kind_of_catalog_is_told_what_it_takes() -> None:
    database = catalog(user="me", password="hush").settings
    assert (database[".jdbc.user"], database[".jdbc.password"]) == ("me", "hush")
    assert (database[".warehouse"], database[".io-impl"]) == ("s3://lake/w", "org.apache.iceberg.hadoop.HadoopFileIO")
    rest = catalog(catalog_type="rest", uri="http://c", user="me", password="hush").settings
    assert (rest[".credential"], rest[".uri"]) == ("me:hush", "http://c")
    assert catalog(catalog_type="rest", uri="http://c", token="t").settings[".token"] == "t"
    glue = catalog(catalog_type="glue", uri="", region="eu-central-1")
    assert glue.settings[".client.region"] == "eu-central-1"
    assert any("awssdk:glue" in package for package in glue.spark_requirements.packages)
    assert catalog(warehouse="", bucket="other", prefix="p").settings[".warehouse"] == "s3://other/p"


def test_what_a_catalog_cannot_be_is_said() -> None:
    with pytest.raises(UnsupportedError, match="is no folder and no bucket"):
        catalog(catalog_type="rest", uri="http://c", warehouse="")
    with pytest.raises(UnsupportedError, match="is no folder and no bucket"):
        catalog(warehouse="hdfs://lake")
    with pytest.raises(DeclareError, match="cannot keep its tables in Google Cloud Storage"):
        catalog(warehouse="gs://lake")
    with pytest.raises(DeclareError, match="takes no access_key_id"):
        catalog(catalog_type="glue", access_key_id="a", secret_access_key="b")
    with pytest.raises(DeclareError, match="another way to find keys"):
        catalog(profile="p", access_key_id="a", secret_access_key="b")


def checked(fields: dict[str, Any]) -> tuple[str, str]:
    """Return what a check says."""
    register_connection(connection_from_fields("lake", fields))
    report = check_health("lake")
    return report.status, report.detail


@pytest.mark.service
def test_checks_of_tables_in_a_bucket(s3_server: S3Server, s3_bucket: str, tmp_path: Path) -> None:
    fields = {name: value for name, value in s3_fields(s3_server, s3_bucket).items() if name not in ("kind", "format")}
    answers = f"bucket {s3_bucket} at {s3_server.endpoint}"
    assert checked({"kind": "delta_s3", **fields}) == ("ok", answers)
    status, message = checked({"kind": "delta_s3", **fields, "bucket": "no-such-bucket"})
    assert (status, "bucket 'no-such-bucket' does not exist" in message) == ("fail", True)
    file = tmp_path / "catalog.db"
    tables = {"kind": "iceberg", "catalog_type": "jdbc", "uri": f"jdbc:sqlite:{file}", **fields}
    assert checked(tables) == ("ok", f"catalog {file} does not exist yet; the first load creates it, {answers}")
    assert not file.exists()
    file.touch()
    assert checked(tables) == ("ok", f"catalog {file}, {answers}")


@pytest.mark.service
def test_checks_of_a_catalog_in_postgres(postgres_url: str, tmp_path: Path) -> None:
    parts = urlsplit(postgres_url)
    uri = f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}"
    fields = {"kind": "iceberg", "catalog_type": "jdbc", "uri": uri, "warehouse": str(tmp_path), "user": parts.username}
    status, message = checked({**fields, "password": PASSWORD})
    assert (status, message.startswith("catalog in PostgreSQL 1")) == ("ok", True)
    status, message = checked({**fields, "password": "wr0ng-canary"})
    assert (status, "wr0ng-canary" in message) == ("fail", False)


@pytest.mark.service
def test_checks_of_a_glue_catalog(s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"kind": "iceberg", "catalog_type": "glue", "uri": s3_server.endpoint, "endpoint": s3_server.endpoint,
              "region": "eu-central-1", "bucket": s3_bucket}  # fmt: skip
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIACANARYWRONG")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    status, message = checked(fields)
    assert (status, "Glue" in message) == ("fail", True)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    assert checked({**fields, "prefix": "p"})[1].startswith(f"Glue catalog at {s3_server.endpoint}, bucket {s3_bucket}")


class _Catalog(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self._respond(200 if "client_secret=hush" in body else 401, b'{"access_token": "t"}')

    def do_GET(self) -> None:
        welcome = self.headers["Authorization"] == "Bearer t" and self.path == "/v1/config?warehouse=w"
        self._respond(200 if welcome else 401, b'{"defaults": {}, "overrides": {}}')

    def _respond(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def rest() -> Iterator[str]:
    """Return the address of a service that answers a catalog's first two questions."""
    server = HTTPServer(("127.0.0.1", 0), _Catalog)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_checks_of_a_rest_catalog(rest: str) -> None:
    fields = {"kind": "iceberg", "catalog_type": "rest", "uri": rest, "warehouse": "w"}
    assert checked({**fields, "token": "t"}) == ("ok", f"REST catalog at {rest}")
    assert checked({**fields, "user": "me", "password": "hush"}) == ("ok", f"REST catalog at {rest}")
    assert checked({**fields, "token": "wr0ng"}) == ("fail", f"the REST catalog at {rest} answers 401 Unauthorized")
    status, message = checked({**fields, "uri": "http://127.0.0.1:9"})
    assert (status, message.startswith("no REST catalog answers at http://127.0.0.1:9")) == ("fail", True)


def test_checks_of_folders(tmp_path: Path) -> None:
    assert checked({"kind": "delta_local", "path": str(tmp_path)}) == ("ok", f"folder {tmp_path}")
    missing = str(tmp_path / "none")
    assert checked({"kind": "delta_local", "path": missing}) == ("fail", f"folder {missing} does not exist")
    message = f"warehouse {missing} does not exist yet; the first load creates it"
    assert checked({"kind": "iceberg", "catalog_type": "hadoop", "warehouse": missing}) == ("ok", message)
    assert not system_of(connection_from_fields("x", {"kind": "delta_local", "path": missing})).location.store.exists()  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["delta_local", "iceberg"])
def test_a_task_that_stages_for_a_lake_is_sent_no_engine(kind: str, tmp_path: Path) -> None:
    fields = (
        {"path": str(tmp_path)} if kind == "delta_local" else {"catalog_type": "hadoop", "warehouse": str(tmp_path)}
    )
    target = target_of(connection_from_fields("lake", {"kind": kind, **fields}), ("s", "t"))
    lock = threading.Lock()  # stands for everything that a driver has and no task can have
    target.use(lambda: lock)  # type: ignore[arg-type, return-value]
    sent = pickle.loads(pickle.dumps(target))  # noqa: S301 - our own bytes
    assert sent.identity() == target.identity()
    with pytest.raises(UnsupportedError, match="not started here"):
        sent.engine()

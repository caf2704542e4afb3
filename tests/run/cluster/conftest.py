"""A cluster, and projects whose loads run on it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.services.s3 import s3_fields

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.services.postgres import PostgresServer
    from tests.services.s3 import S3Server
    from tests.services.standalone import ConnectServer

SOURCE = Path(__file__).resolve().parents[3] / "src"
PROJECT = Path(__file__).with_name("project")


@dataclass
class Project:
    """A folder with pipelines, and the connections that they use."""

    folder: Path
    connections: dict[str, dict[str, Any]]

    def drive(self, settings: dict[str, str], *names: str) -> dict[str, Any]:
        """Run pipelines in one process and return what became of each."""
        done = self.command([str(self.folder / "drive.py"), *names], settings)
        assert done.returncode == 0, done.stderr[-4000:]
        return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]

    def flow(self, settings: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command as a person does."""
        return self.command(["-m", "ematix_flow", *arguments], settings)

    def command(
        self, arguments: list[str], settings: dict[str, str], python: str = sys.executable
    ) -> subprocess.CompletedProcess[str]:
        """Run Python with the connections in its environment."""
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "SHOP_CONNECTIONS": json.dumps(self.connections)}
        return subprocess.run(
            [python, *arguments], cwd=self.folder, env={**environment, **settings}, capture_output=True,
            text=True, check=False, timeout=400,
        )  # fmt: skip

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Ask the target."""
        with psycopg.connect(self.connections["target"]["url"]) as target:
            return target.execute(query).fetchall()  # type: ignore[arg-type]


@pytest.fixture
def connected(connect_server: ConnectServer) -> dict[str, str]:
    """Return the variables of a command whose loads run over Connect on the cluster."""
    return {"EMATIX_FLOW_ENGINE": "spark", "EMATIX_FLOW_SPARK_REMOTE": connect_server.remote}


def _bucket(server: S3Server, bucket: str) -> dict[str, Any]:
    return {name: value for name, value in s3_fields(server, bucket).items() if name != "format"}


@pytest.fixture
def project(postgres_server: PostgresServer, s3_server: S3Server, tmp_path: Path) -> Iterator[Project]:
    """Return a project with a database of orders, a bucket of prices and an empty target."""
    folder = tmp_path / "project"
    shutil.copytree(PROJECT, folder, ignore=shutil.ignore_patterns("__pycache__"))
    source, target = postgres_server.create_database(), postgres_server.create_database()
    bucket = s3_server.create_database()
    with psycopg.connect(source) as filled:
        filled.execute("CREATE TABLE orders (id bigint PRIMARY KEY, note text)")
        filled.execute("INSERT INTO orders SELECT n, 'note ' || n FROM generate_series(1, 1000) n")
    s3_server.client().put_object(Bucket=bucket, Key="prices.csv", Body=b"id,price\n1,2.0\n2,4.0\n3,\n4,10.5\n")
    connections = {
        "source": {"kind": "postgres", "url": source},
        "target": {"kind": "postgres", "url": target},
        "bucket": s3_fields(s3_server, bucket, format="csv"),
        "duck": {"kind": "duckdb", "path": str(folder / "shop.duckdb")},
        "lite": {"kind": "sqlite", "path": str(folder / "shop.sqlite")},
        "outbox": s3_fields(s3_server, bucket, prefix="outbox"),
        "lake": {**_bucket(s3_server, bucket), "kind": "delta_s3", "prefix": "lake"},
    }
    yield Project(folder, connections)
    for url in (source, target):
        postgres_server.drop_database(url)

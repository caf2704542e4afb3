"""The documented examples as modules, and databases for them to run on."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.examples.databases import UserDatabase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from tests.examples.streaming import World
    from tests.services.kafka import KafkaBroker
    from tests.services.s3 import S3Server

README = Path(__file__).parent / "readme"


@pytest.fixture
def example() -> Iterator[Callable[..., ModuleType]]:
    """Return the function that runs an example's file as a new module."""
    loaded: list[str] = []

    def load(name: str, module: str | None = None) -> ModuleType:
        title = module or f"example_{name}"
        spec = importlib.util.spec_from_file_location(title, README / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        created = importlib.util.module_from_spec(spec)
        sys.modules[title] = created
        loaded.append(title)
        spec.loader.exec_module(created)
        return created

    yield load
    for title in loaded:
        sys.modules.pop(title, None)


@pytest.fixture
def postgres(postgres_url: str) -> UserDatabase:
    """Return an empty PostgreSQL database with the schemas of the examples."""
    database = UserDatabase(postgres_url)
    database.schemas("raw")
    return database


@pytest.fixture
def duck(duckdb_path: Path) -> UserDatabase:
    """Return a DuckDB file."""
    database = UserDatabase(f"duckdb:///{duckdb_path}")
    database.schemas("raw")
    return database


@pytest.fixture
def lite(sqlite_path: Path) -> UserDatabase:
    """Return an SQLite file."""
    return UserDatabase(f"sqlite:///{sqlite_path}")


@pytest.fixture
def mysql(mysql_url: str) -> Iterator[UserDatabase]:
    """Return an empty MariaDB database beside the ones that the examples name as schemas."""
    database = UserDatabase(mysql_url)
    mine = ("raw", "analytics")
    database.run(*(f"DROP DATABASE IF EXISTS {name}" for name in mine))
    database.schemas("raw")
    yield database
    database.run(*(f"DROP DATABASE IF EXISTS {name}" for name in mine))


@pytest.fixture(
    params=[
        pytest.param("postgres", marks=pytest.mark.service),
        pytest.param("mysql", marks=pytest.mark.service),
        "duck",
    ]
)
def default(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> UserDatabase:
    """Return one database after the other as the connection named `default`."""
    database: UserDatabase = request.getfixturevalue(request.param)
    monkeypatch.setenv("EMATIX_FLOW_DSN", database.url)
    return database


@pytest.fixture
def world(kafka_broker: KafkaBroker, postgres: UserDatabase, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Return a broker with the topics of the documents and an empty warehouse, named as the documents name them."""
    from tests.examples.streaming import World

    created = World(kafka_broker, postgres)
    for name, value in created.environment.items():
        monkeypatch.setenv(name, value)
    topics = [
        kafka_broker.create_topic(name=name)
        for name in ("events", "quotes", "events-failed", "orders", "payments", "dbserver1.public.customers")
    ]
    yield created
    for topic in topics:
        kafka_broker.drop_topic(topic)


@pytest.fixture
def stored(world: World, s3_server: S3Server) -> Iterator[World]:
    """Return the world with the buckets of the documents, empty."""
    client = s3_server.client()
    for bucket in ("ematix-archive", "market"):
        s3_server.execute(f"bucket {bucket}")
    yield replace(world, s3=s3_server)
    for bucket in ("ematix-archive", "market"):
        for entry in client.list_objects_v2(Bucket=bucket).get("Contents", ()):
            client.delete_object(Bucket=bucket, Key=entry["Key"])
        client.delete_bucket(Bucket=bucket)

"""The documented examples as modules, and databases for them to run on."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.examples.places import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from tests.examples.streaming import World
    from tests.services.kafka import KafkaBroker
    from tests.services.s3 import S3Server

README = Path(__file__).parent / "readme"


@pytest.fixture
def example() -> Iterator[Callable[..., ModuleType]]:
    """Give the function that runs an example's file as a new module."""
    loaded: list[str] = []

    def load(name: str, module: str | None = None) -> ModuleType:
        title = module or f"example_{name}"
        spec = importlib.util.spec_from_file_location(title, README / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        made = importlib.util.module_from_spec(spec)
        sys.modules[title] = made
        loaded.append(title)
        spec.loader.exec_module(made)
        return made

    yield load
    for title in loaded:
        sys.modules.pop(title, None)


@pytest.fixture
def postgres(postgres_url: str) -> Place:
    """Give an empty PostgreSQL database with the schemas of the examples."""
    place = Place(postgres_url)
    place.schemas("raw")
    return place


@pytest.fixture
def duck(duckdb_path: Path) -> Place:
    """Give a DuckDB file."""
    place = Place(f"duckdb:///{duckdb_path}")
    place.schemas("raw")
    return place


@pytest.fixture
def lite(sqlite_path: Path) -> Place:
    """Give an SQLite file."""
    return Place(f"sqlite:///{sqlite_path}")


@pytest.fixture
def mysql(mysql_url: str) -> Iterator[Place]:
    """Give an empty MariaDB database beside the ones that the examples name as schemas."""
    place = Place(mysql_url)
    mine = ("raw", "analytics")
    place.run(*(f"DROP DATABASE IF EXISTS {name}" for name in mine))
    place.schemas("raw")
    yield place
    place.run(*(f"DROP DATABASE IF EXISTS {name}" for name in mine))


@pytest.fixture(
    params=[
        pytest.param("postgres", marks=pytest.mark.service),
        pytest.param("mysql", marks=pytest.mark.service),
        "duck",
    ]
)
def default(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Give one database after the other as the connection named `default`."""
    place: Place = request.getfixturevalue(request.param)
    monkeypatch.setenv("EMATIX_FLOW_DSN", place.url)
    return place


@pytest.fixture
def world(kafka_broker: KafkaBroker, postgres: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Give a broker with the topics of the documents and an empty warehouse, named as the documents name them."""
    from tests.examples.streaming import World

    made = World(kafka_broker, postgres)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    topics = [
        kafka_broker.create_topic(name=name)
        for name in ("events", "quotes", "events-failed", "orders", "payments", "dbserver1.public.customers")
    ]
    yield made
    for topic in topics:
        kafka_broker.drop_topic(topic)


@pytest.fixture
def stored(world: World, s3_server: S3Server) -> Iterator[World]:
    """Give the world with the buckets of the documents, empty."""
    client = s3_server.client()
    for bucket in ("ematix-archive", "market"):
        s3_server.execute(f"bucket {bucket}")
    yield replace(world, s3=s3_server)
    for bucket in ("ematix-archive", "market"):
        for found in client.list_objects_v2(Bucket=bucket).get("Contents", ()):
            client.delete_object(Bucket=bucket, Key=found["Key"])
        client.delete_bucket(Bucket=bucket)

"""The same by Feast with PostgreSQL as its offline store: `feast_features.py training|load|online ...`."""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pandas as pd
from feast import Entity, FeatureStore, FeatureView, Field, RepoConfig, ValueType
from feast.infra.offline_stores.contrib.postgres_offline_store.postgres_source import PostgreSQLSource
from feast.types import Float64, Int64
from online_figures import write_figures


def postgres():
    """Return the fields of the database."""
    url = urlsplit(os.environ["BENCH_SRC_URL"])
    return {
        "host": url.hostname,
        "port": url.port,
        "database": url.path.lstrip("/"),
        "user": unquote(url.username or ""),
        "password": unquote(url.password or ""),
        "sslmode": "disable",
    }


def store(kind):
    """Return a store whose registry and SQLite file are in the home of this contender."""
    home = Path.home()
    online = {"type": "sqlite", "path": str(home / "online.db")}
    if kind == "postgres":
        online = {"type": "postgres", **postgres(), "db_schema": "feast_online"}
    config = RepoConfig(
        project="bench",
        provider="local",
        registry=str(home / "registry.db"),
        offline_store={"type": "postgres", **postgres(), "db_schema": "features"},
        online_store=online,
        entity_key_serialization_version=3,
    )
    return FeatureStore(config=config)


def views(number=1):
    """Declare the entity and so many views over the tables of versions."""
    entity = Entity(name="entity", join_keys=["entity"], value_type=ValueType.INT64)
    return entity, [
        FeatureView(
            name=f"v{one}",
            entities=[entity],
            ttl=timedelta(0),
            schema=[Field(name="first", dtype=Int64), Field(name="second", dtype=Float64)],
            source=PostgreSQLSource(
                name=f"source{one}",
                query=f"SELECT entity, first, second, ts FROM features.v{one}",
                timestamp_field="ts",
            ),
        )
        for one in range(number)
    ]


def training(spine, rows, number):
    """Build a training set of so many views and return the number of its values."""
    feast = store("sqlite")
    entity, declared = views(number)
    feast.apply([entity, *declared])
    frame = pd.read_parquet(spine).rename(columns={"as_of": "event_timestamp"})
    features = [f"v{one}:{name}" for one in range(number) for name in ("first", "second")]
    features_frame = feast.get_historical_features(entity_df=frame, features=features, full_feature_names=True).to_df()
    if len(features_frame) != rows:
        sys.exit(f"{len(features_frame)} rows instead of {rows}")
    return int(features_frame[f"v{number - 1}__second"].notna().sum())


def load(kind, entities):
    """Write the values that are served into the online store."""
    feast = store(kind)
    entity, declared = views()
    feast.apply([entity, declared[0]])
    numbers = range(entities)
    frame = pd.DataFrame({"entity": numbers, "first": numbers, "second": [n * 0.5 for n in numbers]})
    frame["ts"] = datetime(2025, 10, 9, tzinfo=UTC)
    feast.write_to_online_store("v0", frame)


def online(kind, reads, entities):
    """Read one key at a time and return how long each took."""
    feast, took = store(kind), []
    features = ["v0:first", "v0:second"]
    for number in range(reads):
        key, began = number * 7919 % entities, time.perf_counter()
        values = feast.get_online_features(features=features, entity_rows=[{"entity": key}]).to_dict()
        took.append(time.perf_counter() - began)
        if values["first"] != [key]:
            sys.exit(f"{values} is not of {key}")
    return took


if __name__ == "__main__":
    action, *arguments = sys.argv[1:]
    if action == "training":
        print(training(arguments[0], int(arguments[1]), int(arguments[2])))
    elif action == "load":
        load(arguments[0], int(arguments[1]))
    else:
        write_figures(online(arguments[0], int(arguments[1]), int(arguments[2])))

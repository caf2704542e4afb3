"""Feature views of the bench: training sets and online reads by this product: `features.py training|load|online ...`."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Annotated

from online_figures import write_figures

from ematix_flow import BigInt, Double, PostgresConnection, SQLiteConnection, TimestampTZ, connect, ematix, pk


def view(number):
    """Declare one of the views: two numbers of an entity, from an instant on."""

    @ematix.feature_view(
        schema="features", feature_version="v1", event_timestamp_column="ts", name=f"v{number}", online=number == 0
    )
    class View:
        entity: Annotated[BigInt, pk()]
        first: BigInt
        second: Double
        ts: TimestampTZ

    return View


def connection_of(kind):
    """Return the connection of a kind."""
    if kind == "sqlite":
        return SQLiteConnection(name="dst", path=str(Path.home() / "online.db"))
    return PostgresConnection(name="dst", url=os.environ["BENCH_SRC_URL"])


def training(engine, spine, rows, number):
    """Build a training set of so many views and return the number of its values."""
    import polars as pl

    views = [view(one) for one in range(number)]
    columns = {one: ["first", "second"] for one in views}
    frame = ematix.training_set(
        connection_of("postgres"),
        spine=pl.read_parquet(spine),
        feature_views=views,
        columns=columns,
        prefer="pandas",
        engine=engine,
    )
    if len(frame) != rows:
        sys.exit(f"{len(frame)} rows instead of {rows}")
    return int(frame.iloc[:, -1].notna().sum())


def load(kind, entities):
    """Load the values that are served."""
    import pyarrow as pa

    from ematix_flow.pipeline import sync

    numbers = range(entities)
    values = {"entity": list(numbers), "first": list(numbers), "second": [n * 0.5 for n in numbers]}
    rows = pa.table({**values, "ts": pa.array([1_760_000_000_000_000] * entities, pa.timestamp("us", tz="UTC"))})
    sync(target=view(0), source=rows, target_connection=connection_of(kind), mode="scd2")


def online(kind, reads, entities):
    """Read one key at a time and return how long each took."""
    declared, conn, took = view(0), connect(connection_of(kind)), []
    for number in range(reads):
        key, began = number * 7919 % entities, time.perf_counter()
        values = declared.online_features(conn, entity_keys={"entity": key}, columns=["first", "second"])
        took.append(time.perf_counter() - began)
        if values["first"] != key:
            sys.exit(f"{values} is not of {key}")
    return took


if __name__ == "__main__":
    action, *arguments = sys.argv[1:]
    if action == "training":
        print(training(arguments[0], arguments[1], int(arguments[2]), int(arguments[3])))
    elif action == "load":
        load(arguments[0], int(arguments[1]))
    else:
        write_figures(online(arguments[0], int(arguments[1]), int(arguments[2])))

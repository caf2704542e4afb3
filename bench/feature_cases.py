"""What is measured of features: training sets of three views, and online reads of one key at a time."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import environments
import measure
from cases import CONTENDERS, OURS, Case, Command, no_preparation

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cases import Bench

VERSIONS = 10
"""Versions of an entity in a view."""

ENTITIES = 100_000
"""Entities that are served online."""

ENGINES = {"ours": "spark", "database": "database"}


def versions(bench: Bench, views: int, each: int) -> None:
    """Make the tables of versions, as loads leave them: so many of each view."""
    if "versions" in bench.known:
        return
    bench.known.add("versions")
    entities = max(1, each // VERSIONS)
    bench.server.recreate("src")
    for number in range(views):
        table = f"features.v{number}"
        at = "timestamptz '2026-01-01' + v * interval '1 day' + e % 86400 * interval '1 s'"
        bench.server.sql(
            "src",
            "CREATE SCHEMA IF NOT EXISTS features",
            f"CREATE TABLE {table} (entity bigint, first bigint, second double precision, ts timestamptz, "
            "valid_from timestamptz, valid_to timestamptz, is_current boolean, _loaded_at timestamptz, _batch_id uuid)",
            f"INSERT INTO {table} SELECT e, e * {VERSIONS} + v, e * 0.5 + v, {at}, {at}, "
            f"CASE WHEN v < {VERSIONS - 1} THEN {at} + interval '1 day' END, v = {VERSIONS - 1}, now(), gen_random_uuid() "
            f"FROM generate_series(1, {entities}) AS e, generate_series(0, {VERSIONS - 1}) AS v",
            f"ALTER TABLE {table} ADD PRIMARY KEY (entity, valid_from)",
            f"VACUUM ANALYZE {table}",
        )


def spine(bench: Bench, times: int) -> Path:
    """Write the spine as a Parquet file: every row is an entity at an instant within the time of its versions, or before."""
    import duckdb

    file = environments.WORK / "files" / f"spine-{bench.rows}-{times}.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    entities = max(1, bench.rows * times // VERSIONS)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(
            f"COPY (SELECT CAST(i * 7919 % {entities} + 1 AS BIGINT) AS entity, i % 2 AS label, "
            f"TIMESTAMPTZ '2025-12-31 00:00:00+00' + to_seconds(CAST(i * 104729 % 1000000 AS BIGINT)) AS as_of "
            f"FROM range({bench.rows}) AS r(i)) TO '{file}' (FORMAT parquet)"
        )
    return file


def training(views: int, times: int) -> Callable[[Bench, str, int], Command]:
    """Return the command that builds a training set; every view has so many times the versions that the spine has rows."""

    def command(bench: Bench, contender: str, number: int) -> Command:
        del number
        versions(bench, views, bench.rows * times)
        arguments: tuple[object, ...] = (spine(bench, times), bench.rows, views)
        if contender in ENGINES:
            arguments = (ENGINES[contender], *arguments)
        return _command(bench, contender, "training", *arguments)

    return command


def served(kind: str) -> Callable[[Bench, str], None]:
    """Return the preparation of online reads: the store has the values of all entities."""

    def prepare(bench: Bench, contender: str) -> None:
        if "online" not in bench.known:
            bench.server.recreate("src")
            bench.known.add("online")
        command = _command(bench, contender, "load", kind, ENTITIES)
        measure.run(command.arguments, command.env)

    return prepare


def online(kind: str) -> Callable[[Bench, str, int], Command]:
    """Return the command that reads one key after the other."""

    def command(bench: Bench, contender: str, number: int) -> Command:
        del number
        return _command(bench, contender, "online", kind, bench.rows, ENTITIES)

    return command


def read_figures(bench: Bench, contender: str) -> dict[str, float]:
    """Return what a command measured of its reads."""
    figures: dict[str, float] = json.loads((bench.home(contender) / "figures").read_text())
    return figures


def _command(bench: Bench, contender: str, action: str, *arguments: object) -> Command:
    ours = contender in OURS
    python = sys.executable if ours else environments.python_of(contender)
    program = CONTENDERS / ("features.py" if ours else "feast_features.py")
    more = {"EMATIX_FLOW_ENGINE": "local"} if ours and action != "training" else {}
    return Command([python, program, action, *map(str, arguments)], bench.env(contender, **more))


FEATURE_CASES = (
    Case("training", "a training set of three views as a pandas frame", 1_000_000, ("ours", "database", "feast"), no_preparation, training(3, 1), watch=True),
    Case("training-large", "a training set of five views with ten versions for each row, 2 GiB of Java heap", 1_000_000, ("ours",), no_preparation, training(5, 10), rounds=1, watch=True, heap="2g"),
    Case("online-postgres", "online reads of one key, PostgreSQL", 20_000, ("ours", "feast"), served("postgres"), online("postgres"), figures=read_figures),
    Case("online-sqlite", "online reads of one key, SQLite", 20_000, ("ours", "feast"), served("sqlite"), online("sqlite"), figures=read_figures),
)  # fmt: skip

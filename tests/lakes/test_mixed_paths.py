"""Rows on their way through systems of different kinds: every type, NULLs and extremes, compared value by value.

What a load wrote is read by somebody else than the load: the driver of a database, or Arrow for the files of a lake.
"""

from __future__ import annotations

import io
import json
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ematix_flow.connect.formats.writers import writer
from tests.engine.bucket_loads import Bucket
from tests.engine.every_type import ODD_FLOATS, ROWS, TYPES, Journey, frame_of, plain
from tests.examples.databases import UserDatabase
from tests.lakes.targets import lake_fields
from tests.services.s3 import s3_fields

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services.postgres import PostgresServer
    from tests.services.s3 import S3Server

pytestmark = [pytest.mark.spark, pytest.mark.service, pytest.mark.slow, pytest.mark.xdist_group("lakes")]

POSTGRES = (
    "id BIGINT, small SMALLINT, whole INTEGER, single REAL, double DOUBLE PRECISION, flag BOOLEAN, words TEXT, "
    "short VARCHAR(20), day DATE, at TIMESTAMP, instant TIMESTAMPTZ, doc JSON, docb JSONB, uid UUID, raw BYTEA, "
    "money NUMERIC(12, 2), wide NUMERIC(38, 10), longest NUMERIC(38), finest NUMERIC(38, 30)"
)


def give(url: str, rows: list[dict[str, Any]], table: str = "given") -> None:
    """Put rows into a PostgreSQL table by its own driver."""
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        connection.execute(f"CREATE TABLE IF NOT EXISTS {table} ({POSTGRES})".encode())
        placeholders = ", ".join(["%s"] * len(TYPES))
        for row in rows:
            connection.execute(f"INSERT INTO {table} VALUES ({placeholders})".encode(), [row[name] for name in TYPES])


def files_of(folder: Path, kind: str = "iceberg", table: str = "main/every") -> list[dict[str, Any]]:
    """Return the rows of a lake table that was written once, from its Parquet files."""
    table_folder = folder / ("warehouse" if kind == "iceberg" else "lake") / table
    paths = sorted((table_folder / "data" if kind == "iceberg" else table_folder).rglob("*.parquet"))
    tables = [pq.read_table(path, coerce_int96_timestamp_unit="us") for path in paths]
    return [row for one in tables for row in one.to_pylist()]


@pytest.mark.deep
def test_postgres_to_iceberg_and_on_to_files(postgres_url: str, tmp_path: Path) -> None:
    rows = [*ROWS, *ODD_FLOATS]
    give(postgres_url, rows)
    journey, lake = Journey(tmp_path), lake_fields("iceberg", tmp_path)
    result = journey.load("SELECT * FROM given", lake, source={"kind": "postgres", "url": postgres_url})
    assert result["rows_inserted"] == len(rows)
    assert plain(files_of(tmp_path)) == plain(rows)
    folders = [
        {"kind": "object_store_local", "path": str(tmp_path / name), "format": name}
        for name in ("json_lines", "parquet")
    ]
    result = journey.load("SELECT * FROM main.every", *folders, source=lake, schema="out")
    assert [one["rows_inserted"] for one in result.values()] == [len(rows)] * 2
    (file,) = (tmp_path / "parquet" / "out" / "every1").glob("*.parquet")
    assert plain(pq.read_table(file).to_pylist()) == plain(rows)
    written = [line for path in (tmp_path / "json_lines" / "out").rglob("*.jsonl") for line in _lines(path)]
    lines = [json.loads(line, parse_float=Decimal) for line in written]
    check_lines(lines, rows)


def check_lines(lines: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    """Compare objects of JSON as a reader that knows nothing of us takes them."""
    by_id = {line["id"]: line for line in lines}
    assert sorted(by_id) == sorted(row["id"] for row in rows)
    for row in rows:
        line = by_id[row["id"]]
        assert {name for name in TYPES if name in line} == {name for name in TYPES if row[name] is not None}
        for name in ("id", "small", "whole", "flag", "words", "short", "uid"):
            assert line.get(name) == row[name]
        for name in ("money", "wide", "longest", "finest"):
            assert (None if name not in line else Decimal(line[name])) == row[name]
        if row["instant"] is not None:
            assert line["instant"] == row["instant"].replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
        if row["raw"] is not None:
            assert line["raw"] == row["raw"].hex()
    assert [by_id[100 + n]["double"] for n in range(3)] == ["nan", "inf", "-inf"]


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").rstrip("\n").split("\n")


@pytest.mark.deep
def test_csv_in_a_bucket_to_delta_and_on_to_mysql(
    s3_server: S3Server, s3_bucket: str, mysql_url: str, tmp_path: Path
) -> None:
    bucket = Bucket(s3_fields(s3_server, s3_bucket, prefix="lake", format="csv"))
    sink = io.BytesIO()
    frame = frame_of(ROWS).to_batches()
    written = writer("csv", sink, frame[0].schema, {})
    for batch in frame:
        written.write(batch)
    bucket.put("in/every.csv", sink.getvalue())
    journey, lake = Journey(tmp_path), lake_fields("delta_local", tmp_path)
    result = journey.load("in/*.csv", lake, source=bucket.fields, column_map={"raw": "unhex(raw)"})
    assert result["rows_inserted"] == len(ROWS)
    assert plain(files_of(tmp_path, "delta_local")) == plain(ROWS)
    schema = mysql_url.rpartition("/")[2]
    journey.load("SELECT * FROM main.every", {"kind": "mysql", "url": mysql_url}, source=lake, schema=schema)
    names = ", ".join(f"`{name}`" for name in TYPES)
    rows = UserDatabase(mysql_url).rows(f"SELECT {names} FROM {schema}.every")
    assert plain(dict(zip(TYPES, row, strict=True)) for row in rows) == plain(ROWS)


@pytest.mark.deep
def test_one_of_two_targets_is_down_and_catches_up(
    postgres_server: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    import sqlite3

    with closing(sqlite3.connect(tmp_path / "source.db")) as connection, connection:
        connection.execute("CREATE TABLE things (id INTEGER, words TEXT)")
        connection.executemany("INSERT INTO things VALUES (?, ?)", [(1, "one"), (2, None)])
    source, lake = {"kind": "sqlite", "path": str(tmp_path / "source.db")}, lake_fields("iceberg", tmp_path)
    database = {"kind": "postgres", "url": postgres_url}
    types = {"id": TYPES["id"], "words": TYPES["words"]}
    journey = Journey(tmp_path)

    def load() -> dict[str, Any]:
        return journey.load(
            "SELECT id, words FROM things", database, lake, source=source, types=types, continue_on_failure=True
        )

    def in_postgres() -> list[tuple[Any, ...]]:
        return sorted(UserDatabase(postgres_url).rows("SELECT id, words FROM main.every"))

    def in_lake() -> list[tuple[Any, ...]]:
        return sorted((row["id"], row["words"]) for row in files_of(tmp_path, table="main/every1"))

    both = [(1, "one"), (2, None)]
    assert sorted(load()) == ["main.every", "main.every1"]
    assert (in_postgres(), in_lake()) == (both, both)
    with closing(sqlite3.connect(tmp_path / "source.db")) as connection, connection:
        connection.execute("DELETE FROM things")
        connection.execute("INSERT INTO things VALUES (3, 'three')")
    postgres_server.stop()
    outcome = load()
    assert sorted(outcome["results"]) == ["main.every1"]
    assert sorted(outcome["errors"]) == ["main.every"]
    assert in_lake() == [*both, (3, "three")]
    postgres_server.start()
    load()
    assert (in_postgres(), in_lake()) == ([*both, (3, "three")], [*both, (3, "three")])


AT = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
NESTED = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "tags": pa.array([["a", None, 'q"'], [], None], pa.list_(pa.string())),
        "where": pa.array(
            [{"x": 1, "at": AT}, {"x": None, "at": None}, None],
            pa.struct([("x", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))]),
        ),
        "more": pa.array([[("k", [1])], [], None], pa.map_(pa.string(), pa.list_(pa.int32()))),
    }
)
DOCUMENTS = [
    {"id": 1, "tags": ["a", None, 'q"'], "where": {"x": 1, "at": "2026-01-02T03:04:05.678901Z"}, "more": {"k": [1]}},
    {"id": 2, "tags": [], "where": {"x": None, "at": None}, "more": {}},
    {"id": 3, "tags": None, "where": None, "more": None},
]
NESTED_TYPES = {"id": TYPES["id"], **dict.fromkeys(("tags", "where", "more"), TYPES["doc"])}


@pytest.mark.deep
def test_nested_columns_become_documents(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(NESTED, tmp_path / "in" / "a.parquet")
    source = {"kind": "object_store_local", "path": str(tmp_path / "in"), "format": "parquet"}
    lakes = [lake_fields(kind, tmp_path) for kind in ("delta_local", "iceberg")]
    journey = Journey(tmp_path)
    journey.load("a.parquet", *lakes, source=source, types=NESTED_TYPES)
    for kind, table in (("delta_local", "main/every"), ("iceberg", "main/every1")):
        assert plain(files_of(tmp_path, kind, table), NESTED_TYPES) == plain(DOCUMENTS, NESTED_TYPES)
    # And back from a lake that has such types itself.
    nested = "STRUCT<x: BIGINT, at: TIMESTAMP>"
    query = (
        f"SELECT id, from_json(tags, 'ARRAY<STRING>') AS tags, from_json(`where`, '{nested}') AS `where`, "
        "from_json(more, 'MAP<STRING, ARRAY<INT>>') AS more FROM main.every"
    )
    rows = journey.rows_in(lakes[0], query, types=NESTED_TYPES)
    assert plain(rows, NESTED_TYPES) == plain(DOCUMENTS, NESTED_TYPES)


@pytest.mark.deep
def test_nested_columns_of_frames_become_documents(tmp_path: Path) -> None:
    target = {"kind": "duckdb", "path": str(tmp_path / "found.duckdb")}
    Journey(tmp_path).load(NESTED, target, types=NESTED_TYPES)
    with duckdb.connect(str(tmp_path / "found.duckdb")) as connection:
        rows = connection.sql("SELECT * FROM main.every").to_arrow_table().to_pylist()
    assert plain(rows, NESTED_TYPES) == plain(DOCUMENTS, NESTED_TYPES)

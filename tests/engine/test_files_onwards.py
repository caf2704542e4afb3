"""A table that one pipeline writes as files is the source of the next: files to files to DuckDB, also after a crash."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from ematix_flow import failpoints
from ematix_flow.connect.files.source import Files
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text, TimestampTZ
from ematix_flow.engine import Options, run_pipeline
from ematix_flow.engine.batch import load as loading
from ematix_flow.failpoints import FailpointError
from ematix_flow.run_log import SqliteRunLog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ematix_flow.declare.connection.registry import Connection

COLUMNS = (
    Column(BigInt(), nullable=False, primary_key=True, name="id"),
    Column(Text(), name="what"),
    Column(TimestampTZ(), name="seen"),
)
AT = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
TEXT = 'it\'s "x", \\ \n end '


class StreamContext:
    """A DuckDB table, a lake of CSV and ORC files, and a warehouse, with a pipeline from each to the next."""

    def __init__(self, folder: Path, spark: SparkSession | None) -> None:
        self.folder = folder
        self.options = {"run_log": SqliteRunLog(folder / "run_log.db"), "spark": spark}
        self.lake = {name: self._connection("object_store_local", "lake", format=name) for name in ("csv", "orc")}
        self.origin, self.warehouse = (self._connection("duckdb", f"{name}.duckdb") for name in ("origin", "warehouse"))
        with duckdb.connect(str(folder / "origin.duckdb")) as connection:
            connection.execute("CREATE TABLE raw (id BIGINT, what VARCHAR, seen TIMESTAMPTZ)")

    def _connection(self, kind: str, name: str, **fields: str) -> Connection:
        return connection_from_fields(f"{kind} {name}", {"kind": kind, "path": str(self.folder / name), **fields})

    def give(self, *keys: int) -> None:
        with duckdb.connect(str(self.folder / "origin.duckdb")) as connection:
            connection.execute("DELETE FROM raw")
            for key in keys:
                connection.execute("INSERT INTO raw VALUES (?, ?, ?)", [key, TEXT if key % 2 else None, AT])

    def load(self, schema: str, source: Connection, target: Connection, what: str, mode: str) -> dict[str, Any]:
        declared = TargetDeclaration(Table(schema, "events", COLUMNS), write(mode), target)
        pipeline = Pipeline(f"to {schema}", lambda: what, (declared,), source_connection=source)
        return run_pipeline(pipeline, Options(**self.options))  # type: ignore[no-any-return, arg-type]

    def first(self) -> dict[str, Any]:
        return self.load("raw", self.origin, self.lake["csv"], "SELECT * FROM raw", "append")

    def onwards(self) -> list[tuple[Any, ...]]:
        """Load what is in the lake from CSV to ORC to DuckDB and return the rows there."""
        self.load("clean", self.lake["csv"], self.lake["orc"], "raw/events", "truncate")
        self.load("mart", self.lake["orc"], self.warehouse, "clean/events", "merge")
        with duckdb.connect(str(self.folder / "warehouse.duckdb")) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            return connection.execute("SELECT id, what, seen FROM mart.events ORDER BY id").fetchall()


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a load end after its record as if its process had been killed: nothing is told to anybody."""
    monkeypatch.setattr(loading, "_note_failure", lambda *_: None)
    yield
    failpoints.arm("")


def dies_after_its_record(context: StreamContext) -> None:
    failpoints.arm("store.after_record=raise@2")
    with pytest.raises(FailpointError):
        context.first()
    failpoints.arm("")


def shown(context: StreamContext) -> int:
    return len(list((context.folder / "lake" / "raw").rglob("*.csv")))


@pytest.mark.spark
@pytest.mark.usefixtures("dying")
def test_rows_pass_from_files_to_files_to_a_database(tmp_path: Path, spark: SparkSession) -> None:
    context = StreamContext(tmp_path, spark)
    for keys in ((1, 2), (3,)):
        context.give(*keys)
        context.first()
    context.give(4)
    dies_after_its_record(context)
    assert shown(context) == 2, "the third file waits for its name"
    assert context.onwards() == [(1, TEXT, AT), (2, None, AT), (3, TEXT, AT), (4, None, AT)]
    assert context.first()["recovered"] is True
    assert shown(context) == 3


@pytest.mark.slow
@pytest.mark.usefixtures("dying")
def test_a_reader_of_a_folder_further_down_sees_what_was_committed(tmp_path: Path) -> None:
    context = StreamContext(tmp_path, None)
    context.give(1)
    context.first()
    dies_after_its_record(context)
    assert shown(context) == 1
    fields = {"kind": "object_store_local", "path": str(tmp_path / "lake" / "raw"), "format": "csv"}
    assert len(Files(connection_from_fields("below", fields)).file_set("events", {}).paths) == 2
    assert shown(context) == 2

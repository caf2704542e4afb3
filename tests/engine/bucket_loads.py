"""Loads of numbered rows into and out of a bucket; run as a program it makes one load, which a failpoint may end."""

from __future__ import annotations

import io
import json
import sqlite3
import sys
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from ematix_flow.connect.registry import target_of
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text
from ematix_flow.engine import Options, run_pipeline

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ematix_flow.connect.files.table import FileTables

TABLE = "sales/orders/"


@dataclass(frozen=True, slots=True)
class Bucket:
    """A connection to a bucket, and what stands in it."""

    fields: dict[str, Any]

    @property
    def tables(self) -> FileTables:
        """Return the bucket as a target."""
        return target_of(connection_from_fields("lake", self.fields))  # type: ignore[return-value]

    def keys(self, prefix: str = TABLE) -> list[str]:
        """Return the keys below a prefix."""
        return [entry.key for entry in self.tables.store.listed(prefix)]

    def rows(self, prefix: str = TABLE) -> list[tuple[Any, ...]]:
        """Return what readers of the folder see of a table of Parquet files, in order."""
        tables = [pq.read_table(io.BytesIO(self.tables.store.read(key) or b"")) for key in self.keys(prefix)]
        stored_rows = pa.concat_tables(tables).to_pylist() if tables else []
        return sorted((row["id"], row["label"]) for row in stored_rows)

    def put(self, key: str, data: bytes) -> None:
        """Write an object as somebody else would."""
        self.tables.store.put(key, data)  # type: ignore[attr-defined]


def write_source(path: Path, rows: Iterable[tuple[Any, ...]]) -> str:
    """Add rows to an SQLite table and return its path."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER, label TEXT)")
        connection.executemany("INSERT INTO orders VALUES (?, ?)", rows)
    return str(path)


def pipeline_of(source: dict[str, Any], target: dict[str, Any], returned: str, **options: Any) -> Pipeline:
    """Declare a load of orders."""
    name = options.pop("name", "orders")
    schema = "sales" if target["kind"].startswith("object_store") else "main"
    columns = (
        Column(BigInt(), nullable=False, primary_key=True, name="id"),
        Column(Text(), nullable=True, name="label"),
    )
    table = Table(schema, "orders", columns)
    return Pipeline(
        name=name,
        function=lambda: returned,
        targets=(
            TargetDeclaration(table, write(**{"mode": "append", **options}), connection_from_fields("target", target)),
        ),
        source_connection=connection_from_fields("source", source),
    )


def load(source: dict[str, Any], target: dict[str, Any], returned: str = "", **options: Any) -> dict[str, Any]:
    """Make one load as a person would."""
    return run_pipeline(pipeline_of(source, target, returned, **options), Options())


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    print(load(**arguments)["rows_inserted"])  # noqa: T201 - for the test that waits

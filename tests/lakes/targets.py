"""The same loads into a lake table and into a database, whose rows must be the same to the last column."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any

from ematix_flow.clock import Clock
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Double, Numeric, Text, TimestampTZ
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.batch.run import run_pipeline
from ematix_flow.engine.batch.target import target_for
from ematix_flow.engine.spark.session import session_for
from ematix_flow.plan.sql.render import native_name
from ematix_flow.run_log import SqliteRunLog
from tests.services.s3 import s3_fields

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest

    from ematix_flow.connect.base.database import Database

START = datetime(2026, 1, 1, tzinfo=UTC)
Row = tuple[int, str | None, float | None, str | None, datetime | None]
"""id, word, share, amount, at."""

COLUMNS = (
    Column(BigInt(), nullable=False, primary_key=True, name="id"),
    Column(Text(), nullable=True, name="word"),
    Column(Double(), nullable=True, name="share"),
    Column(Numeric(38, 4), nullable=True, name="amount"),
    Column(TimestampTZ(), nullable=True, name="at"),
)


MODES: dict[str, dict[str, Any]] = {
    "append": {"mode": "append", "incremental_column": "id"},
    "truncate": {"mode": "truncate"},
    "merge": {"mode": "merge", "compare_columns": ["word", "share"]},
    "merge_hard": {"mode": "merge", "handle_deletes": "hard"},
    "scd2_load": {"mode": "scd2", "handle_deletes": "soft"},
    "scd2_event": {
        "mode": "scd2",
        "event_timestamp_column": "at",
        "compare_columns": ["word", "share"],
        "ttl": timedelta(days=3),
    },
}


def lake_fields(kind: str, folder: Path, bucket: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the settings of a lake connection below a folder, or for kinds that end with `_s3` in a bucket."""
    if kind == "delta_s3":
        return {"kind": kind, "prefix": "lake", **(bucket or {})}
    if kind == "iceberg_s3":
        catalog = {"catalog_type": "jdbc", "uri": f"jdbc:sqlite:{folder / 'catalog.db'}", "prefix": "lake"}
        return {"kind": "iceberg", **catalog, **(bucket or {})}
    if kind == "iceberg_sql":
        catalog = {"catalog_type": "jdbc", "uri": f"jdbc:sqlite:{folder / 'catalog.db'}"}
        return {"kind": "iceberg", **catalog, "warehouse": str(folder / "warehouse")}
    if kind == "iceberg":
        return {"kind": kind, "catalog_type": "hadoop", "warehouse": str(folder / "warehouse")}
    return {"kind": kind, "path": str(folder / "lake")}


def bucket_of(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the settings that lead to an empty bucket of this test."""
    fields = s3_fields(request.getfixturevalue("s3_server"), request.getfixturevalue("s3_bucket"))
    return {name: value for name, value in fields.items() if name not in ("kind", "format")}


@dataclass
class TargetTable:
    """One target that load after load is made into."""

    fields: dict[str, Any]
    folder: Path
    options: dict[str, Any]
    table: Table = field(default_factory=lambda: Table("shop", "things", COLUMNS))
    count: int = 0

    def load(self, rows: Sequence[Row], slot: str | None = None, *, columns: str = "*") -> dict[str, Any]:
        """Make these rows the source and load them, an hour after the last load."""
        self.count += 1
        return self.again(rows, slot or f"slot-{self.count}", columns=columns)

    def again(self, rows: Sequence[Row], slot: str, *, columns: str = "*") -> dict[str, Any]:
        """Make these rows the source and ask for the load of a slot."""
        self.give(rows)
        now = START + timedelta(hours=self.count)
        log = SqliteRunLog(self.folder / "run_log.db")
        options = Options(slot=slot, run_log=log, clock=Clock(now=lambda: now, wait=lambda *_: False))
        return run_pipeline(self.pipeline(columns), options)  # type: ignore[no-any-return]

    def give(self, rows: Sequence[Row]) -> None:
        """Make these rows the source."""
        with closing(sqlite3.connect(self.folder / "source.db")) as connection, connection:
            connection.execute("DROP TABLE IF EXISTS things")
            connection.execute(
                "CREATE TABLE things (id INTEGER, word TEXT, share REAL, amount TEXT, at TIMESTAMPTZ, note TEXT)"
            )
            given = [(*row[:4], row[4].isoformat(" ") if row[4] else None, "n") for row in rows]
            connection.executemany("INSERT INTO things VALUES (?, ?, ?, ?, ?, ?)", given)

    def pipeline(self, columns: str = "*") -> Pipeline:
        """Declare the pipeline."""
        source = connection_from_fields("source", {"kind": "sqlite", "path": str(self.folder / "source.db")})
        return Pipeline(
            name="things",
            function=lambda: f"SELECT {columns} FROM things",
            targets=(TargetDeclaration(self.table, write(**self.options), self.connection),),
            source_connection=source,
        )

    @property
    def connection(self) -> Any:
        return connection_from_fields("target", self.fields)

    def database(self) -> Database:
        """Open the target as a load does."""
        return target_for(self.connection, self.table, session_for(Options()))

    def rows(self, columns: str = "*") -> list[tuple[Any, ...]]:
        """Return all rows of the target, every column in one spelling, in the order of their text."""
        database = self.database()
        with closing(database.session()) as session:
            table_name = native_name(database.table_name(self.table.schema, self.table.name), database.dialect)
            stored_rows = database.data(session).query(f"SELECT {columns} FROM {table_name}")
        return sorted((tuple(_plain(value) for value in row) for row in stored_rows), key=str)


def sample_rows(mode: str, number: int) -> list[Row]:
    """Return the rows of a load: keys come and go, values repeat, events come out of order."""
    random = Random(f"{mode}{number}")  # noqa: S311 - the same in every run
    keys = random.sample(range(8), 5) if mode != "append" else range(number * 5 + 1, number * 5 + 6)
    rows: list[Row] = []
    for key in keys:
        text = random.choice(["a", "b", "Zoë 🦉", "", None])
        share = random.choice([0.5, -0.0, 1e300, float("nan"), None])
        at = START + timedelta(days=-random.randrange(6), hours=random.randrange(20))
        rows.append((key, text, share, random.choice(["12.5", "-" + "9" * 20 + ".0001", None]), at))
    return rows


def row_counts(result: dict[str, Any]) -> dict[str, Any]:
    """Return what a run says of its rows, and its id, which is the same for the same load."""
    return {name: value for name, value in result.items() if name.startswith("rows_") or name == "run_id"}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    return (
        bytes(value).hex()
        if isinstance(value, bytes | bytearray | memoryview)
        else str(value)
        if value is not None
        else None
    )

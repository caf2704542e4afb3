"""scd2 of a stream into a table that is only named, as a file declares it: versions by load time and by event time."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from ematix_flow.declare.stream.toml_reader import stream_from_toml
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.run import run_stream
from ematix_flow.errors import DriftError

if TYPE_CHECKING:
    from pathlib import Path

STREAM = """
pipeline_name = "customers"
source_query = "*.jsonl"
[source]
kind = "object_store_local"
path = "{folder}"
format = "jsonl"
[target]
kind = "duckdb"
path = "{folder}/there.duckdb"
mode = "scd2"
{more}
[target.table]
schema = "main"
name = "customers"
"""


class Customers:
    """A folder of changes of customers."""

    def __init__(self, folder: Path, **more: str) -> None:
        self.folder, self.count = folder, 0
        lines = "\n".join(f"{name} = {value}" for name, value in {"keys": '["id"]', **more}.items())
        self.stream = stream_from_toml(STREAM.format(folder=folder, more=lines))

    def load(self, *rows: dict[str, Any]) -> None:
        self.count += 1
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (self.folder / f"{self.count}.jsonl").write_text(text)
        run_stream(self.stream, StreamOptions(available_now=True))

    def versions(self, columns: str) -> list[tuple[Any, ...]]:
        with closing(duckdb.connect(str(self.folder / "there.duckdb"))) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            return connection.execute(f"SELECT {columns} FROM main.customers ORDER BY valid_from, id").fetchall()


@pytest.mark.slow
def test_versions_by_load_time_in_a_table_that_the_stream_makes(tmp_path: Path) -> None:
    customers = Customers(tmp_path, create_table="true")
    customers.load({"id": 1, "city": "Rome"}, {"id": 2, "city": "Oslo"})
    customers.load({"id": 1, "city": "Bari"}, {"id": 1, "city": "Pisa"})
    customers.load({"id": 1, "city": "Pisa"})
    assert sorted(customers.versions("id, city, is_current, valid_to IS NULL")) == [
        (1, "Pisa", True, True), (1, "Rome", False, False), (2, "Oslo", True, True),
    ]  # fmt: skip


@pytest.mark.slow
def test_versions_by_event_time_come_in_any_order(tmp_path: Path) -> None:
    customers = Customers(tmp_path, create_table="true", event_timestamp_column='"at"')
    customers.load({"id": 1, "city": "Pisa", "at": "2026-01-03T00:00:00Z"})
    customers.load({"id": 1, "city": "Rome", "at": "2026-01-01T00:00:00Z"})
    customers.load({"id": 1, "city": "Bari", "at": "2026-01-02T00:00:00Z"})
    versions = customers.versions("city, CAST(CAST(valid_from AS DATE) AS VARCHAR), is_current")
    assert versions == [("Rome", "2026-01-01", False), ("Bari", "2026-01-02", False), ("Pisa", "2026-01-03", True)]


@pytest.mark.slow
def test_a_row_without_a_field_has_null_there_and_not_the_value_of_before(tmp_path: Path) -> None:
    customers = Customers(tmp_path, create_table="true")
    customers.load({"id": 1, "city": "Rome"})
    customers.load({"id": 1})
    assert customers.versions("city, is_current") == [("Rome", False), (None, True)]


@pytest.mark.slow
def test_a_table_that_is_there_needs_the_columns_of_versions(tmp_path: Path) -> None:
    customers = Customers(tmp_path)
    with closing(duckdb.connect(str(tmp_path / "there.duckdb"))) as connection:
        connection.execute("CREATE TABLE main.customers (id BIGINT PRIMARY KEY, city TEXT)")
    with pytest.raises(DriftError, match=r"column .valid_from. is missing"):
        customers.load({"id": 1, "city": "Rome"})

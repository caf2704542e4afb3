"""Hints name what a user can use: no column of ours, and the name that a database does not take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text
from ematix_flow.engine.api.sync import sync
from ematix_flow.errors import PlanError, did_you_mean, nearest
from tests.engine.existing_tables import existing_on

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = (Column(BigInt(), primary_key=True, name="id"), Column(Text(), name="raw"))


def test_no_hint_names_a_column_of_ours() -> None:
    assert nearest("flow_raw", ["_flow_raw", "_FLOW_position"]) is None
    assert did_you_mean("flow_raw", ["_flow_raw", "id"]) == "known: id."


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "lacks raw"),
        ({"mode": "scd2", "event_timestamp_column": "flow_raw", "column_map": {"raw": "id"}}, "time of an event"),
    ],
)
def test_what_a_source_has_is_told_without_our_columns(
    tmp_path: Path, request: pytest.FixtureRequest, options: dict[str, Any], message: str
) -> None:
    existing = existing_on("duckdb", tmp_path, request)
    table = Table("main", "things", COLUMNS)
    with pytest.raises(PlanError, match=message) as refused:
        sync(target=table, source=[{"id": 1, "word": "a"}], target_connection=existing.connection, **options)
    assert "_flow_" not in str(refused.value)
    assert "word" in str(refused.value)


def test_a_stream_is_told_of_the_columns_that_it_can_write(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    existing = existing_on("duckdb", tmp_path, request)
    existing.run("CREATE TABLE things (id INTEGER, _loaded_at TIMESTAMP, _batch_id UUID)")
    existing.put({"other": 1})
    with pytest.raises(PlanError, match="none of the columns") as refused:
        existing.drain()
    assert refused.value.hint == "the table has: id."


@pytest.mark.service
def test_a_name_that_mysql_does_not_take_is_told_with_the_letter(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    existing = existing_on("mysql", tmp_path, request)
    table = Table(existing.schema, "things", (COLUMNS[0], Column(Text(), name="mood 🎈")))
    with pytest.raises(PlanError, match="column name 'mood 🎈' has '🎈', which mysql takes in values but not in names"):
        sync(target=table, source=[{"id": 1, "mood 🎈": "a"}], target_connection=existing.connection)

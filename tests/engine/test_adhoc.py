# ruff: noqa: TC001 - annotations are looked up in this module while the tests run
"""Loads without a declaration, tables without a load, and pipelines by name."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from ematix_flow import BigInt, Text, _core, ematix, pipeline, pk
from ematix_flow.errors import FlowError
from ematix_flow.source import Source
from tests.examples.databases import UserDatabase

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


@ematix.table(schema="analytics")
class Items:
    item_id: Annotated[BigInt, pk()]
    name: Text | None


SELECT = "SELECT 1 AS item_id, 'a' AS name"


@pytest.fixture
def duck(duckdb_path: Path) -> UserDatabase:
    """Return a DuckDB file."""
    return UserDatabase(f"duckdb:///{duckdb_path}")


def test_sync_is_named_after_its_table_and_runs_like_any_pipeline(duck: UserDatabase) -> None:
    first = pipeline.sync(target=Items, source=SELECT, target_connection=duck.url, mode="merge")
    again = pipeline.sync(target=Items, source=SELECT, target_connection=duck.url, mode="merge")
    assert (first["status"], first["path"], first["rows_inserted"]) == ("success", "same_db", 1)
    assert (again["rows_inserted"], again["rows_unchanged"]) == (0, 1)
    assert duck.rows("SELECT DISTINCT pipeline_name FROM ematix_flow.run_history") == [("analytics.items",)]


def test_source_and_target_may_be_handles(duck: UserDatabase) -> None:
    conn = _core.connect(duck.url)
    result = pipeline.sync(target=Items, source=Source.duckdb_query(conn, SELECT), target_connection=conn)
    conn.close()
    assert result["rows_inserted"] == 1
    assert duck.count("analytics.items") == 1


def test_a_dry_run_counts_and_leaves_no_trace(duck: UserDatabase) -> None:
    duck.run("CREATE TABLE nothing (n INT)")
    result = pipeline.sync(target=Items, source=SELECT, target_connection=duck.url, dry_run=True)
    assert (result["status"], result["rows_inserted"]) == ("dry_run", 1)
    assert duck.rows("SELECT table_name FROM information_schema.tables") == [("nothing",)]


@pytest.mark.parametrize(
    ("keywords", "error"),
    [
        ({"mode": "upsert"}, NotImplementedError),
        ({"mode": "merge", "handle_deletes": "soft"}, NotImplementedError),
        ({"force_path": "fast"}, ValueError),
        ({"mode": "truncate", "incremental_column": "item_id"}, ValueError),
        ({"mode": "merge", "event_timestamp_column": "name"}, ValueError),
        ({"mode": "append", "ttl": timedelta(days=1)}, ValueError),
        ({"mode": "merge", "handle_deletes": "gone"}, ValueError),
        ({"mode": "append", "handle_deletes": "hard"}, ValueError),
        ({"mode": "merge", "handle_deletes": "hard", "incremental_column": "item_id"}, ValueError),
        ({"mode": "scd2", "handle_deletes": "hard"}, ValueError),
        ({"key": ["item_id"]}, TypeError),
        ({"source": {"a": 1}}, TypeError),
        ({"target": "items"}, TypeError),
        ({"target_connection": 5}, TypeError),
    ],
)
def test_a_wrong_call_is_refused_at_its_line(keywords: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        pipeline.sync(**{"target": Items, "source": SELECT, "target_connection": ":memory:", **keywords})
    assert isinstance(caught.value, FlowError)
    assert str(caught.value.origin).startswith(__file__)


def test_a_table_is_ensured_by_class_and_by_spec(duck: UserDatabase) -> None:
    conn = _core.connect(duck.url)
    assert Items.ensure(conn) == {"action": "created", "differences": []}
    assert conn.ensure_table(json.dumps(Items._to_spec())) == {"action": "matched", "differences": []}
    conn.close()
    duck.run("ALTER TABLE analytics.items ADD COLUMN more INT")
    with pytest.raises(ValueError, match="schema drift detected"):
        Items.ensure(duck.url)
    warned = Items.ensure(duck.url, on_drift="warn")
    assert (warned["action"], len(warned["differences"])) == ("drift", 1)
    with pytest.raises(ValueError, match="on_drift='maybe'"):
        Items.ensure(duck.url, on_drift="maybe")


def test_a_plain_function_runs_by_name_and_has_no_plan() -> None:
    @pipeline.register(name="nightly", schedule=None)
    def nightly() -> dict[str, int]:
        return {"n": 1}

    assert nightly() == pipeline.run_pipeline("nightly") == {"n": 1}
    assert pipeline.list_entries() == [{"name": "nightly", "kind": "pipeline", "schedule": None}]
    with pytest.raises(TypeError, match="is a plain function, which has no plan"):
        pipeline.preview("nightly")
    with pytest.raises(KeyError, match="did you mean 'nightly'"):
        pipeline.run_pipeline("nightli")

"""What a load writes about itself: history, ledger, fences; and what these keep from happening twice."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.commit.ledger import Ledger
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text
from ematix_flow.engine import run_pipeline
from ematix_flow.errors import CommitError, FencedError
from ematix_flow.events import RunStarted
from tests.contracts.flows import START, in_and_out

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contracts.flows import Flow, Row

    Flows = Callable[..., Flow]

pytestmark = pytest.mark.slow

ITEMS = Table("analytics", "items", (Column(BigInt(), primary_key=True, name="id"), Column(Text(), name="name")))
REASONS = {
    "database": "the target reads the source query itself",
    "spark": "rows move from one system to another",
    "local": 'the settings say engine = "local"',
}
HISTORY = [
    "run_id",
    "pipeline_name",
    "target_schema",
    "target_table",
    "mode",
    "path",
    "started_at",
    "finished_at",
    "status",
    "rows_inserted",
    "error_message",
    "rows_updated",
    "rows_unchanged",
    "parent_run_id",
    "step_name",
    "metrics_json",
]


def item(key: int, name: str = "n") -> Row:
    return {"id": key, "name": name}


@in_and_out
def test_the_history_has_a_row_per_run_with_its_counts(flows: Flows, path: str) -> None:
    flow = flows(ITEMS, mode="scd1")
    first = flow.run([item(1), item(2)])
    second = flow.run([item(1), item(2, "N"), item(3)])
    one, two = flow.points("run_history")
    expected_path = "same_db" if path == "same_db" else "cross_db"
    assert {name: two[name] for name in HISTORY} == {
        "run_id": second["run_id"],
        "pipeline_name": "flow",
        "target_schema": "analytics",
        "target_table": "items",
        "mode": "scd1",
        "path": expected_path,
        "started_at": START + timedelta(hours=2),
        "finished_at": START + timedelta(hours=2),
        "status": "success",
        "rows_inserted": 1,
        "error_message": None,
        "rows_updated": 1,
        "rows_unchanged": 1,
        "parent_run_id": None,
        "step_name": None,
        "metrics_json": two["metrics_json"],
    }
    who = "database" if path == "same_db" else second["engine"]
    assert json.loads(two["metrics_json"]) == {"engine": who, "engine_reason": REASONS[who]}
    assert (one["run_id"], one["rows_inserted"]) == (first["run_id"], 2)


def test_the_tables_have_the_documented_columns_in_the_documented_places(flows: Flows, system: Any) -> None:
    flow = flows(ITEMS, mode="append")
    flow.run([item(1)])
    flat = system.kind in ("sqlite", "mysql", "delta", "iceberg")
    with closing(flow.database.session()) as session:
        for name, columns in (
            ("run_history", HISTORY),
            ("watermarks", ["pipeline_name", "column_name", "last_value", "updated_at"]),
        ):
            table_name = flow.database.metadata_table(name)
            assert table_name.name == (f"ematix_flow_{name}" if flat else name)
            assert flat or table_name.schema == "ematix_flow"
            existing = flow.database.find_table(session, table_name)
            assert existing is not None
            assert [column.name for column in existing.columns][: len(columns)] == columns
            assert existing.primary_key == (columns[0],)


@in_and_out
def test_closed_versions_count_as_updated_rows_in_the_history(flows: Flows) -> None:
    flow = flows(ITEMS, mode="scd2")
    flow.run([item(1)])
    assert flow.run([item(1, "N")])["rows_closed"] == 1
    assert [row["rows_updated"] for row in flow.points("run_history")] == [0, 1]


@in_and_out
def test_a_failed_run_is_in_the_history_with_its_reason(flows: Flows) -> None:
    flow = flows(ITEMS, mode="truncate")
    flow.run([item(1)])
    with pytest.raises(CommitError):
        flow.run([])
    failed = flow.points("run_history")[-1]
    assert (failed["status"], failed["rows_inserted"]) == ("failed", None)
    assert "empty" in failed["error_message"]
    assert failed["finished_at"] is not None
    assert len(flow.points("ledger")) == 1, "a load that did not happen has no token"


@in_and_out
def test_the_ledger_has_a_token_per_load(flows: Flows) -> None:
    flow = flows(ITEMS, mode="merge", handle_deletes="hard")
    flow.run([item(1), item(2), item(3)], slot="one")
    result = flow.run([item(1), item(2, "N"), item(4)], slot="two")
    row = flow.points("ledger")[-1]
    assert (row["pipeline_name"], row["target_name"], row["slot"]) == ("flow", "target:analytics.items", "two")
    assert (row["run_id"], row["committed_at"]) == (result["run_id"], flow.now())
    counts = [row[f"rows_{name}"] for name in ("staged", "inserted", "updated", "unchanged", "deleted", "rejected")]
    assert counts == [3, 1, 1, 1, 1, 0]
    assert row["rows_staged"] == row["rows_inserted"] + row["rows_updated"] + row["rows_unchanged"]


@pytest.mark.every_system
@in_and_out
def test_a_load_that_is_asked_for_again_is_recovered_and_changes_nothing(flows: Flows) -> None:
    flow = flows(ITEMS, mode="append")
    first = flow.run([item(1)], slot="2026-01-01T00:00")
    before = flow.stamps(), flow.points("ledger"), flow.points("run_history")
    again = flow.run([item(1), item(2)], slot="2026-01-01T00:00")
    assert again["recovered"] is True
    assert (again["run_id"], again["rows_inserted"]) == (first["run_id"], 1)
    assert (flow.stamps(), flow.points("ledger"), flow.points("run_history")) == before
    flow.run([item(2)], slot="2026-01-02T00:00")
    assert [row["id"] for row in flow.rows()] == [1, 2]


@in_and_out
def test_a_slot_that_failed_is_loaded_by_its_next_attempt_under_the_same_run_id(flows: Flows) -> None:
    flow = flows(ITEMS, mode="append")
    flow.run([item(1)])
    with pytest.raises(CommitError):
        flow.run([item(1, "taken"), item(2)], slot="s")
    result = flow.run([item(2)], slot="s")
    rows = flow.points("run_history")
    assert [row["status"] for row in rows] == ["success", "success"]
    assert rows[-1]["run_id"] == result["run_id"]
    assert flow.stamps()[2][1] == result["run_id"]


@pytest.mark.every_system
@in_and_out
def test_an_older_run_may_not_commit_after_a_newer_one_began(flows: Flows) -> None:
    flow = flows(ITEMS, mode="append")
    flow.run([item(1)])
    options = flow.options("older")

    def overtake(event: object) -> None:
        if isinstance(event, RunStarted) and event.run_id not in run_ids:
            run_ids.add(event.run_id)
            run_pipeline(flow.pipeline, flow.options("newer"))

    run_ids: set[str] = set()
    options.bus.subscribe(overtake)
    flow.give([item(2)])
    with pytest.raises(FencedError):
        run_pipeline(flow.pipeline, options)
    assert [row["id"] for row in flow.rows()] == [1, 2]
    assert [row["slot"] for row in flow.points("ledger") if row["slot"] in ("older", "newer")] == ["newer"]


def test_a_run_that_never_ended_is_closed_by_the_next_one(flows: Flows) -> None:
    flow = flows(ITEMS, mode="append")
    flow.run([item(1)])
    status = "UPDATE {} SET status = 'running', finished_at = NULL"
    flow.execute(status.format(flow.metadata_name("run_history")))
    flow.run([item(2)])
    assert [row["status"] for row in flow.points("run_history")] == ["failed", "success"]
    assert flow.points("run_history")[0]["error_message"] == "interrupted"


def test_staging_is_gone_after_a_load(flows: Flows) -> None:
    flow = flows(ITEMS, mode="merge")
    flow.run([item(1)])
    with closing(flow.database.session()) as session:
        assert list(flow.database.stages(session)) == []


def test_a_newer_format_of_the_ledger_is_refused(flows: Flows) -> None:
    flow = flows(ITEMS, mode="append")
    flow.run([item(1)], slot="s")
    flow.execute(f"UPDATE {flow.metadata_name('ledger')} SET format_version = 99")
    with pytest.raises(CommitError, match="newer version"):
        flow.run([item(1)], slot="s")


def test_two_slots_of_two_pipelines_do_not_share_a_token(flows: Flows) -> None:
    one, two = flows(ITEMS, "one", mode="merge"), flows(ITEMS, "two", mode="merge")
    one.run([item(1)], slot="s")
    assert "recovered" not in two.run([item(2)], slot="s")
    assert [row["id"] for row in one.rows()] == [1, 2]
    with closing(one.database.session()) as session:
        ledger = Ledger(one.database)
        assert ledger.take_fence(session, "one", START).epoch == 2
        assert ledger.take_fence(session, "two", START).epoch == 2


def test_the_run_log_names_what_the_target_holds(flows: Flows) -> None:
    flow = flows(ITEMS, mode="merge")
    result = flow.run([item(1)])
    runs, total = flow.run_log.list_runs(pipeline="flow")
    assert total == 1
    assert (runs[0].run_id, runs[0].status, runs[0].rows_inserted) == (result["run_id"], "succeeded", 1)
    assert replace(runs[0], extras={}).target == "analytics.items"

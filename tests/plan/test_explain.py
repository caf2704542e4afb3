from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ematix_flow.plan.explain.report import TargetSummary, notes_of, plan_dict, statements_of, summary_of
from ematix_flow.plan.explain.text import connection_text, plan_lines
from ematix_flow.plan.sql.ddl import Difference
from ematix_flow.plan.steps import Bounds
from tests.plan.scenarios import SCENARIOS, WAREHOUSES, planned

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.plan.steps import Plan

PUBLIC = {
    "schema_qualified_name", "mode", "path", "path_reason", "augmented_columns", "declared_columns", "merge_keys",
    "merge_keys_reason", "compare_columns", "compare_columns_reason", "target_connection_name",
    "target_connection_info", "plan_sql", "plan_sql_label", "dry_run_rows_affected", "dry_run_error", "quality",
}  # fmt: skip


def text_of(plan: Plan, *, verbose: bool = True) -> str:
    return "\n".join(plan_lines(plan, [summary_of(target) for target in plan.targets], verbose=verbose)) + "\n"


@pytest.mark.parametrize("dialect", WAREHOUSES)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_plan_reads_as_somebody_last_agreed(name: str, dialect: str, golden: Callable[[str, str], None]) -> None:
    golden(f"{name}_{dialect}.txt", text_of(planned(name, dialect)))


@pytest.mark.parametrize("name", ["merge", "fan_out", "cross_db"])
def test_a_plan_as_json_reads_as_somebody_last_agreed(name: str, golden: Callable[[str, str], None]) -> None:
    plan = planned(name, "duckdb")
    data = plan_dict(plan, [summary_of(target) for target in plan.targets])
    golden(f"{name}.json", json.dumps(data, indent=2, default=str) + "\n")


@pytest.mark.parametrize("dialect", WAREHOUSES)
def test_no_secret_is_told(dialect: str) -> None:
    plan = planned("cross_db", dialect)
    data = plan_dict(plan, [summary_of(target) for target in plan.targets])
    assert "canary-pw" not in text_of(plan) + json.dumps(data, default=str)


def test_a_target_has_every_public_key() -> None:
    summary = summary_of(planned("merge", "duckdb").targets[0])
    assert summary.to_dict().keys() >= PUBLIC
    assert summary.to_dict()["merge_keys"] == ["id"]
    assert summary.merge_keys_reason == "from primary_key=True"
    assert summary.augmented_columns == ("_loaded_at", "_batch_id")
    assert summary.plan_sql_label == "ON CONFLICT upsert"


def test_what_could_not_be_planned_still_has_every_public_key() -> None:
    summary = TargetSummary("mart.orders", "merge", "warehouse", ("id",), dry_run_error="no such column")
    assert summary.to_dict().keys() == PUBLIC


def test_the_shown_statements_are_the_programs_own() -> None:
    target = planned("cross_db", "postgres").targets[0]
    assert statements_of(target) == target.commit.program.statements
    target_plan = planned("append", "postgres").targets[0]
    assert [s.purpose for s in statements_of(target_plan)] == ["keep the rows of the source query", "insert every row"]
    one = replace(target_plan, shape=replace(target_plan.shape, marked=False))
    assert len(statements_of(one)) == 1
    assert f"({one.read.sql})" in statements_of(one)[0].sql


def test_modes_in_common_are_the_pipelines_mode() -> None:
    plan = planned("fan_out", "duckdb")
    assert plan_dict(plan, [summary_of(t) for t in plan.targets])["mode"] is None
    assert plan_dict(plan, [summary_of(plan.targets[0])])["mode"] == "append"


def test_notes_are_told_once() -> None:
    plan = planned("fan_out", "duckdb")
    noted = replace(plan, notes=("a",), targets=tuple(replace(t, notes=("a", "b")) for t in plan.targets))
    assert notes_of(noted) == ("a", "b")


@pytest.mark.parametrize(
    ("exists", "message"), [(None, "not known"), (False, "is missing and is created"), (True, "exists as declared")]
)
def test_the_state_of_the_table_is_told(exists: bool | None, message: str) -> None:
    plan = planned("append", "duckdb")
    target = replace(plan.targets[0], ensure=replace(plan.targets[0].ensure, exists=exists, statements=()))
    assert message in text_of(replace(plan, targets=(target,)))


def test_differences_are_told_with_what_mends_them() -> None:
    plan = planned("append", "duckdb")
    differences = (Difference("column 'email' is missing", "ALTER TABLE t"), Difference("column 'x' is not declared"))
    ensure = replace(plan.targets[0].ensure, exists=True, statements=("ALTER TABLE t",), differences=differences)
    text = text_of(replace(plan, targets=(replace(plan.targets[0], ensure=ensure),)))
    assert "column 'email' is missing, fixed by the load\n" in text
    assert "column 'x' is not declared\n" in text


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        (Bounds("at", "1", "2"), "at after 1, up to 2"),
        (Bounds("at", None, "2"), "at from the beginning, up to 2"),
        (Bounds("at", "1", None), "at after 1; there is nothing new"),
        (Bounds("at", "1", None, fixed=False), "at after 1, up to the highest value when the load begins"),
    ],
)
def test_bounds_are_told(bounds: Bounds, message: str) -> None:
    plan = planned("append", "duckdb")
    read = replace(plan.targets[0].read, bounds=bounds)
    assert f"bounds    {message}\n" in text_of(replace(plan, targets=(replace(plan.targets[0], read=read),)))


def test_sql_is_told_only_when_asked_for() -> None:
    plan = planned("merge", "duckdb")
    assert "UPDATE" in text_of(plan)
    assert "UPDATE" not in text_of(plan, verbose=False)


def test_places_are_told_as_far_as_they_are_known() -> None:
    assert connection_text("w", None) == "w"
    assert connection_text("w", {"host": None, "dbname": "a.duckdb"}) == "w (a.duckdb)"
    assert connection_text("w", {"host": "h", "port": 5432, "dbname": "d", "user": "u"}) == "w (u@h:5432/d)"

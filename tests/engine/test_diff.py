"""What `flow plan --diff` foresees is what applying the plan then does, on every database and in every mode."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from ematix_flow import BigInt, Text, TimestampTZ, pk  # noqa: TC001 - read from annotations
from ematix_flow.declare.decorators import ematix
from ematix_flow.engine import apply_plan, diff_pipeline, run_pipeline
from ematix_flow.engine.batch.result import counts_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.declare.pipeline.pipeline import Pipeline
    from ematix_flow.engine.review.diff import DiffResult
    from tests.engine.conftest import Warehouse

    Declare = Callable[..., Pipeline]

pytestmark = pytest.mark.slow

MODES: dict[str, dict[str, Any]] = {
    "append": {"mode": "append", "incremental_column": "id"},
    "truncate": {"mode": "truncate"},
    "merge": {"mode": "merge"},
    "merge_deletes": {"mode": "merge", "handle_deletes": "hard"},
    "scd2": {"mode": "scd2"},
    "scd2_deletes": {"mode": "scd2", "handle_deletes": "soft"},
    "scd2_event": {"mode": "scd2", "event_timestamp_column": "seen"},
    "scd2_event_deletes": {"mode": "scd2", "event_timestamp_column": "seen", "handle_deletes": "soft"},
}

FORESEEN = {
    "append": (1, 0, 0, 0),
    "truncate": (1, 1, 1, 1),
    "merge": (1, 1, 0, 1),
    "merge_deletes": (1, 1, 1, 1),
    "scd2": (1, 1, 0, 1),
    "scd2_deletes": (1, 1, 1, 1),
    "scd2_event": (1, 1, 0, 1),
    "scd2_event_deletes": (1, 1, 1, 1),
}
"""Added, changed, removed and unchanged keys after one name changed, one row went and one came."""


def things(warehouse: Warehouse, declare: Declare, mode: str) -> Pipeline:
    """Declare the load of a table with an event time."""
    schema = warehouse.target.partition(".")[0] if warehouse.kind == "mysql" else "mart"

    @ematix.table(schema=schema, name="orders")
    class Orders:
        id: Annotated[BigInt, pk()]
        name: Text | None
        seen: TimestampTZ

    at = "'2026-01-02 00:00:00+00:00'" if warehouse.kind == "sqlite" else "TIMESTAMP '2026-01-02 00:00:00'"
    earlier = at.replace("01-02", "01-01")
    sql = f"SELECT id, name, CASE WHEN name = 'two' THEN {at} ELSE {earlier} END AS seen FROM {warehouse.orders}"
    return declare(warehouse, sql, target=Orders, **MODES[mode])


def change_source(warehouse: Warehouse) -> None:
    """Let one row change, one go and one come; of three rows before."""
    warehouse.run(
        f"UPDATE {warehouse.orders} SET name = 'two' WHERE id = 2",
        f"DELETE FROM {warehouse.orders} WHERE id = 1",
        f"INSERT INTO {warehouse.orders} VALUES (9, NULL)",
    )


def totals(result: DiffResult) -> tuple[int, int, int, int]:
    """Return added, changed, removed and unchanged of the only target."""
    (diff,) = result.targets
    return diff.added, diff.changed, diff.removed, diff.unchanged


def applied(result: DiffResult, mode: str) -> dict[str, Any]:
    """Apply a plan and check that it did what was foreseen."""
    done = apply_plan(result.plan_id)
    foreseen = counts_of(result.targets[0].counts, MODES[mode]["mode"])
    assert foreseen == {name: done[name] for name in foreseen}
    return done  # type: ignore[no-any-return]


@pytest.mark.in_turn
@pytest.mark.parametrize("mode", MODES)
def test_what_is_foreseen_is_what_is_done(warehouse: Warehouse, declare: Declare, mode: str) -> None:
    warehouse.run(f"INSERT INTO {warehouse.orders} VALUES (3, 'c')")
    pipeline = things(warehouse, declare, mode)
    first = diff_pipeline(pipeline)
    assert totals(first) == (3, 0, 0, 0)
    assert first.targets[0].statements
    assert applied(first, mode)["rows_inserted"] == 3
    change_source(warehouse)
    before = warehouse.rows(f"SELECT * FROM {warehouse.target} ORDER BY 1")
    result = diff_pipeline(pipeline)
    assert totals(result) == FORESEEN[mode]
    assert warehouse.rows(f"SELECT * FROM {warehouse.target} ORDER BY 1") == before
    done = applied(result, mode)
    after = warehouse.rows(f"SELECT * FROM {warehouse.target} ORDER BY 1")
    assert after != before
    again = apply_plan(result.plan_id)
    assert again == {**done, "path": "recovered", "engine": "none", "recovered": True}
    assert warehouse.rows(f"SELECT * FROM {warehouse.target} ORDER BY 1") == after


@pytest.mark.in_turn
@pytest.mark.parametrize("mode", ["merge_deletes", "scd2_event_deletes"])
def test_samples_tell_old_and_new_values(warehouse: Warehouse, declare: Declare, mode: str) -> None:
    warehouse.run(f"INSERT INTO {warehouse.orders} VALUES (3, 'c')")
    pipeline = things(warehouse, declare, mode)
    run_pipeline(pipeline)
    change_source(warehouse)
    (diff,) = diff_pipeline(pipeline).targets
    assert dict(diff.columns)["name"] == 1
    samples = {sample.kind: asdict(sample) for sample in diff.samples}
    assert (samples["added"]["key"], samples["added"]["old"]) == ({"id": 9}, None)
    assert samples["added"]["new"]["name"] is None
    assert samples["changed"]["key"] == {"id": 2}
    assert (samples["changed"]["old"]["name"], samples["changed"]["new"]["name"]) == ("b", "two")
    assert samples["changed"]["new"]["seen"].startswith("2026-01-02")
    assert (samples["removed"]["old"]["name"], samples["removed"]["new"]) == ("a", None)

"""A plan is applied to the target that it was compared with, or not at all."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from ematix_flow import BigInt, Text, pk  # noqa: TC001 - read from annotations
from ematix_flow.declare.decorators import ematix
from ematix_flow.engine import apply_plan, diff_pipeline, run_pipeline
from ematix_flow.engine.rejects import list_rejects
from ematix_flow.errors import StalePlanError
from ematix_flow.plan.sql.render import native_name
from tests.engine.conftest import create_warehouse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ematix_flow.declare.pipeline.pipeline import Pipeline
    from tests.engine.conftest import Warehouse

    Declare = Callable[..., Pipeline]

pytestmark = pytest.mark.slow


def rows(warehouse: Warehouse) -> list[tuple[Any, ...]]:
    return warehouse.rows(f"SELECT id, name FROM {warehouse.target} ORDER BY id")


def test_a_target_that_anybody_changed_is_refused(warehouse: Warehouse, declare: Declare) -> None:
    pipeline = declare(warehouse, on_bad_row="reject")
    run_pipeline(pipeline)
    warehouse.run(f"UPDATE {warehouse.orders} SET name = 'x' WHERE id = 1")
    for statement in ("UPDATE {} SET name = 'q' WHERE id = 2", "DELETE FROM {} WHERE id = 2"):
        plan_id = diff_pipeline(pipeline).plan_id
        warehouse.run(statement.format(warehouse.target))
        before = rows(warehouse)
        with pytest.raises(StalePlanError, match="changed since the plan was made"):
            apply_plan(plan_id)
        assert rows(warehouse) == before
    plan_id = diff_pipeline(pipeline).plan_id
    run_pipeline(pipeline)
    with pytest.raises(StalePlanError) as refused:
        apply_plan(plan_id)
    assert "flow plan NAME --diff" in str(refused.value.hint)
    assert rows(warehouse) == [(1, "x"), (2, "b")]


def test_a_fingerprint_follows_the_rows_and_not_their_order(warehouse: Warehouse, declare: Declare) -> None:
    run_pipeline(declare(warehouse))
    schema, _, name = ("", "", "mart_orders") if warehouse.kind == "sqlite" else warehouse.target.partition(".")
    table_name = warehouse.database.table_name(schema, name)

    def now() -> str:
        with closing(warehouse.database.session()) as session:
            return warehouse.database.fingerprint(session, table_name, ("id", "name"))

    first = now()
    fingerprints = {first}
    for statement in (
        f"UPDATE {warehouse.target} SET name = 'B' WHERE id = 2",
        f"UPDATE {warehouse.target} SET id = 20 WHERE id = 2",
        f"DELETE FROM {warehouse.target} WHERE id = 1",
        f"UPDATE {warehouse.target} SET id = 1, name = 'a'",
    ):
        warehouse.run(statement)
        assert now() not in fingerprints
        fingerprints.add(now())
    warehouse.run(f"DELETE FROM {warehouse.target}")
    run_pipeline(declare(warehouse, f"SELECT id, name FROM {warehouse.orders} ORDER BY id DESC", name="again"))
    assert now() == first


@pytest.mark.service
@pytest.mark.parametrize("kind", ["postgres", "mysql"])
def test_nobody_else_writes_between_the_check_and_the_change(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, declare: Declare
) -> None:
    warehouse = create_warehouse(kind, request, tmp_path)
    run_pipeline(declare(warehouse))
    database = warehouse.database
    table_name = database.table_name(*warehouse.target.split("."))
    wait = "SET lock_timeout = '200ms'" if kind == "postgres" else "SET SESSION innodb_lock_wait_timeout = 1"
    with closing(database.session()) as alone, closing(database.session()) as other:
        database.begin_alone(alone, [table_name])
        other.execute(wait)
        new = f"INSERT INTO {warehouse.target} SELECT 7, 'g', _loaded_at, _batch_id FROM {warehouse.target} LIMIT 1"
        with pytest.raises(database.errors):
            other.execute(new)
        alone.rollback()
        assert other.execute(new) == 1


@pytest.mark.parametrize("given", ["", "INSERT INTO {} VALUES (5, 'e', NOW(), uuid())"])
def test_a_table_that_was_missing_must_still_be_without_rows(duck: Warehouse, declare: Declare, given: str) -> None:
    pipeline = declare(duck)
    plan_id = diff_pipeline(pipeline).plan_id
    create = "(id BIGINT PRIMARY KEY, name VARCHAR NOT NULL, _loaded_at TIMESTAMPTZ, _batch_id UUID)"
    duck.run(
        "CREATE SCHEMA mart", f"CREATE TABLE {duck.target} {create}", *([given.format(duck.target)] if given else [])
    )
    if not given:
        assert apply_plan(plan_id)["rows_inserted"] == 2
        return
    with pytest.raises(StalePlanError):
        apply_plan(plan_id)
    assert rows(duck) == [(5, "e")]


def test_a_table_that_is_widened_first(warehouse: Warehouse, declare: Declare) -> None:
    run_pipeline(declare(warehouse))
    schema = warehouse.target.partition(".")[0] if warehouse.kind == "mysql" else "mart"

    @ematix.table(schema=schema, name="orders")
    class Wider:
        id: Annotated[BigInt, pk()]
        name: Text
        note: Text | None

    sql = f"SELECT id, name, CASE WHEN id = 1 THEN 'n' END AS note FROM {warehouse.orders}"
    result = diff_pipeline(declare(warehouse, sql, name="wider", target=Wider, on_drift="evolve"))
    (diff,) = result.targets
    assert (diff.added, diff.changed, diff.unchanged, dict(diff.columns)) == (0, 1, 1, {"note": 1})
    assert "ADD COLUMN" in diff.statements[0]
    assert [name for name in _columns(warehouse) if name == "note"] == []
    done = apply_plan(result.plan_id)
    assert (done["rows_updated"], done["rows_unchanged"]) == (1, 1)
    assert warehouse.rows(f"SELECT note FROM {warehouse.target} ORDER BY id") == [("n",), (None,)]


def _columns(warehouse: Warehouse) -> list[str]:
    schema, _, name = ("", "", "mart_orders") if warehouse.kind == "sqlite" else warehouse.target.partition(".")
    with closing(warehouse.database.session()) as session:
        existing = warehouse.database.find_table(session, warehouse.database.table_name(schema, name))
    return [column.name for column in existing.columns] if existing else []


def test_a_fan_out_has_one_plan_for_all_targets(duck: Warehouse, declare: Declare) -> None:
    tables = []
    for name in ("one", "two"):

        @ematix.table(schema="mart", name=name)
        class Copy:
            id: Annotated[BigInt, pk()]
            name: Text

        tables.append(ematix.target(Copy, mode="merge", target_connection="warehouse"))
    pipeline = declare(duck, targets=tables)
    result = diff_pipeline(pipeline)
    assert [target.added for target in result.targets] == [2, 2]
    assert [one["rows_inserted"] for one in apply_plan(result.plan_id).values()] == [2, 2]
    duck.run(f"UPDATE {duck.orders} SET name = 'z'")
    result = diff_pipeline(pipeline)
    duck.run("DELETE FROM mart.two WHERE id = 1")
    with pytest.raises(StalePlanError, match=r"mart\.two"):
        apply_plan(result.plan_id)
    assert duck.rows("SELECT DISTINCT name FROM mart.one ORDER BY 1") == [("a",), ("b",)]


def test_rejects_are_counted_and_kept_when_the_plan_is_applied(duck: Warehouse, declare: Declare) -> None:
    duck.run(f"INSERT INTO {duck.orders} VALUES (3, NULL), (NULL, 'd')")
    pipeline = declare(duck, on_bad_row="reject")
    result = diff_pipeline(pipeline)
    assert (result.targets[0].added, result.targets[0].counts.rejected) == (2, 2)
    assert list_rejects(pipeline) == []
    assert apply_plan(result.plan_id)["rows_rejected"] == 2
    assert len(list_rejects(pipeline)) == 2


def test_rows_that_a_constraint_refuses_are_set_aside_before(duck: Warehouse, declare: Declare) -> None:
    pipeline = declare(duck, mode="append", on_bad_row="reject")
    run_pipeline(pipeline)
    duck.run(f"INSERT INTO {duck.orders} VALUES (3, 'c')")
    result = diff_pipeline(pipeline)
    assert (result.targets[0].added, result.targets[0].counts.rejected) == (1, 2)
    done = apply_plan(result.plan_id)
    assert (done["rows_inserted"], done["rows_rejected"]) == (1, 2)


def test_a_watermark_moves_with_the_plan_and_stops_it_when_it_moved_before(duck: Warehouse, declare: Declare) -> None:
    pipeline = declare(duck, mode="append", incremental_column="id")
    run_pipeline(pipeline)
    duck.run(f"INSERT INTO {duck.orders} VALUES (3, 'c')")
    watermark_sql = "SELECT last_value FROM ematix_flow.watermarks"
    result, stale = diff_pipeline(pipeline), diff_pipeline(pipeline)
    assert duck.rows(watermark_sql) == [("2",)]
    apply_plan(result.plan_id)
    assert duck.rows(watermark_sql) == [("3",)]
    duck.run(f"DELETE FROM {duck.target} WHERE id = 3")
    with pytest.raises(StalePlanError, match="watermark"):
        apply_plan(stale.plan_id)
    assert [row[0] for row in rows(duck)] == [1, 2]


def test_a_fingerprint_outlives_wider_types(warehouse: Warehouse) -> None:
    database, schema = warehouse.database, warehouse.target.partition(".")[0]
    table_name = database.table_name(schema if warehouse.kind == "mysql" else "raw", "wide")
    name = native_name(table_name, database.dialect)
    warehouse.run(
        f"CREATE TABLE {name} (a INTEGER, b DECIMAL(10, 2), c FLOAT, d VARCHAR(10))",
        f"INSERT INTO {name} VALUES (1, 100.50, 0.1, 'x'), (NULL, NULL, NULL, NULL), (-7, 100, 1.5, '')",
    )

    def now() -> str:
        with closing(database.session()) as session:
            return database.fingerprint(session, table_name, ("a", "b", "c", "d"))

    before = now()
    wider = {"a": "BIGINT", "b": "DECIMAL(14, 4)", "c": "DOUBLE PRECISION"} if warehouse.kind != "sqlite" else {}
    for column, kind in wider.items():
        warehouse.run(database.alter_type_sql(name, column, kind, nullable=True))
        assert now() == before, column
    warehouse.run(f"UPDATE {name} SET b = 100.51 WHERE a = 1")
    assert now() != before

"""A query that reads the table it loads: the first run finds it empty, and preview, dry run and validate say the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text
from ematix_flow.engine import (
    apply_plan,
    diff_pipeline,
    dry_run_pipeline,
    preview_pipeline,
    run_pipeline,
    validate_pipeline,
)
from tests.engine.every_type import TYPES

if TYPE_CHECKING:
    from ematix_flow.engine import Options
    from tests.engine.conftest import Warehouse

NOTE = "which does not exist yet: a run creates it before it reads, so it has no rows"
EVERY = tuple(Column(kind, primary_key=name == "id", name=name) for name, kind in TYPES.items())
FEW = (Column(BigInt(), primary_key=True, name="id"), Column(Text(), name="name"))


def flow(
    warehouse: Warehouse,
    sql: str,
    *,
    mode: str = "append",
    path: str | None = None,
    every: bool = False,
    policy: str = "fail",
) -> Pipeline:
    """Declare a load of one database whose query may speak of `own`, its target."""
    schema, _, name = warehouse.target.rpartition(".")
    table = Table(schema or "main", name, EVERY if every else FEW)
    query = sql.replace("own", warehouse.target)
    target = TargetDeclaration(table, write(mode=mode, on_bad_row=policy), "warehouse")
    return Pipeline("grow", lambda: query, (target,), source_connection="warehouse", force_path=path)


NEXT = "SELECT COALESCE((SELECT MAX(id) FROM own), 0) + 1 AS id, 'a' AS name"
KNOWN = "WITH fresh AS (SELECT 1 AS id, 'a' AS name) SELECT f.id, f.name FROM fresh f LEFT JOIN own o ON o.id = f.id WHERE o.id IS NULL"


@pytest.mark.in_turn
@pytest.mark.slow
@pytest.mark.parametrize("path", [None, "cross_db"])
@pytest.mark.parametrize("sql", [NEXT, KNOWN])
def test_the_first_run_reads_its_target_as_empty(
    warehouse: Warehouse, fixed: Options, sql: str, path: str | None
) -> None:
    pipeline = flow(warehouse, sql, path=path)
    preview = preview_pipeline(pipeline, fixed)
    assert [note for note in preview.notes if NOTE in note]
    assert preview.source_sql == sql.replace("own", warehouse.target)
    assert validate_pipeline(pipeline, fixed).errors == ()
    simulated = dry_run_pipeline(pipeline, fixed)
    assert simulated.errors == ()
    assert (simulated.targets[0].dry_run_rows_affected or {})["rows_inserted"] == 1
    assert run_pipeline(pipeline, fixed)["rows_inserted"] == 1
    assert warehouse.rows(f"SELECT id, name FROM {warehouse.target}") == [(1, "a")]
    assert run_pipeline(pipeline, fixed)["rows_inserted"] == (1 if sql == NEXT else 0)


UPSERT = "SELECT f.id, COALESCE(o.name, f.name) AS name FROM (SELECT 1 AS id, 'a' AS name UNION ALL SELECT 2, 'b') f LEFT JOIN own o ON o.id = f.id"


@pytest.mark.in_turn
@pytest.mark.slow
@pytest.mark.parametrize("path", [None, "cross_db"])
def test_the_first_merge_reads_its_target_as_empty_and_the_next_one_reads_its_rows(
    warehouse: Warehouse, fixed: Options, path: str | None
) -> None:
    pipeline = flow(warehouse, UPSERT, mode="merge", path=path)
    simulated = dry_run_pipeline(pipeline, fixed)
    assert simulated.errors == ()
    assert (simulated.targets[0].dry_run_rows_affected or {})["rows_inserted"] == 2
    assert run_pipeline(pipeline, fixed)["rows_inserted"] == 2
    warehouse.run(f"UPDATE {warehouse.target} SET name = 'kept' WHERE id = 1")
    again = run_pipeline(pipeline, fixed)
    assert (again["rows_inserted"], again["rows_updated"], again["rows_unchanged"]) == (0, 0, 2)
    assert warehouse.rows(f"SELECT id, name FROM {warehouse.target} ORDER BY id") == [(1, "kept"), (2, "b")]


@pytest.mark.slow
def test_a_table_of_every_type_can_be_asked_about_before_it_exists(warehouse: Warehouse, fixed: Options) -> None:
    quote_char = "`" if warehouse.kind == "mysql" else '"'
    columns = ", ".join(f"{quote_char}{name}{quote_char}" for name in TYPES)
    pipeline = flow(warehouse, f"SELECT {columns} FROM own", every=True)
    assert dry_run_pipeline(pipeline, fixed).errors == ()
    assert validate_pipeline(pipeline, fixed).errors == ()
    assert [note for note in preview_pipeline(pipeline, fixed).notes if NOTE in note]


@pytest.mark.slow
def test_a_plan_of_it_can_be_kept_and_applied(duck: Warehouse, fixed: Options) -> None:
    pipeline = flow(duck, NEXT)
    planned = diff_pipeline(pipeline, fixed)
    apply_plan(planned.plan_id, fixed)
    assert duck.rows(f"SELECT id, name FROM {duck.target}") == [(1, "a")]


@pytest.mark.slow
def test_a_query_that_is_wrong_otherwise_creates_no_table(warehouse: Warehouse, fixed: Options) -> None:
    pipeline = flow(warehouse, "SELECT id, nonsense AS name FROM own")
    assert validate_pipeline(pipeline, fixed).errors != ()
    assert dry_run_pipeline(pipeline, fixed).errors != ()
    with pytest.raises(Exception, match="nonsense"):
        run_pipeline(pipeline, fixed)
    with pytest.raises(Exception, match=warehouse.target.rpartition(".")[2]):
        warehouse.rows(f"SELECT * FROM {warehouse.target}")


@pytest.mark.in_turn
@pytest.mark.slow
@pytest.mark.parametrize("policy", ["fail", "reject"])
def test_a_load_reads_columns_of_every_type_of_its_own_database(
    warehouse: Warehouse, fixed: Options, policy: str
) -> None:
    quote_char = "`" if warehouse.kind == "mysql" else '"'
    columns = ", ".join(f"{quote_char}{name}{quote_char}" for name in TYPES)
    pipeline = flow(warehouse, f"SELECT {columns} FROM own", every=True, policy=policy)
    assert run_pipeline(pipeline, fixed)["rows_inserted"] == 0

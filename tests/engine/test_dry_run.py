from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from ematix_flow import BigInt, Text, pk, register_connection  # noqa: TC001 - read from annotations
from ematix_flow.declare.connection.registry import DuckDBConnection, ObjectStoreLocalConnection, SQLiteConnection
from ematix_flow.declare.decorators import ematix
from ematix_flow.declare.pipeline.pipeline import Pipeline
from ematix_flow.engine import Options, dry_run_pipeline, run_pipeline
from ematix_flow.errors import DeclareTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tests.engine.conftest import Warehouse

    Declare = Callable[..., Pipeline]

pytestmark = pytest.mark.slow


@ematix.table(schema="mart", name="orders")
class Orders:
    id: Annotated[BigInt, pk()]
    name: Text


def counts(result: Any, index: int = 0) -> dict[str, int]:
    assert result.targets[index].dry_run_error is None
    return dict(result.targets[index].dry_run_rows_affected)


@pytest.mark.parametrize("mode", ["append", "truncate", "merge", "scd2"])
def test_a_first_load_is_counted_and_leaves_nothing(warehouse: Warehouse, declare: Declare, mode: str) -> None:
    pipeline = declare(warehouse, mode=mode)
    before = warehouse.everything()
    result = dry_run_pipeline(pipeline)
    assert result.ok
    assert result.is_dry_run
    assert counts(result)["rows_inserted"] == 2
    assert counts(result)["rows_staged"] == 2
    assert warehouse.everything() == before


def test_the_counts_are_those_of_the_run_that_follows(warehouse: Warehouse, declare: Declare) -> None:
    pipeline = declare(warehouse, handle_deletes="hard")
    run_pipeline(pipeline)
    warehouse.run(
        f"UPDATE {warehouse.orders} SET name = 'A' WHERE id = 1",
        f"DELETE FROM {warehouse.orders} WHERE id = 2",
        f"INSERT INTO {warehouse.orders} VALUES (3, 'c'), (4, 'd')",
    )
    before = warehouse.everything()
    foreseen = counts(dry_run_pipeline(pipeline))
    assert warehouse.everything() == before
    done = run_pipeline(pipeline)
    assert foreseen.pop("rows_staged") == 3
    assert foreseen == {name: done[name] for name in foreseen}
    assert foreseen["rows_inserted"] == 2
    assert foreseen["rows_updated"] == 1
    assert foreseen["rows_deleted"] == 1


def test_scd2_by_event_time_is_counted_with_its_table_of_folded_events(duck: Warehouse, declare: Declare) -> None:
    sql = f"SELECT id, name, TIMESTAMPTZ '2026-01-01 00:00:00+00' AS at FROM {duck.orders}"
    before = duck.everything()
    assert counts(dry_run_pipeline(declare(duck, sql, mode="scd2", event_timestamp_column="at")))["rows_inserted"] == 2
    assert duck.everything() == before


def test_columns_that_evolve_come_and_go_with_the_transaction(warehouse: Warehouse, declare: Declare) -> None:
    run_pipeline(declare(warehouse))
    schema = warehouse.target.partition(".")[0] if warehouse.kind == "mysql" else "mart"

    @ematix.table(schema=schema, name="orders")
    class Wider:
        id: Annotated[BigInt, pk()]
        name: Text
        note: Text | None

    sql = f"SELECT id, name, 'n' AS note FROM {warehouse.orders}"
    before = warehouse.rows(f"SELECT * FROM {warehouse.target} ORDER BY id")
    result = dry_run_pipeline(declare(warehouse, sql, name="wider", target=Wider, on_drift="evolve"))
    assert result.targets[0].dry_run_error is None
    assert result.targets[0].plan.ensure.statements
    assert counts(result)["rows_updated"] == (0 if warehouse.kind == "mysql" else 2)
    assert warehouse.rows(f"SELECT * FROM {warehouse.target} ORDER BY id") == before


def test_a_load_that_would_fail_says_why_and_changes_nothing(warehouse: Warehouse, declare: Declare) -> None:
    pipeline = declare(warehouse, f"SELECT 1 AS id, name FROM {warehouse.orders}")
    before = warehouse.everything()
    result = dry_run_pipeline(pipeline)
    assert not result.ok
    assert "different rows for the same key: 1" in str(result.targets[0].dry_run_error)
    assert result.errors[0].startswith(result.targets[0].schema_qualified_name)
    assert warehouse.everything() == before


def test_a_constraint_of_the_target_is_met_before_the_run(duck: Warehouse, declare: Declare) -> None:
    pipeline = declare(duck, mode="append")
    run_pipeline(pipeline)
    assert "would refuse" in str(dry_run_pipeline(pipeline).targets[0].dry_run_error)


def test_drift_is_an_error_of_its_target_with_the_plan_still_told(duck: Warehouse, declare: Declare) -> None:
    duck.run("CREATE SCHEMA mart", "CREATE TABLE mart.orders (id BIGINT PRIMARY KEY, name INTEGER)")
    target = dry_run_pipeline(declare(duck)).targets[0]
    assert "column 'name' is INTEGER, declared VARCHAR" in str(target.dry_run_error)
    assert target.plan is not None
    assert target.dry_run_rows_affected is None


def test_every_target_is_tried(duck: Warehouse, declare: Declare) -> None:
    @ematix.table(schema="mart", name="lacking")
    class Lacking:
        id: Annotated[BigInt, pk()]
        colour: Text

    targets = [
        ematix.target(Lacking, mode="append", target_connection="warehouse"),
        ematix.target(Orders, mode="append", target_connection="warehouse"),
    ]
    result = dry_run_pipeline(declare(duck, targets=targets))
    assert not result.ok
    assert "lacks colour" in str(result.targets[0].dry_run_error)
    assert result.targets[0].declared_columns == ("id", "colour")
    assert counts(result, 1)["rows_inserted"] == 2


def test_an_empty_source_is_refused_as_in_a_run(duck: Warehouse, declare: Declare) -> None:
    pipeline = declare(duck, f"SELECT id, name FROM {duck.orders} WHERE FALSE", mode="truncate")
    assert "is empty" in str(dry_run_pipeline(pipeline).targets[0].dry_run_error)


def test_post_steps_and_bookkeeping_are_left_alone(duck: Warehouse, declare: Declare, tmp_path: Path) -> None:
    called = threading.Event()
    pipeline = declare(duck, transforms_post=[f"DELETE FROM {duck.orders}", lambda _: called.set()])
    result = dry_run_pipeline(pipeline)
    assert result.ok
    assert not called.is_set()
    assert "post steps are not part of a dry run" in result.notes
    assert duck.rows(f"SELECT COUNT(*) FROM {duck.orders}") == [(2,)]
    assert not list(Path.home().rglob("*.db*"))
    assert not list(Path.home().rglob("*.sqlite*"))


def test_an_incremental_load_is_counted_from_its_watermark(duck: Warehouse, declare: Declare) -> None:
    pipeline = declare(duck, mode="append", incremental_column="id")
    run_pipeline(pipeline)
    duck.run(f"INSERT INTO {duck.orders} VALUES (3, 'c')")
    watermark_sql = "SELECT last_value FROM ematix_flow.watermarks"
    before = duck.rows(watermark_sql)
    result = dry_run_pipeline(pipeline)
    assert counts(result)["rows_inserted"] == 1
    bounds = result.targets[0].plan.read.bounds
    assert (bounds.lo, bounds.hi, bounds.fixed) == ("2", "3", True)
    assert duck.rows(watermark_sql) == before


@pytest.mark.parametrize("kind", [DuckDBConnection, SQLiteConnection])
def test_a_database_file_that_is_missing_stays_missing(kind: Any, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "new.db"
    register_connection(kind(name="new", path=str(path)))

    @ematix.pipeline(target=Orders, target_connection="new", mode="merge")
    def load(conn: Any) -> str:
        return "SELECT 1 AS id, 'a' AS name"

    result = load.dry_run()
    assert counts(result)["rows_inserted"] == 1
    assert result.targets[0].target_connection_info["dbname"] == str(path)
    assert not path.parent.exists()


def test_a_missing_source_database_is_an_error_and_not_created(
    duck: Warehouse, declare: Declare, tmp_path: Path
) -> None:
    path = tmp_path / "nothing.duckdb"
    register_connection(DuckDBConnection(name="nothing", path=str(path)))
    result = dry_run_pipeline(declare(duck, source_connection="nothing"))
    assert "does not exist" in str(result.targets[0].dry_run_error)
    assert not path.exists()


def test_a_connection_that_is_not_configured_is_an_error_of_its_target(duck: Warehouse, declare: Declare) -> None:
    targets = [ematix.target(Orders, mode="append", target_connection="nowhere")]
    result = dry_run_pipeline(declare(duck, source_connection="warehouse", targets=targets))
    assert "'nowhere' is not configured" in str(result.targets[0].dry_run_error)


def test_two_statements_are_no_source_and_none_of_them_runs(duck: Warehouse, declare: Declare) -> None:
    result = dry_run_pipeline(declare(duck, f"SELECT 1 AS id, 'a' AS name; DELETE FROM {duck.orders}"))
    assert "not one query" in str(result.targets[0].dry_run_error)
    assert duck.rows(f"SELECT COUNT(*) FROM {duck.orders}") == [(2,)]


def test_a_plain_function_has_no_plan() -> None:
    with pytest.raises(DeclareTypeError, match="plain function"):
        dry_run_pipeline(Pipeline("plain", lambda: None, ()))


@pytest.mark.spark
@pytest.mark.parametrize("kind", [DuckDBConnection, SQLiteConnection])
def test_rows_that_spark_stages_are_counted_and_dropped(kind: Any, spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "orders.csv").write_text("id,name\n1,a\n2,b\nx,c\n")
    register_connection(ObjectStoreLocalConnection(name="files", path=str(tmp_path / "in"), format="csv"))
    register_connection(kind(name="warehouse", path=str(tmp_path / "out" / "w.db")))

    @ematix.pipeline(
        target=Orders, source_connection="files", target_connection="warehouse", mode="merge", on_bad_row="reject"
    )
    def load(conn: Any) -> str:
        return "orders.csv"

    result = dry_run_pipeline(load.pipeline, Options(spark=spark))
    assert counts(result)["rows_inserted"] == 2
    assert counts(result)["rows_rejected"] == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.spark
def test_a_query_over_files_is_planned_with_the_columns_it_gives(
    spark: SparkSession, duck: Warehouse, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "orders.csv").write_text("id,label\n1,a\n2,b\n")
    register_connection(ObjectStoreLocalConnection(name="files", path=str(tmp_path / "in"), format="csv"))

    @ematix.pipeline(target=Orders, source_connection="files", target_connection="warehouse", mode="append")
    def load(conn: Any) -> str:
        return "SELECT id, upper(label) AS name FROM source WHERE id > 1"

    before = sorted(tmp_path.iterdir())
    result = dry_run_pipeline(load.pipeline, Options(spark=spark))
    assert counts(result)["rows_inserted"] == 1
    assert sorted(tmp_path.iterdir()) == before
    run_pipeline(load.pipeline, Options(spark=spark))
    assert duck.rows("SELECT id, name FROM mart.orders") == [(2, "B")]


@pytest.mark.spark
def test_staging_on_a_server_is_dropped(warehouse: Warehouse, declare: Declare, spark: SparkSession) -> None:
    pipeline = declare(warehouse, force_path="cross_db")
    before = [table for table in warehouse.everything() if "stage" not in table[0]]
    result = dry_run_pipeline(pipeline, Options(spark=spark))
    assert counts(result)["rows_inserted"] == 2
    assert result.targets[0].path == "cross_db"
    after = warehouse.everything()
    assert [table for table in after if table != ("ematix_flow_stage",)] == before

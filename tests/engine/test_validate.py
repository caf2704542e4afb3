from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from ematix_flow import BigInt, Text, pk, register_connection  # noqa: TC001 - read from annotations
from ematix_flow.declare.connection.registry import DuckDBConnection, ObjectStoreLocalConnection, PostgresConnection
from ematix_flow.declare.decorators import ematix
from ematix_flow.declare.pipeline.pipeline import Pipeline
from ematix_flow.engine import run_pipeline, validate_pipeline
from ematix_flow.errors import DeclareTypeError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.engine.conftest import Warehouse

    Declare = Callable[..., Pipeline]

pytestmark = pytest.mark.slow


@ematix.table(schema="mart", name="orders")
class Orders:
    id: Annotated[BigInt, pk()]
    name: Text


def test_a_good_pipeline_is_ok_and_nothing_changes(warehouse: Warehouse, declare: Declare) -> None:
    pipeline = declare(warehouse)
    before = warehouse.everything()
    result = validate_pipeline(pipeline)
    assert result.errors == ()
    assert result.ok
    assert result.text().startswith("load: ok")
    assert result.target_connection_name == "warehouse"
    assert "_src_user" in result.source_sql
    assert warehouse.everything() == before


@pytest.mark.parametrize("mode", ["append", "truncate", "merge", "scd2"])
def test_every_statement_of_a_commit_is_explained(warehouse: Warehouse, declare: Declare, mode: str) -> None:
    extra = {"merge": {"handle_deletes": "hard"}, "scd2": {"handle_deletes": "soft", "ttl": 60}}.get(mode, {})
    pipeline = declare(warehouse, mode=mode, **extra)
    run_pipeline(pipeline)
    before = warehouse.everything()
    result = validate_pipeline(pipeline)
    assert result.errors == ()
    assert result.notes == ()
    assert warehouse.everything() == before


def test_event_time_is_explained_too(duck: Warehouse, declare: Declare) -> None:
    sql = f"SELECT id, name, TIMESTAMPTZ '2026-01-01 00:00:00+00' AS at FROM {duck.orders}"
    pipeline = declare(duck, sql, mode="scd2", event_timestamp_column="at")
    run_pipeline(pipeline)
    assert validate_pipeline(pipeline).errors == ()


def test_maintenance_is_understood(warehouse: Warehouse, declare: Declare) -> None:
    statement = {"mysql": "ANALYZE TABLE", "sqlite": "ANALYZE", "duckdb": "ANALYZE"}.get(
        warehouse.kind, "VACUUM ANALYZE"
    )
    pipeline = declare(warehouse, transforms_post=[f"-- keep it quick\n{statement} {warehouse.orders}"])
    result = validate_pipeline(pipeline)
    assert result.ok, result.errors
    assert any("is maintenance" in note for note in result.notes)
    run_pipeline(pipeline)


def test_sql_post_steps_are_explained_and_not_run(warehouse: Warehouse, declare: Declare) -> None:
    steps = [f"DELETE FROM {warehouse.orders}", f"DELETE FROM {warehouse.orders} WHERE missing = 1"]
    run_pipeline(declare(warehouse, name="first"))
    result = validate_pipeline(declare(warehouse, name="second", transforms_post=steps))
    assert len(result.errors) == 1
    assert result.errors[0].startswith("transform[1]:sql: ")
    assert warehouse.rows(f"SELECT COUNT(*) FROM {warehouse.orders}") == [(2,)]


def test_no_statement_rides_along_with_one_that_is_explained(warehouse: Warehouse, declare: Declare) -> None:
    both = f"SELECT ';' FROM {warehouse.orders}; DELETE FROM {warehouse.orders}; -- done"
    assert validate_pipeline(declare(warehouse, transforms_post=[both])).ok
    assert warehouse.rows(f"SELECT COUNT(*) FROM {warehouse.orders}") == [(2,)]


def test_a_post_step_may_speak_of_the_table_that_the_first_load_creates(duck: Warehouse, declare: Declare) -> None:
    result = validate_pipeline(declare(duck, transforms_post=["DELETE FROM mart.orders WHERE id < 0"]))
    assert result.ok
    assert any("before the first load creates its table" in note for note in result.notes)


def test_what_no_database_explains_is_a_note(duck: Warehouse, declare: Declare) -> None:
    result = validate_pipeline(declare(duck, transforms_post=["CREATE OR REPLACE VIEW raw.v AS SELECT 1"]))
    assert result.ok
    assert any("CREATE is not checked" in note for note in result.notes)


def test_names_of_post_steps_must_exist(duck: Warehouse, declare: Declare) -> None:
    @ematix.transform(target_connection="warehouse")
    def refresh(conn: Any) -> None: ...

    steps = [ematix.transform_ref("refresh"), ematix.transform_ref("refesh")]
    result = validate_pipeline(declare(duck, transforms_post=steps))
    assert len(result.errors) == 1
    assert "transform[1]:ref=refesh" in result.errors[0]
    assert "did you mean 'refresh'?" in result.errors[0]


def test_a_query_that_the_database_refuses_is_an_error(warehouse: Warehouse, declare: Declare) -> None:
    result = validate_pipeline(declare(warehouse, f"SELECT id, missing AS name FROM {warehouse.orders}"))
    assert not result.ok
    assert any(error.startswith("source query: ") and "missing" in error for error in result.errors)


def test_a_column_that_the_source_lacks_is_an_error(duck: Warehouse, declare: Declare) -> None:
    result = validate_pipeline(declare(duck, f"SELECT id FROM {duck.orders}"))
    assert result.errors[0].startswith("mart.orders: the source of mart.orders lacks name")


def test_drift_is_an_error(duck: Warehouse, declare: Declare) -> None:
    duck.run("CREATE SCHEMA mart", "CREATE TABLE mart.orders (id BIGINT PRIMARY KEY, name INTEGER)")
    result = validate_pipeline(declare(duck))
    assert "schema drift detected" in result.errors[0]
    assert "column 'name' is INTEGER, declared VARCHAR" in result.errors[0]


def test_keys_that_are_not_declared_are_an_error(duck: Warehouse, declare: Declare) -> None:
    result = validate_pipeline(declare(duck, keys=["nme"]))
    assert "keys names 'nme'" in result.errors[0]
    assert "did you mean 'name'?" in result.errors[0]


def test_errors_of_the_function_come_out_as_errors(duck: Warehouse) -> None:
    @ematix.pipeline(target=Orders, target_connection="warehouse", mode="append")
    def load(conn: Any) -> str:
        return {}["sql"]  # type: ignore[return-value]

    assert load.validate().errors == ("source: KeyError: 'sql'",)


@pytest.mark.parametrize("text", ["", "  \n ", " ; "])
def test_empty_text_is_no_source(duck: Warehouse, text: str) -> None:
    @ematix.pipeline(target=Orders, target_connection="warehouse", mode="append")
    def load(conn: Any) -> str:
        return text

    [error] = load.validate().errors
    assert error.startswith("source: the pipeline's function returned empty text instead of a query\nHint: ")


def test_the_time_of_events_is_a_column_of_the_source(duck: Warehouse, declare: Declare) -> None:
    pipeline = declare(duck, mode="scd2", event_timestamp_column="nmae")
    [error] = validate_pipeline(pipeline).errors
    assert "the source has no column 'nmae' with the time of an event" in error
    assert "did you mean 'name'?" in error


def test_every_target_is_checked(duck: Warehouse, declare: Declare) -> None:
    @ematix.table(schema="mart", name="lacking")
    class Lacking:
        id: Annotated[BigInt, pk()]
        colour: Text

    targets = [
        ematix.target(Lacking, mode="append", target_connection="warehouse"),
        ematix.target(Orders, mode="append", target_connection="nowhere"),
    ]
    errors = validate_pipeline(declare(duck, source_connection="warehouse", targets=targets)).errors
    assert "lacks colour" in errors[0]
    assert "'nowhere' is not configured" in errors[1]


def test_a_server_that_is_away_is_an_error_without_the_password() -> None:
    register_connection(PostgresConnection(name="away", url="postgresql://u:canary-pw@127.0.0.1:1/db"))

    @ematix.pipeline(target=Orders, target_connection="away", mode="append", transforms_post=["SELECT 1"])
    def load(conn: Any) -> str:
        return "SELECT 1 AS id, 'a' AS name"

    result = load.validate()
    assert not result.ok
    assert any("target 'away' could not be queried" in error for error in result.errors)
    assert "canary-pw" not in result.to_json() + result.text(verbose=True)


def test_a_connection_that_is_not_configured_is_an_error() -> None:
    @ematix.pipeline(target=Orders, target_connection="nowhere", mode="append")
    def load(conn: Any) -> str:
        return "SELECT 1 AS id, 'a' AS name"

    assert "source: connection 'nowhere' is not configured" in load.validate().errors[0]


def test_a_missing_file_database_is_not_created(tmp_path: Path) -> None:
    path = tmp_path / "new.duckdb"
    register_connection(DuckDBConnection(name="new", path=str(path)))

    @ematix.pipeline(target=Orders, target_connection="new", mode="append", transforms_post=["SELECT 1"])
    def load(conn: Any) -> str:
        return "SELECT 1 AS id, 'a' AS name"

    load.validate()
    assert not path.exists()


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("SELECT id, name FROM source", ""),
        ("SELECT o.id, o.name FROM orders AS o", ""),
        ("SELECT id, label AS name FROM source", "label"),
        ("SELECT id, name FROM ordres", "did you mean 'orders'?"),
    ],
)
def test_queries_over_files_are_checked_without_spark(duck: Warehouse, tmp_path: Path, sql: str, error: str) -> None:
    (tmp_path / "in" / "orders").mkdir(parents=True)
    (tmp_path / "in" / "orders" / "a.csv").write_text("id,name\n1,a\n")
    register_connection(ObjectStoreLocalConnection(name="files", path=str(tmp_path / "in"), format="csv"))

    @ematix.pipeline(target=Orders, source_connection="files", target_connection="warehouse", mode="append")
    def load(conn: Any) -> str:
        return sql

    result = load.validate()
    assert result.ok is (error == "")
    assert error in "".join(result.errors)


def test_the_answer_as_data(duck: Warehouse, declare: Declare) -> None:
    result = validate_pipeline(declare(duck, "SELECT 1 AS id"))
    data = json.loads(result.to_json())
    assert list(data) == ["pipeline_name", "ok", "source_sql", "errors", "target_connection_name", "notes"]
    assert data["ok"] is False
    assert "error: mart.orders: " in result.text()


def test_a_plain_function_has_nothing_to_check() -> None:
    with pytest.raises(DeclareTypeError, match="plain function"):
        validate_pipeline(Pipeline("plain", lambda: None, ()))

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pytest

import ematix_flow.preview as facade
from ematix_flow import BigInt, Source, Text, TimestampTZ, pk, register_connection  # noqa: TC001 - read from annotations
from ematix_flow.declare.connection.registry import DuckDBConnection, ObjectStoreLocalConnection, PostgresConnection
from ematix_flow.declare.decorators import ematix
from ematix_flow.engine import preview_pipeline, run_pipeline
from ematix_flow.engine.batch.planner import LoadRequest, load_inspector, plan_load, token_for
from ematix_flow.engine.batch.source import open_source
from ematix_flow.engine.review.preview import PREVIEW_SLOT
from ematix_flow.errors import PlanError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.declare.pipeline.pipeline import Pipeline
    from ematix_flow.engine import Options
    from tests.engine.conftest import Warehouse

    Declare = Callable[..., Pipeline]


@ematix.table(schema="mart", name="orders")
class Orders:
    id: Annotated[BigInt, pk()]
    name: Text


def no_spark() -> Any:
    raise AssertionError("a plan of SQL sources starts no Spark")


def test_the_preview_is_the_plan_that_a_run_executes(warehouse: Warehouse, declare: Declare, fixed: Options) -> None:
    pipeline = declare(warehouse)
    shown = preview_pipeline(pipeline, fixed).plan.targets[0]
    target = pipeline.targets[0]
    token = token_for(pipeline, target, PREVIEW_SLOT)
    source = open_source(pipeline, spark=no_spark)
    request = LoadRequest(pipeline, target, source, warehouse.database, token, fixed.clock.now())
    assert plan_load(request, load_inspector(no_spark))[0] == shown


def test_a_preview_changes_nothing(warehouse: Warehouse, declare: Declare) -> None:
    before = warehouse.everything()
    result = preview_pipeline(declare(warehouse))
    assert result.targets[0].path == "same_db"
    assert result.targets[0].plan.ensure.exists is False
    assert warehouse.everything() == before


@pytest.mark.slow
def test_a_loaded_table_is_seen(warehouse: Warehouse, declare: Declare) -> None:
    pipeline = declare(warehouse, mode="append", incremental_column="id")
    run_pipeline(pipeline)
    target = preview_pipeline(pipeline).targets[0]
    assert target.plan.ensure.exists is True
    assert target.plan.ensure.differences == ()
    assert target.plan.read.bounds.lo == "2"
    assert not target.plan.read.bounds.fixed


def test_the_upper_bound_is_left_open_because_no_data_is_read(duck: Warehouse, declare: Declare) -> None:
    result = preview_pipeline(declare(duck, mode="append", incremental_column="id"))
    assert "up to the highest value when the load begins" in result.text()
    assert "1 = 0" not in result.targets[0].plan_sql


def test_the_public_keys_and_the_two_forms(duck: Warehouse, declare: Declare) -> None:
    result = preview_pipeline(declare(duck, schedule="0 3 * * *", transforms_post=["ANALYZE", print]))
    assert list(result.to_dict()) == [
        "pipeline_name", "schedule", "mode", "source_connection_name", "source_connection_info", "source_sql",
        "targets", "notes", "transforms_post", "is_dry_run",
    ]  # fmt: skip
    assert json.loads(result.to_json()) == result.to_dict()
    assert (result.pipeline_name, result.schedule, result.mode) == ("load", "0 3 * * *", "merge")
    assert [step["kind"] for step in result.transforms_post] == ["sql", "callable"]
    assert result.text().count("target mart.orders") == 1
    assert "keys      id (from primary_key=True)" in result.text()
    assert "UPDATE" in result.text(verbose=True)
    assert isinstance(result, facade.PreviewResult)
    assert isinstance(result.targets[0], facade.TargetPlan)


def test_the_handle_previews(duck: Warehouse) -> None:
    @ematix.pipeline(target=Orders, target_connection="warehouse", mode="append")
    def load(conn: Any) -> str:
        return "SELECT 1 AS id, 'a' AS name"

    assert load.preview().source_sql == "SELECT 1 AS id, 'a' AS name"


def test_a_missing_file_database_is_not_created(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "new.duckdb"
    register_connection(DuckDBConnection(name="new", path=str(path)))

    @ematix.pipeline(target=Orders, target_connection="new", mode="append")
    def load(conn: Any) -> str:
        return "SELECT 1 AS id, 'a' AS name"

    result = load.preview()
    assert result.targets[0].plan.ensure.exists is False
    assert any("does not exist" in note for note in result.notes)
    assert not path.parent.exists()


@pytest.mark.slow
def test_a_database_that_another_process_holds_is_a_note(duck: Warehouse, declare: Declare) -> None:
    code = f"import duckdb; c = duckdb.connect({duck.database.info()['dbname']!r}); print(1, flush=True); input()"
    holder = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        result = preview_pipeline(declare(duck))
    finally:
        holder.communicate("\n")
    assert result.targets[0].plan.ensure.exists is None
    assert sum("is held by process" in note for note in result.notes) == 2
    assert "not known" in result.text()


def test_a_server_that_is_away_is_a_note_without_the_password() -> None:
    register_connection(PostgresConnection(name="away", url="postgresql://u:canary-pw@127.0.0.1:1/db"))

    @ematix.pipeline(target=Orders, target_connection="away", mode="scd2")
    def load(conn: Any) -> str:
        return "SELECT 1 AS id, 'a' AS name"

    result = load.preview()
    assert any("target 'away' could not be queried" in note for note in result.notes)
    assert result.targets[0].target_connection_info["host"] == "127.0.0.1"
    assert "canary-pw" not in result.to_json() + result.text(verbose=True)
    assert "JSON" not in result.targets[0].plan_sql


def test_a_connection_that_is_not_configured_is_a_note() -> None:
    @ematix.pipeline(target=Orders, target_connection="nowhere", mode="merge")
    def load(conn: Any) -> str:
        return "SELECT 1 AS id, 'a' AS name"

    result = load.preview()
    assert result.notes == ("connection 'nowhere' is not configured; its SQL is shown as for PostgreSQL",)
    assert result.targets[0].path == "same_db"
    assert result.targets[0].plan.ensure.exists is None
    assert (result.source_connection_info, result.targets[0].target_connection_info) == ({}, {})
    assert "unresolved" not in result.text(verbose=True) + result.to_json()


@pytest.mark.parametrize("kind", ["postgres", "mysql", "duckdb"])
def test_a_missing_secret_is_a_note_and_the_kind_is_known(kind: str) -> None:
    Path(".ematix-flow.toml").write_text(
        f'[connections.w]\nkind = "{kind}"\n' + ('path = "${DIR}/w"' if kind == "duckdb" else 'url = "${DSN}"')
    )

    @ematix.pipeline(target=Orders, target_connection="w", mode="merge")
    def load(conn: Any) -> str:
        return "SELECT 1 AS id, 'a' AS name"

    result = load.preview()
    assert len(result.notes) == 1
    assert result.targets[0].plan.commit.load.dialect == kind
    assert result.targets[0].plan.ensure.exists is None


def test_a_source_that_cannot_be_described_is_assumed_as_declared(duck: Warehouse, declare: Declare) -> None:
    result = preview_pipeline(declare(duck, "SELECT * FROM raw.missing"))
    assert any("assumed to have the declared columns" in note for note in result.notes)
    assert [(c.name, c.family) for c in result.targets[0].plan.read.columns] == [("id", "integer"), ("name", "text")]


def test_assumed_columns_include_what_only_the_mode_needs() -> None:
    @ematix.table(schema="mart", name="events")
    class Events:
        id: Annotated[BigInt, pk()]
        name: Text
        at: TimestampTZ

    @ematix.pipeline(
        target=Events,
        target_connection="nowhere",
        mode="scd2",
        event_timestamp_column="happened",
        column_map={"name": "upper(label)", "at": "happened"},
    )
    def load(conn: Any) -> str:
        return "SELECT * FROM events"

    columns = load.preview().targets[0].plan.read.columns
    assert {c.name: c.family for c in columns} == {"id": "integer", "happened": "timestamp_tz"}


def test_a_function_that_names_its_connection_in_a_source_is_understood(duck: Warehouse) -> None:
    @ematix.pipeline(target=Orders, target_connection="warehouse", mode="append")
    def load(conn: Any) -> Source:
        return Source.sql(conn, "SELECT id, name FROM raw.orders")

    assert load.preview().source_sql == "SELECT id, name FROM raw.orders"


def test_a_function_that_takes_spark_is_a_note(duck: Warehouse) -> None:
    @ematix.pipeline(target=Orders, target_connection="warehouse", mode="append")
    def load(spark: Any) -> Any:
        return spark.range(3)

    result = load.preview()
    assert "does not start" in result.notes[0]
    assert result.targets[0].path == "cross_db"


def test_an_error_of_the_function_is_the_users(duck: Warehouse) -> None:
    @ematix.pipeline(target=Orders, target_connection="warehouse", mode="append")
    def load(conn: Any) -> str:
        return {}["sql"]  # type: ignore[return-value]

    with pytest.raises(KeyError, match="sql"):
        load.preview()


def test_files_are_described_without_spark(duck: Warehouse, tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("id,name\n1,a\n")
    register_connection(ObjectStoreLocalConnection(name="files", path=str(tmp_path), format="csv"))

    @ematix.pipeline(target=Orders, source_connection="files", target_connection="warehouse", mode="append")
    def load(conn: Any) -> str:
        return "orders.csv"

    result = load.preview()
    plan = result.targets[0].plan
    assert (plan.shape.place.value, plan.stage.by.value) == ("task", "local")
    assert "shape     by the task that stages the rows: every row is shaped by itself" in result.text()
    assert "read      csv files orders.csv of files" in result.text()


def test_drift_is_shown_and_said_to_stop_a_run(duck: Warehouse, declare: Declare) -> None:
    duck.run("CREATE SCHEMA mart", "CREATE TABLE mart.orders (id BIGINT PRIMARY KEY, name INTEGER)")
    result = preview_pipeline(declare(duck))
    assert "column 'name' is INTEGER, declared VARCHAR" in result.text()
    assert any(note.startswith("a run would be refused: schema drift detected") for note in result.notes)
    assert result.targets[0].plan.commit.write.on_drift == "error"


def test_what_cannot_be_planned_is_refused_with_the_place(duck: Warehouse, declare: Declare) -> None:
    with pytest.raises(PlanError, match="lacks name") as refused:
        preview_pipeline(declare(duck, "SELECT 1 AS id"))
    assert refused.value.origin is not None


def test_a_folder_is_no_target_of_a_merge(tmp_path: Path) -> None:
    register_connection(ObjectStoreLocalConnection(name="files", path=str(tmp_path), format="csv"))

    @ematix.pipeline(target=Orders, target_connection="files", mode="merge")
    def load(conn: Any) -> str:
        return "x.csv"

    with pytest.raises(UnsupportedError, match="object_store_local can: append, truncate"):
        load.preview()


@pytest.mark.slow
def test_a_preview_loads_neither_spark_nor_java(duck: Warehouse) -> None:
    code = f"""
import sys
from typing import Annotated
from ematix_flow import *
from ematix_flow.declare.connection.registry import DuckDBConnection
register_connection(DuckDBConnection(name="w", path={duck.database.info()["dbname"]!r}))
@ematix.table(schema="mart", name="orders")
class Orders:
    id: Annotated[BigInt, pk()]
    name: Text
@ematix.pipeline(target=Orders, target_connection="w", mode="merge")
def load(conn):
    return "SELECT id, name FROM raw.orders"
assert load.preview().ok and load.dry_run().ok and load.validate().ok
print([name for name in sys.modules if name.split(".")[0] in ("pyspark", "py4j")])
"""
    source = str(Path(facade.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert done.stdout.strip() == "[]", done.stderr

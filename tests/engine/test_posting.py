# ruff: noqa: TC001 - annotations are looked up in this module while the tests run
"""Post steps and named transforms: each in its own transaction, with its own row in the run history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import pytest

from ematix_flow import BigInt, Text, connect, ematix, pipeline, pk
from ematix_flow.errors import FlowError
from tests.examples.databases import UserDatabase

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


@ematix.table(schema="analytics")
class Items:
    item_id: Annotated[BigInt, pk()]
    name: Text | None


@ematix.table(schema="analytics")
class Copies:
    item_id: Annotated[BigInt, pk()]
    name: Text | None


SELECT = "SELECT 1 AS item_id, 'a' AS name"


@pytest.fixture(
    params=[
        "duckdb",
        "sqlite",
        pytest.param("postgres_url", marks=pytest.mark.service),
        pytest.param("mysql_url", marks=pytest.mark.service),
    ]
)
def database(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UserDatabase:
    """Return one database after the other as the connection named `default`."""
    local = request.param in ("duckdb", "sqlite")
    url = f"{request.param}:///{tmp_path}/test.db" if local else request.getfixturevalue(request.param)
    monkeypatch.setenv("EMATIX_FLOW_DSN", url)
    if request.param == "mysql_url":
        UserDatabase(url).run("DROP DATABASE IF EXISTS analytics")
    return UserDatabase(url)


def _history(database: UserDatabase) -> list[tuple[Any, ...]]:
    flat = database.kind in ("sqlite", "mysql")
    return database.rows(
        f"SELECT step_name, status FROM {'ematix_flow_run_history' if flat else 'ematix_flow.run_history'} "
        "WHERE step_name IS NOT NULL ORDER BY step_name"
    )


def _load(steps: list[Any], **keywords: Any) -> Any:
    @ematix.pipeline(target=Items, mode="merge", transforms_post=steps, **keywords)
    def load_items(conn: Any) -> str:
        return SELECT

    return load_items()


def test_a_step_sees_the_load_and_what_it_counted(database: UserDatabase) -> None:
    posted: list[Any] = []

    def record(conn: Any, parent: Any) -> dict[str, int]:
        rows = conn.fetch_scalar_int(f"SELECT COUNT(*) FROM {database.table('analytics.items')}")
        posted.append((parent.pipeline_name, parent.rows_inserted, rows))
        return {"rows": rows}

    result = _load([record])
    assert posted == [("load_items", 1, 1)]
    assert _history(database) == [("transform[0]:record", "transform_success")]
    assert result["rows_inserted"] == 1


def test_a_failing_step_changes_nothing_and_stops_the_rest(database: UserDatabase) -> None:
    def spoil(conn: Any) -> None:
        conn.execute(f"UPDATE {database.table('analytics.items')} SET name = 'spoilt'")
        raise ArithmeticError("no")

    def never(conn: Any) -> None:
        raise AssertionError(conn)

    with pytest.raises(ArithmeticError, match="no"):
        _load([spoil, never])
    assert database.rows(f"SELECT name FROM {database.table('analytics.items')}") == [("a",)]
    assert _history(database) == [("transform[0]:spoil", "transform_failed")]


def test_later_steps_run_when_the_pipeline_says_so(database: UserDatabase) -> None:
    update = f"UPDATE {database.table('analytics.items')} SET name = 'b'"
    _load(["SELECT * FROM no_such_table", update], continue_on_failure_post=True)
    assert database.rows(f"SELECT name FROM {database.table('analytics.items')}") == [("b",)]
    assert [status for _, status in _history(database)] == ["transform_failed", "transform_success"]


def test_a_step_may_create_tables(database: UserDatabase) -> None:
    statement = f"CREATE TABLE {database.table('analytics.made')} (n BIGINT)"

    def fill(conn: Any) -> None:
        conn.execute(f"CREATE TABLE {database.table('analytics.mart')} (n BIGINT)")
        conn.execute_in_transaction([f"INSERT INTO {database.table('analytics.mart')} VALUES ({n})" for n in (1, 2)])

    _load([statement, fill])
    assert database.count("analytics.made") == 0
    assert database.count("analytics.mart") == 2


def test_a_pipeline_as_a_step_runs_in_full(database: UserDatabase) -> None:
    @ematix.pipeline(target=Copies, mode="append")
    def copy_items(conn: Any) -> str:
        return f"SELECT item_id, name FROM {database.table('analytics.items')}"

    _load([ematix.transform_ref("copy_items")])
    assert database.count("analytics.copies") == 1
    assert _history(database) == [("transform[0]:ref=copy_items", "transform_success")]


def test_a_step_has_failed_when_a_target_of_its_pipeline_has(database: UserDatabase) -> None:
    both = [ematix.target(Copies, mode="append"), ematix.target(Items, mode="append")]

    @ematix.pipeline(targets=both, continue_on_failure=True)
    def spread_items(conn: Any) -> str:
        return SELECT  # which the second target has

    with pytest.raises(FlowError, match="items"):
        _load([ematix.transform_ref("spread_items")])
    assert database.count("analytics.copies") == 1
    assert _history(database) == [("transform[0]:ref=spread_items", "transform_failed")]


def test_an_unknown_reference_is_a_key_error_with_the_nearest_name(database: UserDatabase) -> None:
    @ematix.transform
    def update_mart(conn: Any) -> None:
        raise AssertionError(conn)

    with pytest.raises(KeyError) as caught:
        _load([ematix.transform_ref("update_marts")])
    assert "did you mean 'update_mart'?" in str(caught.value)
    assert _history(database) == []


def test_a_transform_runs_alone(database: UserDatabase) -> None:
    @ematix.transform
    def touch(conn: Any, parent: Any) -> dict[str, Any]:
        return {"alone": parent is None, "one": conn.fetch_scalar_int("SELECT 1")}

    result = pipeline.run_transform("touch")
    assert (result["status"], result["metrics"]) == ("success", {"alone": True, "one": 1})
    assert _history(database) == [("touch", "transform_success")]


def test_a_handle_records_steps_and_runs_statements_all_or_none(database: UserDatabase) -> None:
    conn = connect()
    conn.execute("CREATE TABLE numbers (n BIGINT PRIMARY KEY)")
    with pytest.raises(ValueError, match=r"(?i)duplicate|unique|constraint"):
        conn.execute_in_transaction(["INSERT INTO numbers VALUES (1)", "INSERT INTO numbers VALUES (1)"])
    assert conn.fetch_scalar_int("SELECT COUNT(*) FROM numbers") == 0
    conn.record_transform_history("3f2504e0-4f89-41d3-9a0c-0305e82c3301", "p", "by hand", metrics_json="{}")
    conn.close()
    assert _history(database) == [("by hand", "transform_success")]

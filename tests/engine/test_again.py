# ruff: noqa: TC001 - annotations are looked up in this module while the tests run
"""Runs after runs that failed or died: nothing twice, nothing forgotten, and newer rows do not wait for broken parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import pytest

from ematix_flow import BigInt, Text, ematix, failpoints, pipeline, pk
from ematix_flow.commit import publish
from ematix_flow.commit.runlog.open import open_run_log
from ematix_flow.engine import Options, run_pipeline
from ematix_flow.engine.rejects import replay_rejects
from ematix_flow.errors import CommitError, PlanError, RunError
from tests.examples.databases import UserDatabase

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow


@ematix.table(schema="analytics")
class Items:
    item_id: Annotated[BigInt, pk()]
    name: Text


@ematix.table(schema="analytics")
class Copies:
    item_id: Annotated[BigInt, pk()]
    name: Text


@pytest.fixture
def duck(duckdb_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[UserDatabase]:
    """Return a DuckDB file as the connection named `default`."""
    monkeypatch.setenv("EMATIX_FLOW_DSN", f"duckdb:///{duckdb_path}")
    database = UserDatabase(f"duckdb:///{duckdb_path}")
    database.run("CREATE TABLE src (item_id BIGINT, name VARCHAR)")
    yield database
    failpoints.arm("")


def ids(database: UserDatabase, table: str = "analytics.items") -> list[int]:
    return [row[0] for row in database.rows(f"SELECT item_id FROM {table} ORDER BY item_id")]


def feed(database: UserDatabase, *numbers: int) -> None:
    for number in numbers:
        database.run(f"INSERT INTO src VALUES ({number}, 'n{number}')")


def declared(mode: str, **options: Any) -> Any:
    @ematix.pipeline(target=Items, mode=mode, **options)
    def load(conn: Any) -> str:
        return "SELECT * FROM src"

    return load


def test_a_broken_post_step_does_not_keep_newer_rows_away(duck: UserDatabase) -> None:
    load = declared("merge", transforms_post=["SELECT * FROM no_such_table"])
    for number in (1, 2):
        feed(duck, number)
        with pytest.raises(RunError, match="no_such_table"):
            load()
    assert ids(duck) == [1, 2]
    runs, _ = open_run_log().list_runs()
    assert [(run.status, run.failed_step, run.rows_inserted) for run in runs] == [("failed", "transforms_post", 1)] * 2


def test_rows_that_would_be_appended_twice_wait_for_the_broken_step(duck: UserDatabase) -> None:
    load = declared("append", transforms_post=["INSERT INTO later VALUES (1)"])
    feed(duck, 1)
    with pytest.raises(RunError, match="later"):
        load()
    duck.run("CREATE TABLE later (n INT)")
    assert load()["recovered"] is True
    assert (ids(duck), duck.count("later")) == ([1], 1)


def test_every_attempt_is_remembered_with_its_number(duck: UserDatabase) -> None:
    load = declared("append")
    feed(duck, 1)
    duck.run("CREATE SCHEMA analytics", "CREATE VIEW analytics.items AS SELECT 1 AS item_id")
    for _ in range(2):
        with pytest.raises(PlanError, match="view"):
            load()
    duck.run("DROP VIEW analytics.items")
    load()
    runs, _ = open_run_log().list_runs()
    assert [(run.status, run.attempt) for run in runs] == [("succeeded", 3), ("failed", 2), ("failed", 1)]
    assert duck.rows("SELECT path FROM ematix_flow.run_history") == [("same_db",)]


def test_a_broken_target_does_not_keep_newer_rows_from_the_others(duck: UserDatabase) -> None:
    duck.run("CREATE SCHEMA analytics", "CREATE VIEW analytics.copies AS SELECT 1 AS item_id, 'x' AS name")

    @ematix.pipeline(targets=[ematix.target(Items, mode="merge"), ematix.target(Copies, mode="merge")],
                     continue_on_target_failure=True)  # fmt: skip
    def both(conn: Any) -> str:
        return "SELECT * FROM src"

    for number in (1, 2):
        feed(duck, number)
        assert both()["status"] == "failed"
    assert ids(duck) == [1, 2]
    duck.run("DROP VIEW analytics.copies")
    both()
    assert ids(duck, "analytics.copies") == [1, 2]


def test_two_names_of_one_place_are_not_two_targets(duck: UserDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    feed(duck, 1)
    for name in ("ONE", "OTHER"):
        monkeypatch.setenv(f"EMATIX_FLOW_DSN_{name}", duck.url)
    targets = [ematix.target(Items, mode="append", target_connection=name) for name in ("one", "other")]

    @ematix.pipeline(targets=targets, source_connection="one", continue_on_target_failure=True)
    def twice(conn: Any) -> str:
        return "SELECT * FROM src"

    with pytest.raises(PlanError, match=r"two targets of pipeline 'twice' are the same table analytics\.items"):
        twice()


def test_a_load_that_died_is_resumed_by_itself_and_by_no_other(duck: UserDatabase) -> None:
    def sync(number: int) -> Any:
        return pipeline.sync(target=Items, source=f"SELECT {number} AS item_id, 'a' AS name", mode="append")

    failpoints.arm("runlog.before_success=raise")
    with pytest.raises(failpoints.FailpointError):
        sync(1)
    failpoints.arm("")
    assert "recovered" not in sync(2)
    assert sync(1)["recovered"] is True
    assert ids(duck) == [1, 2]


def test_rejects_are_marked_by_the_load_that_brings_them(duck: UserDatabase) -> None:
    load = declared("append", on_bad_row="reject", force_path="cross_db", transforms_pre=[])
    duck.run("INSERT INTO src VALUES (1, NULL), (2, 'fine'), (3, NULL)")
    assert load()["rows_rejected"] == 2
    duck.run("""UPDATE ematix_flow.rejects SET row_json = replace(row_json, 'null', '"mended"')""")
    failpoints.arm("commit.after_commit=raise")
    with pytest.raises(failpoints.FailpointError):
        replay_rejects(load.pipeline)
    failpoints.arm("")
    assert ids(duck) == [1, 2, 3]
    assert replay_rejects(load.pipeline)["replayed"] == 0
    assert ids(duck) == [1, 2, 3]


def test_a_reject_that_another_run_replayed_is_refused(duck: UserDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    load = declared("append", on_bad_row="reject", force_path="cross_db")
    duck.run("INSERT INTO src VALUES (1, NULL)")
    load()
    own = publish._set_replayed

    def late(order: Any, ledger: Any, session: Any, now: Any) -> None:
        session.execute("UPDATE ematix_flow.rejects SET status = 'replayed'")
        own(order, ledger, session, now)

    monkeypatch.setattr(publish, "_set_replayed", late)
    with pytest.raises(CommitError, match="replayed by another run"):
        replay_rejects(load.pipeline)


def test_a_pipeline_as_post_step_is_loaded_once_per_load(duck: UserDatabase) -> None:
    feed(duck, 1)

    @ematix.pipeline(target=Copies, mode="append")
    def copy_items(conn: Any) -> str:
        return "SELECT * FROM src"

    load = declared("merge", transforms_post=[ematix.transform_ref("copy_items")])
    run_pipeline(load.pipeline, Options(slot="one"))
    # As if the process had died between the child's commit and the note that the step is done.
    duck.run("UPDATE ematix_flow.run_history SET status = 'lost' WHERE step_name IS NOT NULL")
    run_pipeline(load.pipeline, Options(slot="one"))
    assert ids(duck, "analytics.copies") == [1]


@pytest.mark.parametrize("value", ["'infinity'::TIMESTAMP", "'nan'::DOUBLE", "'inf'::DOUBLE"])
def test_a_watermark_that_nothing_comes_after_is_refused(duck: UserDatabase, value: str) -> None:
    duck.run(f"CREATE TABLE stamped AS SELECT 1 AS item_id, 'a' AS name, {value} AS at")

    @ematix.pipeline(target=Items, mode="append", incremental_column="at")
    def load(conn: Any) -> str:
        return "SELECT * FROM stamped"

    with pytest.raises(RunError, match="never see another row"):
        load()

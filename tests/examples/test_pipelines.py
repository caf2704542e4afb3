"""The documented pipelines, unchanged, on the databases they speak of."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow import pipeline
from ematix_flow.declare.pipeline.pipeline import Retry
from tests.examples.databases import EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from tests.examples.databases import UserDatabase

    Example = Callable[..., ModuleType]

pytestmark = pytest.mark.slow

QUERY = "SELECT customer_id, email, name FROM analytics.customer_dim ORDER BY customer_id"
CLEAN = [(1, "ada@example.com", "Ada"), (2, None, "Bob"), (3, None, None)]


@pytest.mark.service
@pytest.mark.parametrize(("name", "variable"), [("opening", "WAREHOUSE_URL"), ("minimum", "WAREHOUSE_DSN")])
def test_a_declared_connection_table_and_query_are_the_whole_file(
    name: str, variable: str, example: Example, postgres: UserDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.create_events()
    monkeypatch.setenv(variable, postgres.url)
    module = example(name)
    result = module.ingest_events()
    assert (result["rows_inserted"], result["path"]) == (3, "same_db")
    rows = postgres.rows("SELECT event_id, name, received_at, _batch_id::text FROM analytics.events ORDER BY 1")
    assert [row[:2] for row in rows] == [row[:2] for row in EVENTS]
    assert rows[0][2] == datetime(2026, 1, 1, 10, tzinfo=UTC)
    assert {row[3] for row in rows} == {result["run_id"]}


def test_a_managed_table_is_declared_by_its_annotations(example: Example) -> None:
    events = example("opening").Events
    assert (events.__schema__, events.__tablename__) == ("analytics", "events")
    described = [(c.name, str(c.type), c.nullable, c.primary_key) for c in events.__columns__]
    assert described == [
        ("event_id", "BigInt", False, True),
        ("name", "Text", True, False),
        ("received_at", "TimestampTZ", False, False),
    ]


@pytest.mark.service
def test_quickstart_parses_what_is_a_timestamp_already_and_keeps_history(
    example: Example, postgres: UserDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.create_customers()
    monkeypatch.setenv("EMATIX_FLOW_DSN", postgres.url)
    sync_customers = example("quickstart").sync_customers
    assert sync_customers()["rows_inserted"] == 3
    assert postgres.rows(QUERY) == CLEAN
    postgres.run("UPDATE raw.customers SET email = 'bob@example.com ' WHERE customer_id = 2")
    result = sync_customers()
    assert [result[key] for key in ("rows_inserted", "rows_closed")] == [1, 1]
    versions = postgres.rows(
        "SELECT email, is_current, valid_to IS NULL FROM analytics.customer_dim WHERE customer_id = 2 ORDER BY valid_from"
    )
    assert versions == [(None, False, False), ("bob@example.com", True, True)]


@pytest.mark.service
def test_upstreams_and_retries_are_declared_beside_the_pipeline(
    example: Example, postgres: UserDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.create_events()
    monkeypatch.setenv("WAREHOUSE_DSN", postgres.url)
    module = example("dependencies")
    assert pipeline.depends_on_of("daily_rollups") == ("ingest_events",)
    assert pipeline.retry_policy_of("daily_rollups") == Retry(5, "exponential", timedelta(seconds=30), 2.0)
    assert pipeline.order_for_run_due(["daily_rollups", "ingest_events"]) == ["ingest_events", "daily_rollups"]
    module.ingest_events()
    assert module.daily_rollups()["rows_inserted"] == 1
    assert postgres.rows("SELECT events FROM analytics.daily_rollups") == [(3,)]


@pytest.mark.spark
@pytest.mark.service
@pytest.mark.usefixtures("spark")
def test_the_function_gets_the_source_connection_of_another_database(
    example: Example, postgres: UserDatabase, duck: UserDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    duck.create_customers("customers")
    monkeypatch.setenv("EMATIX_FLOW_DSN_RAW_DB", duck.url)
    monkeypatch.setenv("EMATIX_FLOW_DSN_WAREHOUSE", postgres.url)
    result = example("wiring").sync_customers()
    assert (result["path"], result["rows_inserted"]) == ("cross_db", 3)
    assert postgres.rows(QUERY) == CLEAN


@pytest.mark.spark
@pytest.mark.service
@pytest.mark.usefixtures("spark")
def test_one_query_loads_two_targets_in_two_databases(
    example: Example, postgres: UserDatabase, duck: UserDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.create_customers("customers")
    monkeypatch.setenv("EMATIX_FLOW_DSN_RAW_DB", postgres.url)
    monkeypatch.setenv("EMATIX_FLOW_DSN_WAREHOUSE", postgres.url)
    monkeypatch.setenv("EMATIX_FLOW_DSN_LAKE", duck.url)
    results = example("fan_out").sync_customers()
    assert {name: (one["rows_inserted"], one["path"]) for name, one in results.items()} == {
        "analytics.customer_dim": (3, "same_db"),
        "archive.customer_archive": (3, "cross_db"),
    }
    assert postgres.rows(QUERY) == CLEAN
    archived = duck.rows("SELECT customer_id, email FROM archive.customer_archive ORDER BY 1")
    assert archived == [(1, " ada@example.com "), (2, "  "), (3, None)]


def _one_file(database: UserDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAW_DB", "WAREHOUSE", "LAKE"):
        monkeypatch.setenv(f"EMATIX_FLOW_DSN_{name}", database.url)


def test_a_failing_target_does_not_block_the_others_when_asked(
    example: Example, duck: UserDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    duck.create_customers("customers")
    _one_file(duck, monkeypatch)
    duck.schemas("analytics")
    duck.run("CREATE TABLE analytics.customer_dim (something_else BIGINT)")
    outcome = example("fan_out_continue").sync_customers()
    assert sorted(outcome["results"]) == ["archive.customer_archive"]
    assert "schema drift" in outcome["errors"]["analytics.customer_dim"]
    assert duck.count("archive.customer_archive") == 3


def test_without_asking_the_first_failure_is_raised(
    example: Example, duck: UserDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    duck.create_customers("customers")
    _one_file(duck, monkeypatch)
    duck.schemas("analytics")
    duck.run("CREATE TABLE analytics.customer_dim (something_else BIGINT)")
    with pytest.raises(ValueError, match="schema drift detected"):
        example("fan_out").sync_customers()


def test_a_static_source_on_sqlite_has_the_schema_as_a_prefix(
    example: Example, lite: UserDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    lite.create_customers()
    monkeypatch.setenv("EMATIX_FLOW_DSN", lite.url)
    assert example("static_source").sync_customers()["rows_inserted"] == 3
    rows = lite.rows("SELECT customer_id, email, name FROM analytics_customer_dim ORDER BY 1")
    assert rows == CLEAN


def test_a_pipeline_can_be_called_from_other_programs(
    example: Example, default: UserDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    default.create_events()
    default.add_event((1, "reopened", "2026-01-03 00:00:00"))
    monkeypatch.setitem(sys.modules, "my_pipelines", example("transforms", "my_pipelines"))
    example("programmatic")
    assert default.count("analytics.events") == 2


def test_keys_for_an_append_are_ignored_with_a_warning(
    example: Example, duck: UserDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    duck.create_events()
    monkeypatch.setenv("EMATIX_FLOW_DSN", duck.url)
    monkeypatch.setitem(sys.modules, "my_pipelines", example("append", "my_pipelines"))
    with pytest.warns(UserWarning, match="keys= is ignored"):
        example("programmatic")
    assert duck.count("analytics.events") == 3


def test_maintenance_after_the_load_does_not_fail_validation(example: Example, default: UserDatabase) -> None:
    from ematix_flow.engine.review.validate import validate_pipeline

    default.create_events()
    ingest = example("transforms").ingest
    ingest()
    checked: Any = validate_pipeline(ingest.pipeline)
    assert (checked.ok, list(checked.errors)) == (True, [])


# Files


def test_file_formats_are_read_off_the_path(example: Example) -> None:
    module = example("file_formats")
    assert (module.csv, module.json_lines, module.parquet) == ("csv", "json_lines", "parquet")


def test_file_options_stand_on_a_target(example: Example) -> None:
    module = example("file_options")
    assert module.parquet.parquet_compression == "zstd"
    assert (module.written_csv.csv_delimiter, module.written_csv.csv_null_value) == (";", "\\N")
    assert module.read_csv.csv_read_options["null_regex"] == r"^(NA|NULL|\\N)$"
    assert "SECRET" not in repr(module.lake)

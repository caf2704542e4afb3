"""The documented modes, unchanged, on the connection named `default` of each database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow import pipeline
from tests.examples.databases import EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from tests.examples.databases import UserDatabase

    Example = Callable[..., ModuleType]

pytestmark = pytest.mark.slow


def _days(days: float) -> str:
    return (datetime.now(UTC) - timedelta(days=days)).strftime("%Y-%m-%d %H:%M:%S")


def test_append_inserts_every_row_of_the_source(example: Example, default: UserDatabase) -> None:
    default.create_events()
    result = example("append").ingest()
    assert (result["status"], result["rows_inserted"], result["path"]) == ("success", 3, "same_db")
    assert default.rows("SELECT event_id, name FROM analytics.events ORDER BY 1") == [row[:2] for row in EVENTS]


def test_append_again_refuses_a_primary_key_twice_and_changes_nothing(example: Example, default: UserDatabase) -> None:
    default.create_events()
    ingest = example("append").ingest
    ingest()
    default.add_event((4, "new", "2026-01-02 00:00:00"))
    with pytest.raises(ValueError, match="the target refused the load"):
        ingest()
    assert default.count("analytics.events") == 3


def test_truncate_replaces_every_row_and_refuses_an_empty_source(example: Example, default: UserDatabase) -> None:
    default.create_events()
    ingest = example("truncate").ingest
    ingest()
    default.run("DELETE FROM raw.events WHERE event_id < 3")
    assert ingest()["rows_inserted"] == 1
    assert default.rows("SELECT event_id FROM analytics.events") == [(3,)]
    default.run("DELETE FROM raw.events")
    with pytest.raises(ValueError, match="is empty"):
        ingest()
    assert default.count("analytics.events") == 1


def test_merge_updates_only_rows_whose_compare_columns_changed(example: Example, default: UserDatabase) -> None:
    default.create_customers()
    sync = example("merge").sync
    assert (first := sync())["rows_inserted"] == 3
    before = default.rows("SELECT customer_id, _batch_id FROM analytics.customer_dim ORDER BY 1")
    default.run("UPDATE raw.customers SET name = 'Robert' WHERE customer_id = 2")
    second = sync()
    assert [second[name] for name in ("rows_inserted", "rows_updated", "rows_unchanged")] == [0, 1, 2]
    after = default.rows("SELECT customer_id, _batch_id FROM analytics.customer_dim ORDER BY 1")
    changed = [new[0] for old, new in zip(before, after, strict=True) if old != new]
    assert changed == [2]
    assert {str(batch) for _, batch in after} == {first["run_id"], second["run_id"]}


def test_merge_leaves_a_row_alone_when_only_other_columns_changed(example: Example, default: UserDatabase) -> None:
    default.create_customers()
    declared = example("tables").CustomerDim
    source = "SELECT customer_id, email, name, updated_at FROM raw.customers"
    options: dict[str, Any] = {"target": declared, "source": source, "mode": "merge", "compare_columns": ["name"]}
    pipeline.sync(**options)
    default.run("UPDATE raw.customers SET email = 'other@example.com' WHERE customer_id = 1")
    result = pipeline.sync(**options)
    assert (result["rows_updated"], result["rows_unchanged"]) == (0, 3)
    emails = default.rows("SELECT email FROM analytics.customer_dim WHERE customer_id = 1")
    assert emails == [("ada@example.com",)]


def test_scd2_versions_by_event_time_and_closes_what_is_too_old(example: Example, default: UserDatabase) -> None:
    default.create_customers()
    default.run("DELETE FROM raw.customers")
    default.add_customer((1, "a@example.com", "Ada", _days(20)))
    default.add_customer((2, "b@example.com", "Bob", _days(40)))
    sync = example("scd2").sync
    assert sync()["rows_inserted"] == 2
    default.add_customer((1, "A@Example.com ", "Lovelace", _days(10)))
    result = sync()
    versions = default.rows(
        "SELECT name, is_current, valid_to IS NULL FROM analytics.customer_dim WHERE customer_id = 1 ORDER BY valid_from"
    )
    assert [(name, bool(current), bool(still)) for name, current, still in versions] == [
        ("Ada", False, False),
        ("Lovelace", True, True),
    ]
    assert result["rows_closed"] >= 1
    expired = default.rows("SELECT is_current FROM analytics.customer_dim WHERE customer_id = 2")
    assert [bool(current) for (current,) in expired] == [False]


def test_incremental_reads_only_what_came_after_the_watermark(example: Example, default: UserDatabase) -> None:
    default.create_events()
    ingest = example("incremental").ingest
    assert ingest()["rows_inserted"] == 3
    assert ingest()["rows_inserted"] == 0
    default.add_event((4, "late", "2026-01-01 11:30:00"))
    default.add_event((5, "new", "2026-01-01 13:00:00"))
    assert ingest()["rows_inserted"] == 1
    assert default.rows("SELECT MAX(event_id), COUNT(*) FROM analytics.events") == [(5, 4)]
    table = "ematix_flow_watermarks" if default.kind == "mysql" else "ematix_flow.watermarks"
    [(name, column, value)] = default.rows(f"SELECT pipeline_name, column_name, last_value FROM {table}")
    assert (name, column) == ("ingest", "received_at")
    assert value.startswith("2026-01-01 13:00:00")


def test_pre_transforms_shape_the_rows_and_post_steps_follow(example: Example, default: UserDatabase) -> None:
    default.create_events()
    default.add_event((1, "reopened", "2026-01-03 00:00:00"))
    result = example("transforms").ingest()
    assert result["rows_inserted"] == 2
    loaded = default.rows("SELECT event_id, name FROM analytics.events ORDER BY 1")
    assert loaded == [(1, "reopened"), (3, "closed")]
    assert default.rows("SELECT n FROM analytics.mart") == [(2,)]


def test_static_source_needs_no_query(example: Example, default: UserDatabase) -> None:
    default.create_customers()
    result = example("static_source").sync_customers()
    assert result["rows_inserted"] == 3
    emails = default.rows("SELECT email FROM analytics.customer_dim WHERE is_current ORDER BY customer_id")
    assert emails == [("ada@example.com",), (None,), (None,)]


def test_static_source_follows_the_column_map(
    example: Example, default: UserDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMATIX_FLOW_DSN_WAREHOUSE", default.url)
    default.create_customers(name="full_name")
    assert example("static_source_renamed").sync_customers()["rows_inserted"] == 3
    assert default.rows("SELECT name FROM analytics.customer_dim ORDER BY customer_id") == [("Ada",), ("Bob",), (None,)]


def test_a_natural_key_is_the_business_key_of_scd2(example: Example, default: UserDatabase) -> None:
    default.run("CREATE TABLE raw.customers (row_id BIGINT, customer_id BIGINT, email VARCHAR(256))")
    default.run("INSERT INTO raw.customers VALUES (10, 1, 'a@example.com')")
    sync = example("natural_keys").sync
    with pytest.warns(UserWarning, match=r"is merged on \(customer_id\)"):
        assert sync()["rows_inserted"] == 1
    default.run("UPDATE raw.customers SET email = 'ada@example.com'")
    with pytest.warns(UserWarning, match="pass keys= to silence this"):
        result = sync()
    assert (result["rows_inserted"], result["rows_closed"]) == (1, 1)
    assert default.count("analytics.customer_dim") == 2


def test_explicit_keys_silence_the_warning(example: Example, default: UserDatabase, recwarn: Any) -> None:
    default.run("CREATE TABLE raw.customers (row_id BIGINT, customer_id BIGINT, email VARCHAR(256))")
    default.run("INSERT INTO raw.customers VALUES (10, 1, 'a@example.com')")
    assert example("natural_keys").sync.sync(keys=("customer_id",))["rows_inserted"] == 1
    assert [str(w.message) for w in recwarn if issubclass(w.category, UserWarning)] == []

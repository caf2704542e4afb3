"""Change events into every system: the table is that of the source, whatever order, repetition or batches they come in."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow import CDC
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.events import BatchLoaded, StreamWarning
from ematix_flow.observe.bus import Bus
from tests.contracts.systems import SYSTEMS, parameter
from tests.depth import deep_but
from tests.streams.mirrors import BEGIN_MS, LAKES, PAIRS, SOFT, Mirror, empty_target, event, row

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.events import Event
    from tests.streams.feeds import Topic

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("streams")]

LAKE_TABLES = [pytest.param(kind, marks=[pytest.mark.spark, pytest.mark.deep]) for kind in LAKES]


QUICK = ("postgres", "mysql")
"""Systems that every run of the tests tries; DuckDB is the target of other tests of changes, and lakes take a while."""

DATABASES = [parameter(one, *(() if one.kind in QUICK else (pytest.mark.deep,))) for one in SYSTEMS]
TARGETS = [*DATABASES, *LAKE_TABLES]


@pytest.fixture(params=TARGETS)
def mirror(request: pytest.FixtureRequest, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    """Return an empty mirror in each system."""
    mirror = Mirror(topic, empty_target(request, request.param, tmp_path))
    if isinstance(request.param, str):
        return mirror
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", "local")
    if request.param.schemas_outlive:
        mirror.drop()
    return mirror


def test_changes_make_the_table_of_the_source(mirror: Mirror) -> None:
    mirror.apply([
        event("c", 1, row(1, "a", 10)),
        event("r", 2, row(2, "b", 20)),
        event("u", 3, row(1, "aa", 11), row(1, "a", 10)),
        event("d", 4, None, {"id": 2, "name": None, "amount": None}),
        None,
        event("c", 5, row(3, "c")),
    ])  # fmt: skip
    assert mirror.rows() == [(1, "aa", 11), (3, "c", None)]
    # Older than what is there, and one of a key that is gone.
    mirror.apply([event("u", 2, row(1, "old", 0)), event("c", 2, row(2, "b", 20)), event("u", 3, row(1, "x", 0))], 1)
    assert mirror.rows() == [(1, "aa", 11), (3, "c", None)]
    mirror.apply([event("c", 6, row(2, "again", 21)), event("d", 7, None, {"id": 3})], 2)
    assert mirror.rows() == [(1, "aa", 11), (2, "again", 21)]


def test_columns_that_a_change_does_not_carry_stay(mirror: Mirror) -> None:
    mirror.apply([event("c", 1, row(1, "a", 10)), event("c", 2, row(2, "b", 20)), event("c", 3, row(3, "c", 30))])
    mirror.apply([
        event("u", 4, {"id": 1, "name": "aa"}),
        event("u", 5, {"id": 1, "amount": 11}),
        event("u", 6, {"id": 2, "name": "__debezium_unavailable_value", "amount": None}),
        event("d", 7, None, {"id": 3}),
        event("c", 8, {"id": 3, "name": "new"}),
    ])  # fmt: skip
    assert mirror.rows() == [(1, "aa", 11), (2, "b", None), (3, "new", None)]


def test_a_changed_key_moves_its_row(mirror: Mirror) -> None:
    mirror = replace(mirror, table=PAIRS)
    mirror.apply([event("c", 1, {"a": 1, "b": "x", "amount": 1}), event("c", 2, {"a": 1, "b": "X", "amount": 2})])
    mirror.apply([event("u", 3, {"a": 2, "b": "x", "amount": 3}, {"a": 1, "b": "x", "amount": 1})])
    assert mirror.rows() == [(1, "X", 2), (2, "x", 3)]


def test_a_changed_key_takes_along_what_its_change_does_not_carry(mirror: Mirror) -> None:
    mirror = replace(mirror, cdc=CDC(missing_rows="ignore"))
    mirror.apply([event("c", 1, row(1, "a", 10)), event("c", 2, row(2, "b", 20)), event("c", 3, row(3, "c", 30))])
    mirror.apply([
        event("u", 4, {"id": 4, "name": "__debezium_unavailable_value", "amount": 11}, {"id": 1}),
        event("u", 5, {"id": 2, "name": "bb"}),
        event("u", 6, {"id": 5}, {"id": 2}),
        event("u", 7, {"id": 6, "amount": 21}, {"id": 5}),
        event("d", 8, None, {"id": 3}),
        event("u", 9, {"id": 8, "amount": 1}),
    ])  # fmt: skip
    assert mirror.rows() == [(4, "a", 11), (6, "bb", 21)]


one_database = pytest.mark.parametrize("mirror", deep_but(TARGETS, "postgres"), indirect=True)


@one_database
def test_a_truncated_table_is_emptied_but_for_what_came_later(mirror: Mirror) -> None:
    mirror.apply([event("c", 1, row(1, "a", 1)), event("c", 2, row(2, "b", 2)), event("c", 9, row(3, "later", 3))])
    mirror.apply([event("t", 5), event("u", 6, {"id": 2, "name": "again"})], 1)
    assert mirror.rows() == [(2, "again", None), (3, "later", 3)]
    mirror.apply([event("c", 4, row(4, "before the truncate", 4))], 2)
    assert mirror.rows() == [(2, "again", None), (3, "later", 3)]


@one_database
def test_deleted_rows_can_be_marked(mirror: Mirror) -> None:
    mirror = replace(mirror, table=SOFT, cdc=CDC(delete_mode="soft", soft_delete_column="gone_at"))
    mirror.apply([event("c", 1, row(1, "a", 1)), event("c", 2, row(2, "b", 2))])
    mirror.apply([event("d", 3, None, {"id": 1}), event("d", 5, None, row(3, "c", 3))])
    marked: list[Any] = mirror.rows("id", "name", "amount", "CASE WHEN gone_at IS NULL THEN 0 ELSE 1 END")
    assert marked == [(1, "a", 1, 1), (2, "b", 2, 0), (3, "c", 3, 1)]
    mirror.apply([event("c", 4, row(3, "c", 3)), event("c", 6, row(1, "back", 1))], 1)
    marked = mirror.rows("id", "name", "amount", "CASE WHEN gone_at IS NULL THEN 0 ELSE 1 END")
    assert marked == [(1, "back", 1, 0), (2, "b", 2, 0), (3, "c", 3, 1)]


def test_marked_rows_have_what_was_written_before_them_in_the_same_batch(mirror: Mirror) -> None:
    columns = (SOFT.columns[0], replace(SOFT.columns[1], nullable=False), *SOFT.columns[2:])
    soft = CDC(delete_mode="soft", soft_delete_column="gone_at")
    mirror = replace(mirror, table=replace(SOFT, columns=columns), cdc=soft)
    mirror.apply([event("c", 1, row(1, "ann", 1)), event("c", 2, row(4, "dan", 4))])
    mirror.apply([
        event("u", 3, row(1, "bob", 2)),
        event("d", 4, None, {"id": 1}),
        event("c", 5, row(2, "new", 3)),
        event("d", 6, None, row(2, "", 0)),
        event("d", 7, None, row(4, "", 0)),
        event("c", 8, row(3, "cleared", 5)),
        event("t", 9),
    ])  # fmt: skip
    marked: list[Any] = mirror.rows("id", "name", "amount", "CASE WHEN gone_at IS NULL THEN 0 ELSE 1 END")
    assert marked == [(1, "bob", 2, 1), (2, "new", 3, 1), (3, "cleared", 5, 1), (4, "dan", 4, 1)]


def test_a_change_that_comes_long_after_a_newer_one_is_late(mirror: Mirror) -> None:
    heard: list[Event] = []
    bus = Bus()
    bus.subscribe(heard.append)
    second = 1000
    mirror.apply([event("c", 60 * second, row(1, "new", 1)), event("d", 61 * second, None, {"id": 2})], bus=bus)
    mirror.apply([event("u", 58 * second, row(1, "ordinary", 2)), event("u", 60 * second, row(1))], 1, bus=bus)
    assert sum(one.counts.late for one in heard if isinstance(one, BatchLoaded)) == 0
    replace(mirror, options={"max_rows_per_batch": 1}).apply(
        [event("u", 54 * second, row(1, "late", 3)), event("c", 1 * second, row(2, "late", 4))], 2, bus=bus
    )
    assert mirror.rows() == [(1, "new", 1)]
    on_lakes = mirror.connection.kind in ("delta_local", "iceberg")
    assert sum(one.counts.late for one in heard if isinstance(one, BatchLoaded)) == (0 if on_lakes else 2)
    warnings = [one.message for one in heard if isinstance(one, StreamWarning)]
    assert len(warnings) == (0 if on_lakes else 1)
    assert all("1 change came more than 5,000 milliseconds after newer ones" in one for one in warnings)


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_spark_stages_changes_too(topic: Topic, duckdb_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", "spark")
    mirror = Mirror(topic, connection_from_fields("target", {"kind": "duckdb", "path": str(duckdb_path)}))
    mirror.apply([event("c", 1, row(1, "a", 10)), event("c", 2, row(2, "b", 20)), event("d", 3, None, {"id": 2})])
    heard: list[Event] = []
    bus = Bus()
    bus.subscribe(heard.append)
    mirror.apply([event("c", 2, row(2, "b", 20)), event("u", 4, {"id": 1, "name": "aa", "colour": "red"})], 1, bus=bus)
    assert mirror.rows() == [(1, "aa", 10)]
    (warning,) = [one.message for one in heard if isinstance(one, StreamWarning)]
    assert "the column 'colour'" in warning, "tasks hand over what they note"


@pytest.mark.parametrize("size", [1, 9])
def test_of_changes_at_one_instant_the_last_one_of_the_log_counts(mirror: Mirror, size: int) -> None:
    mirror = replace(mirror, options={"mode": "scd2"})

    def change(op: str, lsn: int, key: int, amount: int = 0, *, at: int = 2000) -> dict[str, Any]:
        old, new = ({"id": key}, None) if op == "d" else (None, row(key, "a", amount))
        return event(op, lsn, new, old) | {"source": {"lsn": lsn, "ts_ms": BEGIN_MS + at}}

    mirror.apply([change("c", 1, key, 5, at=1000) for key in (1, 2, 3)])
    events = [
        change("u", 10, 1, 9), change("u", 11, 1, 2),
        change("u", 12, 2, 9), change("d", 13, 2),
        change("d", 14, 3), change("c", 15, 3, 1),
        change("c", 16, 4, 9), change("d", 17, 4), change("c", 18, 4, 1),
        change("c", 19, 5, 9), change("d", 20, 5),
    ]  # fmt: skip
    for start in range(0, len(events), size):
        mirror.apply(events[start : start + size])
    assert mirror.rows("id", "amount", "is_current") == [
        (1, 2, True),
        (1, 5, False),
        (2, 5, False),
        (3, 1, True),
        (3, 5, False),
        (4, 1, True),
    ]

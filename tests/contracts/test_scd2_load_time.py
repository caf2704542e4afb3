"""scd2 by load time as pipelines: a version per change, closed where the next one begins."""

from __future__ import annotations

import itertools
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.connect.base.stage import StageColumn
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Boolean, Bytes, Date, Numeric, String, Text, Timestamp, TimestampTZ
from ematix_flow.errors import BadRowsError, CommitError
from ematix_flow.plan.sql.modes.row_hash import row_hash
from tests.contracts.flows import START, in_and_out

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contracts.flows import Flow, Row

    Flows = Callable[..., Flow]

pytestmark = pytest.mark.slow

PEOPLE = Table(
    "hist",
    "people",
    (
        Column(BigInt(), primary_key=True, name="id"),
        Column(Text(), name="name"),
        Column(Numeric(12, 2), name="pay"),
    ),
)


def person(key: int | None, name: str | None = "n", pay: str | None = "1.50") -> Row:
    return {"id": key, "name": name, "pay": None if pay is None else Decimal(pay)}


def versions_by_load(flow: Flow) -> list[tuple[Any, ...]]:
    """Return key, name, the loads between which a version was valid, and whether it is current."""
    return [(v["id"], v["name"], hour(v["valid_from"]), hour(v["valid_to"]), v["is_current"]) for v in flow.versions()]


def hour(at: datetime | None) -> float | None:
    return None if at is None else (at - START) / timedelta(hours=1)


def check_invariants(versions: list[Row], keys: tuple[str, ...] = ("id",)) -> None:
    """One current version at most, it is the last one, and no version overlaps another."""
    for _, group in itertools.groupby(versions, key=lambda v: [v[key] for key in keys]):
        mine = list(group)
        assert all(v["is_current"] == (v["valid_to"] is None) for v in mine)
        assert all(v["valid_to"] is None or v["valid_from"] < v["valid_to"] for v in mine)
        for before, after in itertools.pairwise(mine):
            assert before["valid_to"] is not None
            assert before["valid_to"] <= after["valid_from"]


@pytest.mark.every_system
@in_and_out
def test_a_change_closes_a_version_and_opens_the_next_at_the_same_instant(flows: Flows) -> None:
    flow = flows(PEOPLE, mode="scd2")
    flow.run([person(1), person(2), person(3, None)])
    result = flow.run([person(1), person(2, "N"), person(3), person(4)])
    assert (result["rows_inserted"], result["rows_closed"], result["rows_unchanged"]) == (3, 2, 1)
    assert versions_by_load(flow) == [
        (1, "n", 1.0, None, True),
        (2, "n", 1.0, 2.0, False),
        (2, "N", 2.0, None, True),
        (3, None, 1.0, 2.0, False),
        (3, "n", 2.0, None, True),
        (4, "n", 2.0, None, True),
    ]
    check_invariants(flow.versions())


def test_the_framework_adds_its_columns_and_the_start_of_a_version_to_the_key(flows: Flows) -> None:
    flow = flows(PEOPLE, mode="scd2")
    flow.run([person(1)])
    with closing(flow.database.session()) as session:
        existing = flow.database.find_table(session, flow.database.table_name("hist", "people"))
    assert existing is not None
    added = ["valid_from", "valid_to", "is_current", "row_hash", "_loaded_at", "_batch_id"]
    assert [column.name for column in existing.columns] == ["id", "name", "pay", *added]
    assert [column.nullable for column in existing.columns] == [
        False,
        True,
        True,
        False,
        True,
        False,
        False,
        False,
        False,
    ]
    assert existing.primary_key == (("id", "valid_from") if flow.database.capabilities.constraints else ())


@in_and_out
def test_the_same_rows_again_change_nothing(flows: Flows) -> None:
    flow = flows(PEOPLE, mode="scd2")
    rows = [person(1), person(2, None, None)]
    flow.run(rows)
    before = flow.versions(), flow.stamps()
    result = flow.run(rows)
    assert (result["rows_inserted"], result["rows_closed"], result["rows_unchanged"]) == (0, 0, 2)
    assert (flow.versions(), flow.stamps()) == before


@in_and_out
def test_soft_deletes_close_absent_keys_and_a_returning_key_opens_a_version(flows: Flows) -> None:
    flow = flows(PEOPLE, mode="scd2", handle_deletes="soft")
    flow.run([person(1), person(2)])
    assert flow.run([person(2)])["rows_closed"] == 1
    flow.run([person(1), person(2)])
    assert versions_by_load(flow) == [(1, "n", 1.0, 2.0, False), (1, "n", 3.0, None, True), (2, "n", 1.0, None, True)]
    with pytest.raises(CommitError, match="empty"):
        flow.run([])
    assert len(versions_by_load(flow)) == 3


@in_and_out
def test_versions_past_their_time_to_live_are_closed(flows: Flows) -> None:
    flow = flows(PEOPLE, mode="scd2", ttl=timedelta(minutes=90))
    flow.run([person(1)])
    flow.run([person(2)])
    assert flow.run([person(2)])["rows_closed"] == 1
    assert versions_by_load(flow) == [(1, "n", 1.0, 3.0, False), (2, "n", 2.0, None, True)]
    flow.run([person(1), person(2)])
    assert versions_by_load(flow)[1] == (1, "n", 4.0, None, True)
    check_invariants(flow.versions())


@in_and_out
def test_only_compare_columns_open_a_version_and_it_stores_all_columns(flows: Flows) -> None:
    flow = flows(PEOPLE, mode="scd2", compare_columns=["pay"])
    flow.run([person(1)])
    flow.run([person(1, "renamed")])
    assert versions_by_load(flow) == [(1, "n", 1.0, None, True)]
    flow.run([person(1, "raised", "2.00")])
    assert versions_by_load(flow) == [(1, "n", 1.0, 3.0, False), (1, "raised", 3.0, None, True)]


@in_and_out
def test_equal_duplicates_are_one_version_and_different_ones_are_refused(flows: Flows) -> None:
    flow = flows(PEOPLE, mode="scd2")
    flow.run([person(1), person(1), person(2, None), person(2, None)])
    assert [version[:2] for version in versions_by_load(flow)] == [(1, "n"), (2, None)]
    with pytest.raises(CommitError, match=r"same key: 1\b"):
        flow.run([person(1), person(1, "changed"), person(2, None)])
    assert len(versions_by_load(flow)) == 2


@in_and_out
def test_a_null_key_is_a_bad_row(flows: Flows) -> None:
    flow = flows(PEOPLE, mode="scd2")
    with pytest.raises(BadRowsError, match="id"):
        flow.run([person(1), person(None)])


@in_and_out
def test_a_natural_key_is_a_business_key_with_many_versions(flows: Flows) -> None:
    columns = (
        Column(BigInt(), primary_key=True, name="id"),
        Column(String(20), nullable=False, name="email"),
        Column(Text(), name="name"),
    )
    table = Table("hist", "customers", columns, unique_constraints=(("email",),), natural_keys=("email",))
    flow = flows(table, mode="scd2")
    for name in ("first", "second", "third"):
        with pytest.warns(UserWarning, match="email"):
            flow.run([{"id": 1, "email": "a@b", "name": name}])
    assert [v["name"] for v in flow.versions()] == ["first", "second", "third"]
    check_invariants(flow.versions(), ("email",))


def test_a_clock_that_goes_backwards_still_gives_versions_in_order(flows: Flows) -> None:
    flow = flows(PEOPLE, mode="scd2", handle_deletes="soft")
    flow.count = 10
    flow.run([person(1), person(2)])
    flow.count = 3
    flow.run([person(1, "later")])
    check_invariants(flow.versions())
    assert [v["name"] for v in flow.versions() if v["id"] == 1] == ["n", "later"]
    assert [v["is_current"] for v in flow.versions() if v["id"] == 2] == [False]


HASHED = Table(
    "hist",
    "hashed",
    (
        Column(BigInt(), primary_key=True, name="id"),
        Column(Text(), name="text"),
        Column(String(30), name="short"),
        Column(Numeric(12, 2), name="amount"),
        Column(Numeric(38, 10), name="long"),
        Column(Boolean(), name="flag"),
        Column(Date(), name="day"),
        Column(Timestamp(), name="local"),
        Column(TimestampTZ(), name="at"),
        Column(Bytes(), name="raw"),
        Column(BigInt(), name="number"),
    ),
)


@in_and_out
def test_the_row_hash_is_the_documented_one_on_both_paths(flows: Flows) -> None:
    full = ("ünï|:-", "a-b", Decimal("-0.50"), Decimal("12345678901234567890.0123456789"), False)
    instants = (datetime(1999, 2, 3, tzinfo=UTC).date(), datetime(1999, 2, 3, 4, 5, 6, 7), START)  # noqa: DTZ001
    names = [column.name for column in HASHED.columns]
    rows: list[Row] = [
        dict(zip(names, (1, *full, *instants, b"\0\xff", -7), strict=True)),
        dict(zip(names, (2, *[None] * 10), strict=True)),
        dict(zip(names, (3, "", "", Decimal("0.00"), Decimal(0), True, *instants, b"", 0), strict=True)),
    ]
    flow = flows(HASHED, mode="scd2")
    flow.run(rows)
    columns = [StageColumn(column.name, column.type) for column in HASHED.columns[1:]]
    expected = [row_hash(columns, [row[column.name] for column in columns]) for row in rows]
    assert [version["row_hash"] for version in flow.versions()] == expected
    assert len(set(expected)) == 3

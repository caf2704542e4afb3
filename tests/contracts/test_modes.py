"""Every mode gives the same rows and the same counts on every system."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.commit.ledger import Ledger, parse_instant
from ematix_flow.connect.base.stage import StageColumn
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import (
    BigInt,
    Numeric,
    String,
    Text,
    TimestampTZ,
)
from ematix_flow.errors import BadRowsError, CommitError
from ematix_flow.plan.sql.modes.row_hash import row_hash
from ematix_flow.records import Counts
from tests.contracts.loads import START, Loader
from tests.contracts.values import EVERY_TYPE, ROWS, read_back

if TYPE_CHECKING:
    from ematix_flow.connect.base.database import Database
    from tests.contracts.systems import System

pytestmark = pytest.mark.slow

ITEMS = Table(
    "analytics",
    "items",
    (
        Column(String(20), nullable=False, primary_key=True, name="region"),
        Column(BigInt(), nullable=False, primary_key=True, name="id"),
        Column(Text(), name="name"),
        Column(Numeric(12, 2), name="price"),
        Column(TimestampTZ(), name="at"),
    ),
)
NAMES = tuple(column.name for column in ITEMS.columns)
WAS = {"mode": "scd2"}


def item(key: int, name: str | None, price: str | None = "1.50", day: int = 1, region: str = "eu") -> dict[str, Any]:
    return {
        "region": region,
        "id": key,
        "name": name,
        "price": None if price is None else Decimal(price),
        "at": datetime(2026, 3, day, 1, 2, 3, 456789, UTC),
    }


def rows(database: Database) -> list[dict[str, Any]]:
    with closing(database.session()) as session:
        return sorted(read_back(database, session, ITEMS), key=lambda row: (row["region"], row["id"]))


def versions(loader: Loader) -> list[tuple[Any, ...]]:
    """Return key, name, hours after the start of both bounds, and whether the version is current."""
    stored_rows = loader.rows("id", "valid_from", "name", "valid_to", "is_current")
    return [(key, _hours(start), name, _hours(end), bool(now)) for key, start, name, end, now in stored_rows]


def _hours(value: Any) -> float | None:
    return None if value is None else (parse_instant(value) - START) / timedelta(hours=1)


def test_append_adds_every_row(database: Database) -> None:
    loader = Loader(database, ITEMS, {"mode": "append"})
    assert loader.load([item(1, "a"), item(2, None, None)], parts=2).counts == Counts(staged=2, inserted=2)
    assert loader.load([item(3, "c")]).counts == Counts(staged=1, inserted=1)
    assert rows(database) == [item(1, "a"), item(2, None, None), item(3, "c")]


def test_a_load_that_is_tried_again_changes_nothing(database: Database) -> None:
    loader = Loader(database, ITEMS, {"mode": "append"})
    first = loader.load([item(1, "a")], slot="one")
    again = loader.load([item(1, "a")], slot="one")
    assert (first.replayed, again.replayed) == (False, True)
    assert again.counts == first.counts
    assert rows(database) == [item(1, "a")]


def test_a_refused_load_leaves_nothing_behind(database: Database) -> None:
    loader = Loader(database, ITEMS, {"mode": "append"})
    loader.load([item(1, "a")])
    with pytest.raises(CommitError):
        loader.load([item(2, "b"), item(1, "again")], slot="bad")
    assert rows(database) == [item(1, "a")]
    assert loader.load([item(2, "b")], slot="bad").counts.inserted == 1, "the token of the refused load is free"


def test_truncate_replaces_all_rows_and_refuses_an_empty_source(database: Database) -> None:
    loader = Loader(database, ITEMS, {"mode": "truncate"})
    loader.load([item(1, "a"), item(2, "b")])
    assert loader.load([item(2, "c"), item(3, "d")]).counts == Counts(staged=2, inserted=2, deleted=2)
    assert rows(database) == [item(2, "c"), item(3, "d")]
    with pytest.raises(CommitError, match="empty"):
        loader.load([])
    assert rows(database) == [item(2, "c"), item(3, "d")]
    loader.options["allow_empty"] = True
    loader.load([])
    assert rows(database) == []


def test_merge_updates_what_differs_and_inserts_what_is_new(database: Database) -> None:
    loader = Loader(database, ITEMS, {"mode": "merge"})
    loader.load([item(1, "a"), item(2, "b"), item(3, None), item(4, "d", None)])
    changed = [item(1, "a"), item(2, "B"), item(3, "c"), item(4, None, "2.00"), item(5, "e")]
    assert loader.load(changed).counts == Counts(staged=5, inserted=1, updated=3, unchanged=1)
    assert rows(database) == changed
    assert loader.load(changed).counts == Counts(staged=5, unchanged=5)
    trailing = [item(1, "a "), item(1, "A", region="EU")]
    assert loader.load(trailing).counts == Counts(staged=2, inserted=1, updated=1), "case and blanks count"


def test_merge_deletes_what_is_absent_when_asked(database: Database) -> None:
    loader = Loader(database, ITEMS, {"mode": "merge", "handle_deletes": "hard"})
    loader.load([item(1, "a"), item(2, "b"), item(3, "c")])
    assert loader.load([item(2, "b"), item(4, "d")]).counts == Counts(staged=2, inserted=1, unchanged=1, deleted=2)
    assert rows(database) == [item(2, "b"), item(4, "d")]


def test_merge_with_compare_columns_leaves_other_changes_alone(database: Database) -> None:
    loader = Loader(database, ITEMS, {"mode": "merge", "compare_columns": ["price"]})
    loader.load([item(1, "a"), item(2, "b")])
    loader.load([item(1, "not seen"), item(2, "seen", "9.99")])
    assert rows(database) == [item(1, "a"), item(2, "seen", "9.99")]


def test_equal_duplicates_fold_and_different_ones_are_refused(database: Database) -> None:
    loader = Loader(database, ITEMS, {"mode": "merge"})
    loader.load([item(1, "a"), item(1, "a"), item(2, None), item(2, None)], parts=2)
    assert rows(database) == [item(1, "a"), item(2, None)]
    with pytest.raises(CommitError, match="eu, 1"):
        loader.load([item(1, "x"), item(1, "y")])
    assert rows(database) == [item(1, "a"), item(2, None)]


def test_scd2_by_load_time_keeps_every_version(database: Database) -> None:
    loader = Loader(database, ITEMS, {"mode": "scd2", "handle_deletes": "soft"})
    loader.load([item(1, "a"), item(2, "b"), item(3, None)])
    counts = loader.load([item(1, "a"), item(2, "B"), item(4, "d")]).counts
    assert (counts.inserted, counts.closed) == (2, 2)
    assert versions(loader) == [
        (1, 1.0, "a", None, True),
        (2, 1.0, "b", 2.0, False),
        (2, 2.0, "B", None, True),
        (3, 1.0, None, 2.0, False),
        (4, 2.0, "d", None, True),
    ]
    loader.load([item(1, "a"), item(2, "B"), item(3, None), item(4, "d")])
    assert versions(loader)[-3:] == [(3, 1.0, None, 2.0, False), (3, 3.0, None, None, True), (4, 2.0, "d", None, True)]


def test_scd2_by_event_time_puts_a_late_event_in_its_place(database: Database) -> None:
    loader = Loader(database, ITEMS, {"mode": "scd2", "event_timestamp_column": "at", "compare_columns": ["name"]})
    loader.load([item(1, "a", day=1), item(1, "a", day=5), item(2, "x", day=2)])
    loader.load([item(1, "b", day=3)])
    first = [version[:1] + version[2:3] + version[4:] for version in versions(loader)]
    assert first == [(1, "a", False), (1, "b", False), (1, "a", True), (2, "x", True)]
    loader.load([item(1, "b", day=3), item(2, "x", day=2)])
    assert [version[:1] + version[2:3] + version[4:] for version in versions(loader)] == first


def test_expired_versions_are_closed(database: Database) -> None:
    loader = Loader(database, ITEMS, {"mode": "scd2", "ttl": timedelta(minutes=90)})
    loader.load([item(1, "a")])
    loader.load([item(2, "b")])
    loader.load([item(2, "b")])
    assert versions(loader) == [(1, 1.0, "a", 3.0, False), (2, 2.0, "b", None, True)]


def test_every_type_can_be_merged_and_versioned(database: Database) -> None:
    for number, mode in enumerate(("merge", "scd2")):
        table = Table("analytics", f"every_{mode}", EVERY_TYPE.columns)
        loader = Loader(database, table, {"mode": mode}, name=f"loads_{number}")
        loader.load(ROWS)
        counts = loader.load(ROWS).counts
        assert (counts.inserted, counts.updated, counts.closed) == (0, 0, 0), "nothing differs from itself"
        moved = [row | {"semi;colon--": "other"} for row in ROWS]
        counts = loader.load(moved).counts
        assert counts.updated + counts.closed == len(ROWS)


def test_the_row_hash_is_the_same_everywhere(database: Database, system: System) -> None:
    # MySQL cannot give the bits of a double; JSON and UUID are texts that each system writes its own way.
    left_out = {
        "json",
        "jsonb",
        "uuid",
        "small_int",
        "integer",
        "float",
        *(["double"] if system.kind == "mysql" else []),
    }
    chosen = [column for column in EVERY_TYPE.columns if column.type.kind not in left_out]
    loader = Loader(database, Table("analytics", "hashed", tuple(chosen)), {"mode": "scd2"})
    loader.load([{column.name: row[column.name] for column in chosen} for row in ROWS])
    columns = [StageColumn(column.name, column.type) for column in chosen if column.name != "id"]
    expected = {row["id"]: row_hash(columns, [row[column.name] for column in columns]) for row in ROWS}
    assert {key: bytes(digest) for key, digest in loader.rows("id", "row_hash", order="1")} == expected


def test_rejects_are_kept_beside_the_rows_that_load(database: Database) -> None:
    loader = Loader(database, ITEMS, {"mode": "append"})
    bad = item(2, "b") | {"region": None}
    with pytest.raises(BadRowsError):
        loader.load([item(1, "a"), bad])
    loader.options["on_bad_row"] = "reject"
    counts = loader.load([item(1, "a"), bad]).counts
    assert (counts.inserted, counts.rejected) == (1, 1)
    with closing(database.session()) as session:
        rejects = session.query(f"SELECT reason, column_name, status FROM {Ledger(database).name('rejects')}")
    assert [(column, status) for _, column, status in rejects] == [("region", "pending")]
    assert "NULL" in rejects[0][0]

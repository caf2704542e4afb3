"""The same random histories on every system, staged and inside the database, give what a plain model gives."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ematix_flow.connect.base.stage import StageColumn
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Boolean, Numeric, Text
from ematix_flow.errors import CommitError
from ematix_flow.plan.sql.modes.row_hash import row_hash
from tests.contracts.flows import START
from tests.contracts.system_tables import HOUR
from tests.depth import quick_or_deep

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.records import Counts
    from tests.contracts.flows import Row
    from tests.contracts.system_tables import SystemTable

    Load = list[Row]

pytestmark = pytest.mark.slow

TABLE = Table(
    "analytics",
    "random",
    (
        Column(BigInt(), primary_key=True, name="id"),
        Column(Text(), name="name"),
        Column(Numeric(12, 2), name="price"),
        Column(Boolean(), name="flag"),
    ),
)
NAMES = [column.name for column in TABLE.columns]
TTL = timedelta(hours=2, minutes=30)

rows = st.fixed_dictionaries(
    {
        "id": st.integers(1, 3),
        "name": st.sampled_from(["a", "A", "a ", "ä", "", None]),
        "price": st.sampled_from([None, Decimal("1.50"), Decimal("-2.00")]),
        "flag": st.sampled_from([True, False, None]),
    }
)
# Mostly one row per key: loads with conflicting duplicates are refused and would teach little else.
keyed = st.lists(rows, max_size=4, unique_by=lambda row: row["id"])
loads = st.lists(st.one_of(keyed, keyed, keyed, st.lists(rows, max_size=5)), min_size=1, max_size=3)
quick = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


class RefusedError(Exception):
    """The model does not take this load."""


def folded(load: Load, options: Row) -> dict[int, Row]:
    """Return a load by key, or refuse it as the modes do."""
    by_key: dict[int, Row] = {}
    if not load and options.get("handle_deletes"):
        raise RefusedError
    for row in load:
        if by_key.setdefault(row["id"], row) != row:
            raise RefusedError
    return by_key


def merged(target: dict[int, Row], load: Load, options: Row) -> dict[int, Row]:
    """Return what a merge makes of a target."""
    incoming = folded(load, options)
    update = options.get("update_columns") or NAMES[1:]
    compare = options.get("compare_columns") or update
    result = {key: row for key, row in target.items() if not options.get("handle_deletes") or key in incoming}
    for key, row in incoming.items():
        if key not in target:
            result[key] = row
        elif any(target[key][name] != row[name] for name in compare):
            result[key] = target[key] | {name: row[name] for name in update}
    return result


def versioned(target: list[Row], load: Load, options: Row, now: Any) -> list[Row]:
    """Return what scd2 by load time makes of the versions of a target."""
    incoming = folded(load, options)
    compare = options.get("compare_columns") or NAMES[1:]
    result = []
    current = {version["id"]: version for version in target if version["is_current"]}
    for version in target:
        row = incoming.get(version["id"])
        ended = row is not None and any(row[name] != version[name] for name in compare)
        ended = ended or (row is None and bool(options.get("handle_deletes")))
        result.append(_closed(version, now) if ended and version["is_current"] else version)
    for key, row in incoming.items():
        if key not in current or any(row[name] != current[key][name] for name in compare):
            columns = [StageColumn(c.name, c.type) for c in TABLE.columns if c.name in compare]
            digest = row_hash(columns, [row[column.name] for column in columns])
            result.append(row | {"valid_from": now, "valid_to": None, "is_current": True, "row_hash": digest})
    if "ttl" in options:
        result = [_closed(v, now) if v["is_current"] and v["valid_from"] < now - TTL else v for v in result]
    return sorted(result, key=lambda version: (version["id"], version["valid_from"]))


def _closed(version: Row, now: Any) -> Row:
    return version | {"valid_to": now, "is_current": False}


def tried(tables: list[SystemTable], load: Load, options: Row, *, refused: bool) -> Counts | None:
    """Load all tables and return the counts, which are the same everywhere; or see that every one refuses."""
    if refused:
        for table in tables:
            with pytest.raises(CommitError):
                table.load(load, **options)
        return None
    counts = {table.name: table.load(load, **options) for table in tables}
    assert len(set(counts.values())) == 1, counts
    return counts[tables[0].name]


@pytest.mark.service
@settings(quick, max_examples=quick_or_deep(25, 200))
@given(
    history=loads,
    options=st.fixed_dictionaries(
        {"mode": st.just("merge")},
        optional={
            "handle_deletes": st.just("hard"),
            "compare_columns": st.just(("price",)),
            "update_columns": st.just(("name", "price")),
        },
    ),
    swap=st.booleans(),
)
def test_merge_is_a_dictionary(
    every_table: Callable[[Table, bool], list[SystemTable]], history: list[Load], options: Row, swap: bool
) -> None:
    tables = every_table(TABLE, swap)
    expected: dict[int, Row] = {}
    for load in history:
        before, refused = expected, False
        try:
            expected = merged(expected, load, options)
        except RefusedError:
            refused = True
        counts = tried(tables, load, options, refused=refused)
        for table in tables:
            assert table.flow.rows() == [expected[key] for key in sorted(expected)], table.name
        if counts is not None:
            assert counts.inserted == len(expected.keys() - before.keys())
            assert counts.deleted == len(before.keys() - expected.keys())


@pytest.mark.service
@settings(quick, max_examples=quick_or_deep(25, 200))
@given(
    history=loads,
    options=st.fixed_dictionaries(
        {"mode": st.just("scd2")},
        optional={
            "handle_deletes": st.just("soft"),
            "compare_columns": st.just(("name", "flag")),
            "ttl": st.just(TTL),
        },
    ),
    swap=st.booleans(),
)
def test_versions_by_load_time_follow_the_model(
    every_table: Callable[[Table, bool], list[SystemTable]], history: list[Load], options: Row, swap: bool
) -> None:
    tables = every_table(TABLE, swap)
    expected: list[Row] = []
    for number, load in enumerate(history, 1):
        now, refused = START + number * HOUR, False
        try:
            expected = versioned(expected, load, options, now)
        except RefusedError:
            refused = True
        tried(tables, load, options, refused=refused)
        for table in tables:
            assert table.flow.versions() == expected, table.name


def test_the_models_tell_loads_apart() -> None:
    """The oracles are sensitive: another value, another key and another option give another table."""
    one, other = (
        [{"id": 1, "name": "a", "price": None, "flag": None}],
        [{"id": 1, "name": "b", "price": None, "flag": None}],
    )
    assert merged(merged({}, one, {}), other, {}) != merged({}, one, {})
    assert merged(merged({}, one, {}), other, {"compare_columns": ["price"]}) == merged({}, one, {})
    first = versioned([], one, {}, START)
    assert len(versioned(first, other, {}, START + HOUR)) == 2
    assert len(versioned(first, one, {"ttl": TTL}, START + 3 * HOUR)) == 1
    assert versioned(first, one, {"ttl": TTL}, START + 3 * HOUR)[0]["is_current"] is False
    with pytest.raises(RefusedError):
        merged({}, [*one, *other], {})

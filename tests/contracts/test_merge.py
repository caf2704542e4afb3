"""merge and scd1 as pipelines: what is compared, what is written, what is refused."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.declare.pipeline.write import Replaced
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Boolean, Numeric, String, Text, TimestampTZ
from ematix_flow.errors import BadRowsError, CommitError, RunError
from tests.contracts.flows import START, in_and_out

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contracts.flows import Flow, Row

    Flows = Callable[..., Flow]

pytestmark = pytest.mark.slow

ITEMS = Table(
    "analytics",
    "items",
    (
        Column(BigInt(), primary_key=True, name="id"),
        Column(String(20), name="code"),
        Column(Text(), name="name"),
        Column(Numeric(12, 2), name="price"),
        Column(Boolean(), name="active"),
        Column(TimestampTZ(), name="at"),
    ),
)


def item(key: int | None, name: str | None = "n", price: str | None = "1.50", **other: Any) -> Row:
    amount = None if price is None else Decimal(price)
    return {"id": key, "code": f"c{key}", "name": name, "price": amount, "active": True, "at": START} | other


def counts(result: Row) -> tuple[int, ...]:
    return tuple(result[f"rows_{name}"] for name in ("inserted", "updated", "unchanged", "deleted"))


@pytest.mark.every_system
@in_and_out
def test_what_differs_is_updated_what_is_new_is_inserted_and_the_rest_keeps_its_stamps(flows: Flows) -> None:
    flow = flows(ITEMS, mode="merge")
    first = flow.run([item(1), item(2), item(3, None), item(4, active=None)])
    assert counts(first) == (4, 0, 0, 0)
    changed = [item(1), item(2, "N"), item(3, "was null"), item(4, active=False), item(5)]
    second = flow.run(changed)
    assert counts(second) == (1, 3, 1, 0)
    assert flow.rows() == changed
    stamps = flow.stamps()
    assert stamps[1] == (flow.now().replace(hour=1), first["run_id"])
    assert {stamps[key] for key in (2, 3, 4, 5)} == {(flow.now(), second["run_id"])}


VISITS = Table(
    "analytics",
    "visits",
    (
        Column(BigInt(), primary_key=True, name="id"),
        Column(String(20), name="who"),
        Column(TimestampTZ(), name="begun"),
        Column(TimestampTZ(), name="over"),
    ),
)


@pytest.mark.every_system
@in_and_out
def test_rows_that_begin_within_a_row_of_their_group_are_replaced_by_it(flows: Flows) -> None:
    def visit(key: int, who: str | None, begun: int, over: int) -> Row:
        return {"id": key, "who": who} | {
            name: START + timedelta(seconds=second) for name, second in (("begun", begun), ("over", over))
        }

    flow = flows(VISITS, mode="merge", replaced=Replaced(("who",), "begun", "over"))
    before = [
        visit(1, "a", 5, 9),
        visit(2, "a", 10, 12),
        visit(3, "b", 5, 9),
        visit(4, None, 5, 9),
        visit(5, "a", 4, 6),
    ]
    flow.run(before)
    now = [visit(2, "a", 5, 10), visit(6, None, 4, 6)]
    assert counts(flow.run(now)) == (1, 1, 0, 2)
    assert flow.rows() == [now[0], before[2], before[4], now[1]]


CHANGES: tuple[dict[str, Any], ...] = (
    {"name": None},
    {"price": None},
    {"active": None},
    {"at": None},
    {"name": "n "},
    {"name": "N"},
    {"name": ""},
)


@in_and_out
def test_null_and_a_value_differ_and_null_equals_null(flows: Flows) -> None:
    flow = flows(ITEMS, mode="scd1")
    plain = [item(number) for number, _ in enumerate(CHANGES)]
    changed = [item(number) | change for number, change in enumerate(CHANGES)]
    flow.run(changed)
    assert counts(flow.run(changed)) == (0, 0, len(CHANGES), 0)
    assert counts(flow.run(plain)) == (0, len(CHANGES), 0, 0)
    assert counts(flow.run(changed)) == (0, len(CHANGES), 0, 0)
    assert flow.rows() == changed


@in_and_out
def test_update_columns_are_the_only_ones_that_are_written_and_compared(flows: Flows) -> None:
    flow = flows(ITEMS, mode="merge", update_columns=["price"])
    flow.run([item(1), item(2)])
    result = flow.run([item(1, "other"), item(2, "other", "2.00"), item(3, "new")])
    assert counts(result) == (1, 1, 1, 0)
    assert flow.rows() == [item(1), item(2, price="2.00"), item(3, "new")]


@in_and_out
def test_equal_compare_columns_leave_the_row_and_different_ones_write_all(flows: Flows) -> None:
    flow = flows(ITEMS, mode="merge", compare_columns=["price"])
    flow.run([item(1), item(2)])
    result = flow.run([item(1, "unseen"), item(2, "seen", "2.00")])
    assert counts(result) == (0, 1, 1, 0)
    assert flow.rows() == [item(1), item(2, "seen", "2.00")]
    assert flow.stamps()[1] == (START.replace(hour=1), flow.points("ledger")[0]["run_id"])


@in_and_out
def test_hard_deletes_remove_absent_keys_and_refuse_an_empty_source(flows: Flows) -> None:
    flow = flows(ITEMS, mode="merge", handle_deletes="hard")
    flow.run([item(1), item(2), item(3)])
    assert counts(flow.run([item(2), item(4)])) == (1, 0, 1, 2)
    with pytest.raises(CommitError, match="empty"):
        flow.run([])
    assert flow.rows() == [item(2), item(4)]
    flow.write["allow_empty"] = True
    assert counts(flow.run([])) == (0, 0, 0, 2)
    assert flow.rows() == []


@in_and_out
def test_an_empty_source_without_deletes_changes_nothing(flows: Flows) -> None:
    flow = flows(ITEMS, mode="merge")
    flow.run([item(1)])
    assert counts(flow.run([])) == (0, 0, 0, 0)
    assert flow.rows() == [item(1)]


@in_and_out
def test_keys_may_be_columns_without_a_constraint(flows: Flows) -> None:
    flow = flows(ITEMS, mode="merge", keys=["code"])
    flow.run([item(1, code="a"), item(2, code="b")])
    result = flow.run([item(1, "moved", code="a"), item(3, code="c")])
    assert counts(result) == (1, 1, 0, 0)
    assert flow.rows() == [item(1, "moved", code="a"), item(2, code="b"), item(3, code="c")]
    flow.write["handle_deletes"] = "hard"
    flow.run([item(1, "moved", code="a")])
    assert flow.rows() == [item(1, "moved", code="a")]


@in_and_out
def test_equal_duplicates_are_folded(flows: Flows) -> None:
    flow = flows(ITEMS, mode="merge")
    flow.run([item(1), item(1), item(2, None, None), item(2, None, None)])
    assert flow.rows() == [item(1), item(2, None, None)]
    result = flow.run([item(1, "x"), item(1, "x"), item(1, "x")])
    assert (result["rows_inserted"], result["rows_updated"]) == (0, 1)


@in_and_out
def test_duplicates_that_differ_are_refused_with_their_keys(flows: Flows) -> None:
    flow = flows(ITEMS, mode="merge")
    flow.run([item(7), item(8)])
    with pytest.raises(CommitError, match=r"same key: 7\b"):
        flow.run([item(7, "x"), item(7, "y"), item(8, "z"), item(8, "z")])
    assert flow.rows() == [item(7), item(8)]


@in_and_out
def test_a_null_key_is_a_bad_row(flows: Flows) -> None:
    flow = flows(ITEMS, mode="merge", keys=["code"])
    flow.run([item(1)])
    with pytest.raises(BadRowsError, match="code"):
        flow.run([item(1, "x"), item(2, code=None)])
    assert flow.rows() == [item(1)]


def test_a_null_key_can_be_rejected(flows: Flows) -> None:
    flow = flows(ITEMS, mode="merge", keys=["code"], on_bad_row="reject")
    result = flow.run([item(1), item(2, code=None), item(None)])
    assert (result["rows_inserted"], result["rows_rejected"]) == (1, 2)
    assert sorted(reject["column_name"] for reject in flow.points("rejects")) == ["code", "id"]


def test_a_table_of_keys_only_inserts_what_is_new(flows: Flows) -> None:
    keys = Table("analytics", "pairs", tuple(Column(BigInt(), primary_key=True, name=name) for name in "ab"))
    flow = flows(keys, mode="merge")
    flow.run([{"a": 1, "b": 1}])
    assert counts(flow.run([{"a": 1, "b": 1}, {"a": 1, "b": 2}])) == (1, 0, 1, 0)
    assert flow.rows() == [{"a": 1, "b": 1}, {"a": 1, "b": 2}]


def test_the_keys_order_is_explicit_then_declared_then_natural_then_primary(flows: Flows) -> None:
    natural = Table("analytics", "ranked", ITEMS.columns, unique_constraints=(("code",),), natural_keys=("code",))
    flow = flows(natural, mode="merge")
    with pytest.warns(UserWarning, match="code"):
        flow.run([item(1, code="a")])
    with pytest.warns(UserWarning, match="code"):
        result = flow.run([item(1, "by code", code="a")])
    assert counts(result) == (0, 1, 0, 0)
    flow.write["keys"] = ["id"]
    assert counts(flow.run([item(1, "by id", code="b")])) == (0, 1, 0, 0)


def test_a_merge_that_moves_a_key_onto_another_is_refused_whole(flows: Flows) -> None:
    unique = Table("analytics", "one_code", ITEMS.columns, unique_constraints=(("code",),))
    flow = flows(unique, mode="merge", keys=["id"])
    flow.run([item(1, code="a"), item(2, code="b")])
    with pytest.raises(RunError):
        flow.run([item(1, "x", code="b"), item(3, code="c")])
    assert flow.rows() == [item(1, code="a"), item(2, code="b")]

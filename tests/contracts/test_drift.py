"""What happens when a table in the target differs from its declaration: refuse, warn or evolve."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.declare.layout import Column, Table
from ematix_flow.declare.types import BigInt, Integer, Numeric, SmallInt, String, Text, TimestampTZ
from ematix_flow.errors import DriftError, RunError
from tests.contracts.flows import START, in_and_out

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.declare.types import ColumnType
    from tests.contracts.flows import Flow, Row
    from tests.contracts.systems import System

    Flows = Callable[..., Flow]

WIDE = {"id": BigInt(), "number": BigInt(), "amount": Numeric(38, 10), "note": Text(), "more": Text()}
SOURCE = (*(Column(kind, name=name) for name, kind in WIDE.items()), Column(TimestampTZ(), name="at"))


def table_of(**columns: ColumnType) -> Table:
    made = tuple(Column(kind, primary_key=name == "id", name=name) for name, kind in columns.items())
    return Table("analytics", "things", made)


NARROW = table_of(id=BigInt(), number=Integer(), amount=Numeric(8, 2), note=String(5))


def thing(key: int, **values: Any) -> Row:
    return {"id": key, "number": 1, "amount": Decimal("1.50"), "note": "n", "more": "m", "at": START} | values


def declared(flow: Flow, row: Row) -> Row:
    return {column.name: row[column.name] for column in flow.table.columns}


@in_and_out
@pytest.mark.parametrize("mode", ["append", "merge", "scd2"])
def test_a_table_that_does_not_differ_is_loaded_again(flows: Flows, mode: str) -> None:
    flow = flows(NARROW, source=SOURCE, mode=mode)
    flow.run([thing(1)])
    flow.run([thing(2)])
    assert len(flow.rows()) == 2


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (
            table_of(id=BigInt(), number=Integer(), amount=Numeric(8, 2), note=String(5), more=Text()),
            "'more' is missing",
        ),
        (table_of(id=BigInt(), number=Integer(), amount=Numeric(8, 2)), "'note' is not declared"),
        (table_of(id=BigInt(), number=SmallInt(), amount=Numeric(8, 2), note=String(5)), "'number' is"),
        (table_of(id=BigInt(), number=Integer(), amount=Numeric(9, 3), note=String(5)), "'amount' is"),
        (replace(NARROW, unique_constraints=(("note",),)), r"unique constraint on \(note\)"),
        (
            replace(NARROW, columns=tuple(replace(c, primary_key=c.name in ("id", "number")) for c in NARROW.columns)),
            "key",
        ),
        (replace(NARROW, columns=tuple(replace(c, nullable=c.name != "number") for c in NARROW.columns)), "NOT NULL"),
    ],
    ids=["missing", "extra", "type", "digits", "unique", "key", "nullable"],
)
def test_every_difference_is_refused_by_name_before_a_row_moves(flows: Flows, now: Table, said: str) -> None:
    flow = flows(NARROW, source=SOURCE, mode="append")
    flow.run([thing(1)])
    flow.table = now
    with pytest.raises(DriftError, match=rf"schema drift detected[\s\S]*{said}"):
        flow.run([thing(2)])
    flow.table = NARROW
    assert [row["id"] for row in flow.rows()] == [1]


@in_and_out
def test_warn_loads_what_both_have(flows: Flows) -> None:
    flow = flows(NARROW, source=SOURCE, mode="append", on_drift="warn")
    flow.run([thing(1)])
    flow.execute(f"ALTER TABLE {flow.target_name} ADD COLUMN extra BIGINT")
    assert flow.run([thing(2)])["rows_inserted"] == 1
    assert [row["id"] for row in flow.rows()] == [1, 2]


@in_and_out
@pytest.mark.parametrize("mode", ["append", "merge", "scd2", "events"])
def test_evolve_adds_columns_and_keeps_the_rows_that_are_there(flows: Flows, mode: str) -> None:
    options = {"mode": "scd2", "event_timestamp_column": "at"} if mode == "events" else {"mode": mode}
    flow = flows(table_of(id=BigInt(), number=Integer()), source=SOURCE, on_drift="evolve", **options)
    first, second = thing(1), thing(2, number=2)
    flow.run([first])
    flow.table = table_of(id=BigInt(), number=Integer(), more=Text(), note=String(5))
    flow.run([second] if mode == "append" else [second, first | {"number": 7}])
    found = [(row["id"], row["number"], row["more"], row["note"]) for row in flow.rows() if row["id"] == 2]
    assert found == [(2, 2, "m", "n")]
    old = {(row["number"], row["more"]) for row in flow.rows() if row["id"] == 1}
    assert old == {"append": {(1, None)}, "scd2": {(1, None), (7, "m")}}.get(mode, {(7, "m")})
    with pytest.raises(RunError):
        flow.run([thing(3, note="longer than five")])
    assert [row["id"] for row in flow.rows() if row["id"] == 3] == []


WIDER: dict[str, tuple[dict[str, ColumnType], dict[str, Any]]] = {
    "integer": ({"number": BigInt()}, {"number": 2**40}),
    "digits": ({"amount": Numeric(14, 4)}, {"amount": Decimal("1234567890.1234")}),
    "length": ({"note": String(30)}, {"note": "longer than five"}),
    "text": ({"note": Text()}, {"note": "longer than five"}),
}


@in_and_out
@pytest.mark.parametrize("case", WIDER)
@pytest.mark.parametrize("mode", ["merge", "events"])
def test_evolve_widens_types_or_refuses_before_a_row_moves(flows: Flows, system: System, case: str, mode: str) -> None:
    options = {"mode": "scd2", "event_timestamp_column": "at"} if mode == "events" else {"mode": mode}
    wider, value = WIDER[case]
    flow = flows(NARROW, source=SOURCE, on_drift="evolve", **options)
    flow.run([thing(1)])
    flow.table = table_of(**{column.name: column.type for column in NARROW.columns} | wider)
    if not _can_widen(system, case):
        with pytest.raises(RunError if system.kind == "duckdb" else DriftError):
            flow.run([thing(2, **value)])
        return
    flow.run([thing(2, **value)])
    assert flow.rows() == [declared(flow, thing(1)), declared(flow, thing(2, **value))]
    flow.run([thing(2, **value), thing(3)])
    assert len(flow.rows()) == 3


def _can_widen(system: System, case: str) -> bool:
    """SQLite alters no column, and DuckDB keeps the length of a text in a constraint that cannot be altered."""
    return system.kind != "sqlite" and (system.kind != "duckdb" or case in ("integer", "digits"))


@pytest.mark.parametrize(
    "narrower",
    [{"number": SmallInt()}, {"amount": Numeric(8, 3)}, {"amount": Numeric(7, 2)}, {"note": Integer()}],
    ids=["integer", "scale", "digits", "kind"],
)
def test_evolve_never_narrows(flows: Flows, narrower: dict[str, ColumnType]) -> None:
    flow = flows(NARROW, source=SOURCE, mode="append", on_drift="evolve")
    flow.run([thing(1)])
    flow.table = table_of(**{column.name: column.type for column in NARROW.columns} | narrower)
    with pytest.raises(DriftError):
        flow.run([thing(2)])


def test_evolve_takes_a_column_more_and_a_column_that_allows_more(flows: Flows) -> None:
    flow = flows(NARROW, source=SOURCE, mode="append", on_drift="evolve")
    flow.run([thing(1)])
    strict = tuple(replace(c, nullable=c.name not in ("id", "note")) for c in NARROW.columns if c.name != "amount")
    flow.table = replace(NARROW, columns=strict)
    assert flow.run([thing(2)])["rows_inserted"] == 1
    with pytest.raises(RunError):
        flow.run([thing(3, note=None)])

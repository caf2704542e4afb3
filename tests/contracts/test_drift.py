"""What happens when a table in the target differs from its declaration: refuse, warn or evolve."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Integer, Numeric, SmallInt, String, Text, TimestampTZ
from ematix_flow.errors import DriftError, RunError
from tests.contracts.flows import START, in_and_out

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.declare.table.types import ColumnType
    from tests.contracts.flows import Flow, Row
    from tests.contracts.systems import System

    Flows = Callable[..., Flow]

pytestmark = pytest.mark.slow

WIDE = {"id": BigInt(), "number": BigInt(), "amount": Numeric(38, 10), "note": Text(), "more": Text()}
SOURCE = (*(Column(kind, name=name) for name, kind in WIDE.items()), Column(TimestampTZ(), name="at"))


def table_of(**columns: ColumnType) -> Table:
    columns_given = tuple(Column(kind, primary_key=name == "id", name=name) for name, kind in columns.items())
    return Table("analytics", "things", columns_given)


NARROW = table_of(id=BigInt(), number=Integer(), amount=Numeric(8, 2), note=String(5))


def thing(key: int, **values: Any) -> Row:
    return {"id": key, "number": 1, "amount": Decimal("1.50"), "note": "n", "more": "m", "at": START} | values


def declared(flow: Flow, row: Row) -> Row:
    return {column.name: row[column.name] for column in flow.table.columns}


DIFFERENT = {
    "'more' is missing": table_of(id=BigInt(), number=Integer(), amount=Numeric(8, 2), note=String(5), more=Text()),
    "'note' is not declared": table_of(id=BigInt(), number=Integer(), amount=Numeric(8, 2)),
    "'number' is": table_of(id=BigInt(), number=SmallInt(), amount=Numeric(8, 2), note=String(5)),
    "'amount' is": table_of(id=BigInt(), number=Integer(), amount=Numeric(9, 3), note=String(5)),
    r"unique constraint on \(note\)": replace(NARROW, unique_constraints=(("note",),)),
    "primary key is": replace(
        NARROW, columns=tuple(replace(c, primary_key=c.name in ("id", "number")) for c in NARROW.columns)
    ),
    "NOT NULL": replace(NARROW, columns=tuple(replace(c, nullable=c.name != "number") for c in NARROW.columns)),
}
"""What is said about a table that was made as NARROW, and the declaration that it differs from."""


_CONSTRAINTS = (r"unique constraint on \(note\)", "primary key is")
UNSEEN = {"delta": _CONSTRAINTS, "iceberg": (*_CONSTRAINTS, "'number' is")}
"""What no lake has, and a number of two bytes, which Iceberg keeps in four."""


def test_every_difference_is_refused_by_name_before_a_row_moves(flows: Flows, system: System) -> None:
    flow = flows(NARROW, source=SOURCE, mode="append")
    flow.run([thing(1)])
    flow.give([thing(2)])
    for message, table in DIFFERENT.items():
        if message in UNSEEN.get(system.kind, ()):
            continue
        flow.table = table
        with pytest.raises(DriftError, match=rf"schema drift detected[\s\S]*{message}"):
            flow.run()
    flow.table = NARROW
    assert [row["id"] for row in flow.rows()] == [1]


@in_and_out
def test_warn_loads_what_both_have(flows: Flows) -> None:
    flow = flows(NARROW, source=SOURCE, mode="append", on_drift="warn")
    flow.run([thing(1)])
    flow.execute(f"ALTER TABLE {flow.target_name} ADD COLUMN extra BIGINT")
    with pytest.warns(
        UserWarning, match=r"differs from its declaration and is loaded as it is .*'extra' is not declared"
    ):
        assert flow.run([thing(2)])["rows_inserted"] == 1
    assert [row["id"] for row in flow.rows()] == [1, 2]


@in_and_out
def test_warn_refuses_a_table_without_a_declared_column_before_a_row_moves(flows: Flows) -> None:
    flow = flows(NARROW, source=SOURCE, mode="append", on_drift="warn")
    flow.run([thing(1)])
    flow.table = DIFFERENT["'more' is missing"]
    with pytest.raises(DriftError, match=r"schema drift detected: .*\n  column 'more' is missing") as refused:
        flow.run([thing(2)])
    assert "'evolve' adds columns" in str(refused.value)
    assert "'warn'" not in str(refused.value)
    flow.table = NARROW
    assert [row["id"] for row in flow.rows()] == [1]


@pytest.mark.every_system
@in_and_out
@pytest.mark.parametrize("mode", ["append", "merge", "events"])
def test_evolve_adds_columns_and_keeps_the_rows_that_are_there(flows: Flows, mode: str) -> None:
    options = {"mode": "scd2", "event_timestamp_column": "at"} if mode == "events" else {"mode": mode}
    flow = flows(table_of(id=BigInt(), number=Integer()), source=SOURCE, on_drift="evolve", **options)
    first, second = thing(1), thing(2, number=2)
    flow.run([first])
    flow.table = table_of(id=BigInt(), number=Integer(), more=Text(), note=String(5))
    flow.run([second] if mode == "append" else [second, first | {"number": 7}])
    rows = [(row["id"], row["number"], row["more"], row["note"]) for row in flow.rows() if row["id"] == 2]
    assert rows == [(2, 2, "m", "n")]
    old = {(row["number"], row["more"]) for row in flow.rows() if row["id"] == 1}
    assert old == ({(1, None)} if mode == "append" else {(7, "m")})
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
@pytest.mark.parametrize("mode", ["merge", "events"])
def test_evolve_widens_types_or_refuses_before_a_row_moves(flows: Flows, system: System, mode: str) -> None:
    options = {"mode": "scd2", "event_timestamp_column": "at"} if mode == "events" else {"mode": mode}
    for case, (wider, value) in WIDER.items():
        narrow = replace(NARROW, name=f"things_{case}")
        flow = flows(narrow, case, source=SOURCE, on_drift="evolve", **options)
        flow.run([thing(1)])
        flow.table = replace(narrow, columns=tuple(replace(c, type=wider.get(c.name, c.type)) for c in narrow.columns))
        if not _can_widen(system, case):
            with pytest.raises(RunError if system.kind == "duckdb" else DriftError):
                flow.run([thing(2, **value)])
            continue
        flow.run([thing(2, **value)])
        assert flow.rows() == [declared(flow, thing(1)), declared(flow, thing(2, **value))]


def _can_widen(system: System, case: str) -> bool:
    """Delta alters no column, SQLite only whole numbers, and Iceberg no scale; DuckDB keeps the length of a text in a constraint."""
    able = {
        "sqlite": ("integer",),
        "duckdb": ("integer", "digits"),
        "delta": ("length", "text"),
        "iceberg": ("integer", "length", "text"),
    }
    return case in able.get(system.kind, tuple(WIDER))


NARROWER: tuple[dict[str, ColumnType], ...] = (
    {"number": SmallInt()},
    {"amount": Numeric(8, 3)},
    {"amount": Numeric(7, 2)},
    {"note": Integer()},
)


def test_evolve_never_narrows(flows: Flows, system: System) -> None:
    flow = flows(NARROW, source=SOURCE, mode="append", on_drift="evolve")
    flow.run([thing(1)])
    for narrower in NARROWER[system.kind == "iceberg" :]:  # which keeps a number of two bytes in four
        flow.table = table_of(**{column.name: column.type for column in NARROW.columns} | narrower)
        with pytest.raises(DriftError):
            flow.run()


def test_evolve_takes_a_column_more_and_a_column_that_allows_more(flows: Flows) -> None:
    flow = flows(NARROW, source=SOURCE, mode="append", on_drift="evolve")
    flow.run([thing(1)])
    strict = tuple(replace(c, nullable=c.name not in ("id", "note")) for c in NARROW.columns if c.name != "amount")
    flow.table = replace(NARROW, columns=strict)
    assert flow.run([thing(2)])["rows_inserted"] == 1
    with pytest.raises(RunError):
        flow.run([thing(3, note=None)])

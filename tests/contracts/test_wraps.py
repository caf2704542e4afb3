"""SQL of a user around the rows sees the user's columns alone: rows that do not fit go round it, with their source row."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Boolean, Date, Double, Integer, Numeric, SmallInt, Text, TimestampTZ
from ematix_flow.errors import BadRowsError, FlowError
from ematix_flow.transforms import deduplicate_by, filter_where
from tests.contracts.flows import START, in_and_out

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contracts.flows import Flow, Row

    Flows = Callable[..., Flow]

pytestmark = pytest.mark.slow

TARGET = Table(
    "analytics",
    "totals",
    (
        Column(BigInt(), primary_key=True, name="id"),
        Column(Integer(), name="number"),
        Column(Text(), name="note"),
    ),
)
SOURCE = (Column(BigInt(), name="id"), Column(Text(), name="number"), Column(Text(), name="note"))
outside = pytest.mark.parametrize("path", ["staged"])


@dataclass(frozen=True)
class Wrap:
    """Any SQL of a user around the rows."""

    sql: str

    def to_sql_wrap(self, inner: str) -> str:
        return self.sql.replace("INNER_ROWS", inner)


SUMS = Wrap("SELECT id, SUM(number) AS number, MIN(note) AS note FROM INNER_ROWS GROUP BY id")
LARGE = Wrap("SELECT id, number, note FROM INNER_ROWS WHERE number > 1")
SWAPPED = Wrap("WITH given AS (SELECT * FROM INNER_ROWS) SELECT number AS id, 2 * id AS number, note FROM given")
ROWS = [
    {"id": 1, "number": "2", "note": "a"},
    {"id": 1, "number": "3", "note": "b"},
    {"id": 2, "number": "1", "note": "c"},
]
BAD = {"id": 1, "number": "4x", "note": "bad"}
WRAPS: dict[str, tuple[Any, list[tuple[int, int, str]]]] = {
    "aggregates": ([SUMS], [(1, 5, "a"), (2, 1, "c")]),
    "filters": ([LARGE, deduplicate_by("id", order_by="number")], [(1, 2, "a")]),
    "renames": ([SWAPPED], [(1, 4, "c"), (2, 2, "a"), (3, 2, "b")]),
    "several": ([filter_where("note <> 'b'"), SUMS, LARGE], [(1, 2, "a")]),
}


def loaded_rows(flow: Flow) -> list[tuple[Any, ...]]:
    return [(row["id"], row["number"], row["note"]) for row in flow.rows()]


@in_and_out
@pytest.mark.parametrize("name", WRAPS)
def test_a_wrap_that_names_its_columns_loads_the_rows_it_gives(flows: Flows, name: str) -> None:
    transforms, expected = WRAPS[name]
    flow = flows(TARGET, source=SOURCE, mode="append", declared={"transforms_pre": transforms})
    result = flow.run(ROWS)
    assert loaded_rows(flow) == expected
    assert (result["rows_inserted"], result["rows_rejected"]) == (len(expected), 0)


@pytest.mark.parametrize("name", WRAPS)
def test_rows_that_do_not_fit_go_round_a_wrap_with_their_source_row(flows: Flows, name: str) -> None:
    transforms, expected = WRAPS[name]
    flow = flows(TARGET, source=SOURCE, mode="append", on_bad_row="reject", declared={"transforms_pre": transforms})
    result = flow.run([*ROWS, BAD])
    assert loaded_rows(flow) == expected
    assert (result["rows_inserted"], result["rows_rejected"]) == (len(expected), 1)
    [reject] = flow.points("rejects")
    assert (reject["column_name"], reject["reason"]) == ("number", "'4x' could not be parsed")
    assert json.loads(reject["row_json"]) == BAD


@in_and_out
def test_a_row_that_does_not_fit_fails_a_wrapped_load_and_is_shown(flows: Flows) -> None:
    flow = flows(TARGET, source=SOURCE, mode="append", declared={"transforms_pre": [SUMS]})
    with pytest.raises(BadRowsError, match="fit the target") as caught:
        flow.run([*ROWS, BAD])
    assert "number: '4x' could not be parsed" in str(caught.value)
    assert "4x" in str(caught.value)
    assert loaded_rows(flow) == []


BROKEN: dict[str, tuple[str, Row]] = {
    "large": ("3000000000", {"id": 1, "note": "a"}),
    "nothing": ("number", {"id": None, "number": 2, "note": "a"}),
}


@pytest.mark.parametrize("name", BROKEN)
@outside
def test_what_a_wrap_gives_and_does_not_fit_is_a_reject_of_the_wrapped_row(flows: Flows, name: str) -> None:
    number, expected = BROKEN[name]
    key = "NULLIF(id, 1)" if name == "nothing" else "id"
    sql = f"SELECT {key} AS id, CASE WHEN id = 1 THEN {number} ELSE number END AS number, note FROM INNER_ROWS"
    transforms = {"transforms_pre": [Wrap(sql)]}
    flow = flows(TARGET, source=SOURCE, mode="append", on_bad_row="reject", declared=transforms)
    result = flow.run([ROWS[0], ROWS[2], BAD])
    assert loaded_rows(flow) == [(2, 1, "c")]
    assert (result["rows_inserted"], result["rows_rejected"]) == (1, 2)
    rejects = [json.loads(reject["row_json"]) for reject in flow.points("rejects")]
    [mine] = [row for row in rejects if row != BAD]
    assert {key: mine[key] for key in expected} == expected


@in_and_out
def test_a_wrap_that_leaves_a_column_out_is_an_error_that_names_it(flows: Flows) -> None:
    transforms = {"transforms_pre": [Wrap("SELECT id, number FROM INNER_ROWS")]}
    flow = flows(TARGET, source=SOURCE, mode="append", declared=transforms)
    with pytest.raises(FlowError, match="note"):
        flow.run(ROWS)


@in_and_out
@pytest.mark.parametrize("marked", [False, True])
def test_aggregates_are_carried_in_the_types_that_the_database_gives_them(flows: Flows, marked: bool) -> None:
    """Marked rows stand beside the others in one query, and must not give its columns their types."""
    columns = (
        Column(BigInt(), primary_key=True, name="id"),
        Column(BigInt(), name="total"),
        Column(Numeric(12, 2), name="amount"),
        Column(TimestampTZ(), name="at"),
        Column(Date(), name="day"),
        Column(Double(), name="share"),
        Column(Boolean(), name="good"),
        Column(SmallInt(), name="small"),
    )
    source = (*columns[:-1], Column(Text() if marked else SmallInt(), name="small"))
    sql = (
        "SELECT id, SUM(total) AS total, SUM(amount) AS amount, MAX(at) AS at, MIN(day) AS day, AVG(share) AS share, "
        "1 = 1 AS good, COUNT(*) AS small FROM INNER_ROWS GROUP BY id"
    )
    wrapped = {"transforms_pre": [Wrap(sql)]}
    flow = flows(Table("analytics", "sums", columns), source=source, mode="append", declared=wrapped)
    late, day = START + timedelta(hours=1), date(2026, 2, 3)
    given = {"id": 1, "total": 2**60, "amount": Decimal("1.25"), "at": START, "day": day, "share": 0.5, "small": 5}
    flow.run([given, {**given, "total": 1, "amount": Decimal("0.75"), "at": late}])
    summed = {"total": 2**60 + 1, "amount": Decimal("2.00"), "at": late, "good": True, "small": 2}
    assert flow.rows() == [given | summed]

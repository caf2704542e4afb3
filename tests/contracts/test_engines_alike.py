"""Whoever moves the rows, the target holds the same values and the same rejects: Spark against threads, on every system."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import (
    JSON,
    UUID,
    BigInt,
    Boolean,
    Bytes,
    Date,
    Double,
    Integer,
    Numeric,
    SmallInt,
    String,
    Text,
    Timestamp,
    TimestampTZ,
)
from tests.contracts.systems import only

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contracts.flows import Flow, Row

    Flows = Callable[..., Flow]

pytestmark = pytest.mark.slow

TYPES = {
    "id": BigInt(),
    "small": SmallInt(),
    "whole": Integer(),
    "inexact": Double(),
    "yes": Boolean(),
    "words": Text(),
    "few": String(20),
    "day": Date(),
    "at": Timestamp(),
    "instant": TimestampTZ(),
    "document": JSON(),
    "mark": UUID(),
    "raw": Bytes(),
    "money": Numeric(12, 2),
    "exact": Numeric(38, 10),
}
COLUMNS = tuple(Column(t, nullable=name != "id", primary_key=name == "id", name=name) for name, t in TYPES.items())
SOURCE = tuple(Column(Text() if c.name in ("small", "day") else c.type, nullable=True, name=c.name) for c in COLUMNS)
"""The source has texts where the target has a number and a day: some of them are neither."""


def row(*values: Any) -> Row:
    """Give a row by the places of its values."""
    return dict(zip(TYPES, values, strict=True))


ROWS = [
    row(1, "-32768", -(2**31), -1.5, True, "", "", "1000-01-01", datetime(1970, 1, 1, 0, 0, 0, 1),  # noqa: DTZ001
        datetime(1970, 1, 2, tzinfo=UTC), '{"a": [1, null]}', "00000000-0000-0000-0000-000000000000", b"",
        Decimal("-9999999999.99"), Decimal("-" + "9" * 28 + "." + "9" * 10)),
    row(2, "32767", 2**31 - 1, 5e-300, False, "emoji 🎈 'q' \\ \t\n\r %s ? $1 end ", "ü" * 20, "9999-12-31",
        datetime(2037, 12, 31, 23, 59, 59, 999999), datetime(2037, 12, 31, 23, 59, 59, 999999, UTC), '"x"',  # noqa: DTZ001
        "ffffffff-ffff-ffff-ffff-ffffffffffff", bytes(range(256)), Decimal("9999999999.99"), Decimal("0.1234567891")),
    row(3, *[None] * (len(TYPES) - 1)),
    *(row(number, "7", number, number / 3, None, f"row {number}", None, date(2026, 1, 1).isoformat(), None,
          datetime(2026, 1, 1, tzinfo=UTC), None, None, b"x" * number, Decimal(number), None) for number in range(4, 40)),
]  # fmt: skip
BAD = [
    {**ROWS[0], "id": 100, "small": "40000"},
    {**ROWS[0], "id": 101, "small": "x"},
    {**ROWS[0], "id": 102, "day": "2026-02-30"},
]


@only("duckdb", "sqlite", "postgres", "mysql")
@pytest.mark.parametrize("mode", ["append", "merge"])
def test_every_value_and_every_reject_is_the_same(flows: Flows, mode: str) -> None:
    tried = flows(Table("analytics", "by_engine", COLUMNS), "by_engine", mode=mode, source=SOURCE, on_bad_row="reject")
    here = flows(Table("analytics", "by_threads", COLUMNS), "by_threads", mode=mode, source=SOURCE, on_bad_row="reject")
    here.spark = None
    results = [flow.run([*ROWS, *BAD]) for flow in (tried, here)]
    assert [result["rows_inserted"] for result in results] == [len(ROWS)] * 2
    assert results[1]["engine"] == "local"
    assert tried.rows() == here.rows()
    found = {name: _rejects(tried, name) for name in ("by_engine", "by_threads")}
    assert found["by_engine"] == found["by_threads"]
    assert len(found["by_engine"]) == len(BAD)


def _rejects(flow: Flow, pipeline: str) -> list[tuple[Any, ...]]:
    """Give the rejects of a pipeline as values, in the order of their rows."""
    rejects = [one for one in flow.points("rejects") if one["pipeline_name"] == pipeline]
    told = [(json.loads(one["row_json"], parse_float=Decimal), one["column_name"], one["reason"]) for one in rejects]
    return sorted(told, key=lambda one: one[0]["id"])

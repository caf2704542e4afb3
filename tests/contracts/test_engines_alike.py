"""Whoever moves the rows, the target holds the same values and the same rejects: Spark against threads, on every system."""

from __future__ import annotations

import csv
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.declare.connection.registry import connection_from_fields
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
from tests.depth import deep

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

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
    """Return a row by the places of its values."""
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


LATER = [
    {**ROWS[0], "words": "changed", "money": None},
    *ROWS[2:],
    row(200, *[None] * (len(TYPES) - 1)),
    {**BAD[0], "id": 300},
]
"""The second load: a row has changed, one is gone, one is new, and one is no row."""


@only("duckdb", "sqlite", "postgres", "mysql")
@pytest.mark.parametrize("mode", [deep("append"), deep("truncate"), "merge", "scd2"])
def test_every_value_and_every_reject_is_the_same(flows: Flows, mode: str) -> None:
    tried, local = pair(flows, mode=mode, source=SOURCE)
    loads = [[*ROWS, *BAD], [row for row in LATER if row["id"] >= 200] if mode == "append" else LATER]
    results = [same_result(tried.run(rows), local.run(rows)) for rows in loads]
    assert results[0]["rows_inserted"] == len(ROWS)
    assert tried.rows() == local.rows()
    if mode == "scd2":
        assert tried.versions() == local.versions()
    assert same_rejects(tried) == len(BAD) + 1


TEXTS = [name for name in TYPES if name not in ("raw", "words", "document")]
"""Columns whose values a line of CSV can hold."""


@only("duckdb", "sqlite", "postgres", "mysql")
@pytest.mark.parametrize("form", ["csv", deep("json_lines")])
def test_files_give_the_same_values_and_rejects(flows: Flows, tmp_path: Path, form: str) -> None:
    rows = [{name: _written(one[name]) for name in TEXTS} for one in [*ROWS, *BAD]]
    with (tmp_path / f"rows.{form}").open("w", encoding="utf-8", newline="") as file:
        if form == "csv":
            writer = csv.DictWriter(file, TEXTS)
            writer.writeheader()
            writer.writerows(rows)
        else:
            file.writelines(json.dumps({name: value or None for name, value in one.items()}) + "\n" for one in rows)
    files = connection_from_fields("inbox", {"kind": "files", "path": str(tmp_path), "format": form})
    read = {"source_connection": files, "function": lambda _: f"rows.{form}", "force_path": None}
    tried, local = pair(flows, [column for column in COLUMNS if column.name in TEXTS], mode="append", declared=read)
    assert same_result(tried.run(), local.run())["rows_inserted"] == len(ROWS)
    assert tried.rows() == local.rows()
    assert same_rejects(tried) == len(BAD)


def _written(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def pair(flows: Flows, columns: Sequence[Column] = COLUMNS, **options: Any) -> tuple[Flow, Flow]:
    """Return two flows into tables of their own: one that Spark moves the rows of, and one for threads."""
    tried, local = (
        flows(Table("analytics", name, tuple(columns)), name, on_bad_row="reject", **options)
        for name in ("by_engine", "by_threads")
    )
    local.spark = None
    return tried, local


def same_result(tried: Row, local: Row) -> Row:
    """Return what a load by Spark did, after it is sure that it was Spark and that threads did the same."""
    assert (tried["engine"], local["engine"]) == ("spark", "local")
    assert without(tried) == without(local)
    return tried


def without(result: Row) -> Row:
    """Return a result without what is another one for every load."""
    return {name: value for name, value in result.items() if name not in ("run_id", "engine")}


def same_rejects(flow: Flow) -> int:
    """Return how many rejects both loads have, after it is sure that they are the same."""
    rejects = {name: _rejects(flow, name) for name in ("by_engine", "by_threads")}
    assert rejects["by_engine"] == rejects["by_threads"]
    return len(rejects["by_engine"])


def _rejects(flow: Flow, pipeline: str) -> list[tuple[Any, ...]]:
    """Return the rejects of a pipeline as values, in the order of their rows."""
    rejects = [one for one in flow.points("rejects") if one["pipeline_name"] == pipeline]
    details = [(json.loads(one["row_json"], parse_float=Decimal), one["column_name"], one["reason"]) for one in rejects]
    return sorted(details, key=lambda one: one[0]["id"])

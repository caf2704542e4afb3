"""Frames of every library in the types that both engines know."""

from __future__ import annotations

from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from ematix_flow.connect.types.frames import arrow_table, loaded_schema, loaded_table
from ematix_flow.errors import RunError

TEXTS = pa.array(["a", None]).dictionary_encode()
LARGEST = 2**64 - 1


@pytest.mark.parametrize(
    ("given", "kind", "values"),
    [
        (pa.array([Decimal("1.5"), None], pa.decimal256(50, 10)), pa.string(), ["1.5000000000", None]),
        (pa.array([Decimal(10) ** -10], pa.decimal256(50, 10)), pa.string(), ["0.0000000001"]),
        (pa.array([Decimal("1.5")], pa.decimal256(20, 1)), pa.decimal128(20, 1), [Decimal("1.5")]),
        (pa.array([Decimal(1500)], pa.decimal128(5, -2)), pa.decimal128(7, 0), [Decimal(1500)]),
        (pa.array(np.array([1.5], np.float16)), pa.float32(), [1.5]),
        (pa.array([255], pa.uint8()), pa.int16(), [255]),
        (pa.array([LARGEST, None], pa.uint64()), pa.decimal128(20, 0), [Decimal(LARGEST), None]),
        (pa.array([86_400_000], pa.date64()), pa.date32(), [date(1970, 1, 2)]),
        (pa.array([86399], pa.time32("s")), pa.time64("us"), [time(23, 59, 59)]),
        (pa.array([1500, None], pa.duration("ns")), pa.duration("us"), [timedelta(microseconds=1), None]),
        (pa.array([b"\0", None], pa.binary_view()), pa.binary(), [b"\0", None]),
        (TEXTS, pa.string(), ["a", None]),
        (pa.RunEndEncodedArray.from_arrays([2, 3], ["a", None]), pa.string(), ["a", "a", None]),
        (pa.array([["a"], None], pa.list_view(pa.string_view())), pa.list_(pa.string()), [["a"], None]),
        (pa.ListArray.from_arrays([0, 2], TEXTS), pa.list_(pa.string()), [["a", None]]),
        (pa.array([[LARGEST]], pa.list_(pa.uint64())), pa.list_(pa.decimal128(20, 0)), [[Decimal(LARGEST)]]),
        (pa.array([{"at": 1}], pa.struct([("at", pa.time64("us"))])), pa.struct([("at", pa.string())]), [{"at": "00:00:00.000001"}]),
        (pa.array([[("a", LARGEST)]], pa.map_(pa.string(), pa.uint64())), pa.map_(pa.string(), pa.decimal128(20, 0)), [[("a", Decimal(LARGEST))]]),
        (pa.array([b"\1" * 16, None], pa.uuid()), pa.string(), ["01010101-0101-0101-0101-010101010101", None]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)  # fmt: skip
def test_types_that_only_arrow_knows_become_known_ones(given: Any, kind: pa.DataType, values: list[Any]) -> None:
    table = pa.table({"x": given})
    column = loaded_table(table).column("x")
    assert (column.type, column.to_pylist()) == (kind, values)
    assert loaded_schema(table).types == [kind]


@pytest.mark.parametrize("kind", [pa.int64(), pa.large_string(), pa.timestamp("ns"), pa.list_(pa.int8()), pa.null()])
def test_other_types_stay(kind: pa.DataType) -> None:
    table = pa.table({"x": pa.nulls(1, kind)})
    assert loaded_table(table) is table


def test_other_libraries_get_the_types_that_a_frame_has() -> None:
    table = pa.table({"n": pa.array([LARGEST], pa.uint64()), "day": pa.array([0], pa.date64())})
    assert arrow_table(table) is table


def test_what_a_library_has_for_itself_becomes_text() -> None:
    wide = pl.DataFrame({"n": pl.Series([2**100, None], dtype=pl.Int128), "id": [1, 2]})
    assert arrow_table(wide).to_pydict() == {"n": [str(2**100), None], "id": [1, 2]}
    months = pd.DataFrame({"month": pd.PeriodIndex(["2026-01", None], freq="M"), 0: [1, 2]})
    assert arrow_table(months).to_pydict() == {"month": ["2026-01", None], "0": [1, 2]}


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pa.table({"x": pa.array([2**62], pa.timestamp("s"))}), "'x' of the frame is timestamp.* out of range"),
        (pl.DataFrame({"x": pl.Series([object()], dtype=pl.Object)}), "'x' of the frame has objects of Python"),
        (pd.DataFrame([[1, 2]], columns=["x", "x"]), "several columns with the name 'x'"),
    ],
    ids=["far", "objects", "repeated"],
)
def test_what_is_no_value_is_named(frame: Any, message: str) -> None:
    with pytest.raises(RunError, match=message) as caught:
        loaded_table(frame)
    assert caught.value.hint

"""Types that pieces show, put together: what all values at once would have shown."""

from __future__ import annotations

from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ematix_flow.run.read.infer_messages import column_of
from ematix_flow.run.read.merged_types import as_type, inferred_types, merged

SCALARS = st.one_of(
    st.none(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=3),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("ab"), inner, min_size=1, max_size=2)
    ),
    max_leaves=4,
)
"""Truth is left out inside of others: beside numbers Arrow takes it for one or for an error, by its place."""


def in_chunks(chunks: list[list[Any]]) -> pa.ChunkedArray:
    """Return the values of pieces in the type that they share, each made by itself."""
    types = reduce(merged, [inferred_types([{"v": value} for value in chunk]) for chunk in chunks])
    kind = pa.string() if pa.types.is_null(types["v"]) else types["v"]
    return pa.chunked_array([as_type(chunk, kind) for chunk in chunks], kind)


@pytest.mark.slow
@given(st.lists(st.lists(VALUES | st.booleans(), min_size=1, max_size=3), min_size=1, max_size=3))
def test_pieces_show_what_all_values_show(chunks: list[list[Any]]) -> None:
    whole = column_of([value for chunk in chunks for value in chunk])
    column = in_chunks(chunks)
    assert column.type == whole.type
    assert column.to_pylist() == whole.to_pylist()


@pytest.mark.parametrize(
    ("chunks", "kind"),
    [
        ([[1], [2.5]], pa.float64()),
        ([[1], [2**64 - 1]], pa.decimal128(38, 0)),
        ([[2**64], [None], [2**65]], pa.decimal128(38, 0)),
        ([[2**64], [2.5]], pa.float64()),
        ([[2**64], [10**38]], pa.float64()),
        ([[1], ["a"]], pa.string()),
        ([[None], [True]], pa.bool_()),
        ([[True], [2.5]], pa.string()),
        ([[2.5, True], [1]], pa.string()),
        ([[True], [2]], pa.string()),
        ([[{"a": 1}], [{"b": "x"}]], pa.struct([("a", pa.int64()), ("b", pa.string())])),
        ([[[1]], [[2.5]]], pa.list_(pa.float64())),
        ([[Decimal("1.25")], [Decimal("100.5")]], pa.decimal128(5, 2)),
    ],
)
def test_types_have_room_for_both(chunks: list[list[Any]], kind: pa.DataType) -> None:
    assert in_chunks(chunks).type == kind

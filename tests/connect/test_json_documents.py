"""Nested values become JSON column by column exactly as a walk through every single value writes them."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ematix_flow.connect.formats.json_documents import documents
from ematix_flow.connect.formats.json_lines import written
from ematix_flow.connect.formats.values import text_of, tree

TEXTS = st.text(st.characters(codec="utf-8") | st.sampled_from('"\\\n\0\x7f\u2028'), max_size=6)
LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.string(), TEXTS),
    (pa.large_string(), TEXTS),
    (pa.dictionary(pa.int8(), pa.string()), TEXTS),
    (pa.bool_(), st.booleans()),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float64(), st.floats()),
    (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    (pa.float32(), st.floats(width=32)),
    (pa.decimal128(38, 10), st.decimals(-(10**20), 10**20, places=10)),
    (pa.decimal256(76, 0), st.integers(-(10**75), 10**75).map(Decimal)),
    (pa.binary(), st.binary(max_size=4)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us", tz="UTC"), st.datetimes(timezones=st.just(UTC))),
    (pa.timestamp("us"), st.datetimes()),
    (pa.null(), st.none()),
]
KEYS = [
    leaf for leaf in LEAVES if leaf[0] in (pa.string(), pa.bool_(), pa.int64(), pa.float64(), pa.binary(), pa.date32())
]
NAMES = st.lists(TEXTS, max_size=3, unique=True)


@st.composite
def kinds(draw: st.DrawFn, depth: int = 3) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    """Return a type of Arrow and its values, NULL among them."""
    shape = draw(st.sampled_from(["list", "fixed", "struct", "map", "leaf"])) if depth else "leaf"
    if shape == "struct":
        fields = {name: draw(kinds(depth=depth - 1)) for name in draw(NAMES)}
        kind = pa.struct([(name, of_field) for name, (of_field, _) in fields.items()])
        return kind, st.none() | st.fixed_dictionaries({name: values for name, (_, values) in fields.items()})
    kind, values = draw(st.sampled_from(LEAVES)) if shape == "leaf" else draw(kinds(depth=depth - 1))
    if shape == "list":
        return pa.list_(kind), st.none() | st.lists(values, max_size=4)
    if shape == "fixed":
        return pa.list_(kind, 2), st.none() | st.lists(values, min_size=2, max_size=2)
    if shape == "map":
        of_key, keys = draw(st.sampled_from(KEYS))
        return pa.map_(of_key, kind), st.none() | st.lists(st.tuples(keys, values), max_size=3)
    return kind, st.none() | values


@st.composite
def columns(draw: st.DrawFn) -> pa.Array:
    """Return a column of nested values, sometimes a part of a longer one."""
    kind, values = draw(kinds().filter(lambda pair: pa.types.is_nested(pair[0])))
    column = pa.array(draw(st.lists(values, max_size=5)), kind)
    return column.slice(draw(st.integers(0, len(column))))


def document(value: Any, kind: pa.DataType) -> str:
    """Return a value as JSON, with its type considered again at every step."""
    if value is None:
        return "null"
    if pa.types.is_map(kind):
        keys = [key.hex() if isinstance(key, bytes) else text_of(key) for key, _ in value]
        return joined([(key, document(one, kind.item_type)) for key, (_, one) in zip(keys, value, strict=True)])
    if pa.types.is_struct(kind):
        return joined([(f.name, document(value[f.name], f.type)) for f in kind if value[f.name] is not None])
    if pa.types.is_nested(kind):
        return f"[{', '.join(document(item, kind.value_type) for item in value)}]"
    return written(tree(value.hex() if isinstance(value, bytes) else value))


def joined(pairs: list[tuple[str, str]]) -> str:
    """Return an object of JSON."""
    return f"{{{', '.join(f'{json.dumps(name, ensure_ascii=False)}: {value}' for name, value in pairs)}}}"


@pytest.mark.slow
@settings(max_examples=400)
@given(columns())
@example(pa.array([[1.5, math.nan], [math.inf, None], [1e16, -0.0, 1e-7, 5e-324], [], None]))
@example(pa.array([[[0.1], [math.nan], None]], pa.list_(pa.list_(pa.float32()))))
@example(pa.array([[{"n": 2**64 - 1, "t": 'é "\u2028\0'}, {"n": None, "t": ""}, None]],
                  pa.list_(pa.struct([("n", pa.uint64()), ("t", pa.string())]))))  # fmt: skip
def test_a_column_is_written_as_its_values_would_be_one_by_one(column: pa.Array) -> None:
    expected = [None if value is None else document(value, column.type) for value in column.to_pylist()]
    assert documents(column).to_pylist() == expected


def test_nested_values_have_all_of_their_digits() -> None:
    rows = [{"d": Decimal("1.10"), "b": b"\xff", "l": [True, None], "m": [(1, 0.5)], "on": date(2026, 1, 2), "x": math.nan},
            {"at": datetime(2026, 1, 2, tzinfo=UTC), "l": []}]  # fmt: skip
    kinds = {"d": pa.decimal128(9, 2), "b": pa.binary(), "l": pa.list_(pa.bool_()), "m": pa.map_(pa.int32(), pa.float32()),
             "on": pa.date32(), "at": pa.timestamp("us", tz="UTC"), "x": pa.float64()}  # fmt: skip
    assert documents(pa.array(rows, pa.struct(kinds.items()))).to_pylist() == [
        '{"d": 1.10, "b": "ff", "l": [true, null], "m": {"1": 0.5}, "on": "2026-01-02", "x": "NaN"}',
        '{"l": [], "at": "2026-01-02T00:00:00.000000Z"}',
    ]

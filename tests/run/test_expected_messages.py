"""Messages that are read as rows at once are what they would be if their types had been inferred first, or are not used."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ematix_flow.connect.base.stream_source import MESSAGE_OFFSET, VALUE, MessagePartition
from ematix_flow.run.read.expected_messages import _REPORT, typed_partition
from ematix_flow.run.read.infer_messages import json_payload
from ematix_flow.run.read.merged_types import as_type, inferred_types, merged
from ematix_flow.run.read.message_frames import Layout, typed_schema

pytestmark = pytest.mark.slow

_LAYOUT = Layout(())
_VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-3, 3),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=3),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("xy"), inner, max_size=2)),
    max_leaves=4,
)
_ROWS = st.dictionaries(st.sampled_from("abc"), _VALUES, max_size=3)
_BATCHES = st.lists(st.lists(st.one_of(_ROWS, _ROWS, _ROWS, st.none()), max_size=4), max_size=3)


def _read(batches: list[list[Any]], types: dict[str, pa.DataType]) -> tuple[pa.Table, dict[str, Any]]:
    """Return the rows that a task makes of batches of messages, and what it reports."""
    tables = [
        pa.table(
            {
                VALUE: pa.array([b"broken" if row is None else json.dumps(row).encode() for row in batch], pa.binary()),
                MESSAGE_OFFSET: pa.array([str(number) for number, _ in enumerate(batch)], pa.string()),
            }
        )
        for batch in batches
    ]
    partition = MessagePartition("", 1, lambda: iter(tables))
    *rows, report = typed_partition(partition, 0, _LAYOUT, json_payload, types)
    schema = typed_schema(types, _LAYOUT)
    typed = pa.concat_tables([schema.empty_table(), *(table.drop_columns(_REPORT) for table in rows)])
    return typed, report[_REPORT][0].as_py()


@given(_BATCHES, st.none() | _BATCHES)
@example([[{"a": 1}], [{"a": 2.5}]], [[{"a": 1.5}]])
@example([[{"a": None}], [{"a": "x"}]], [[{"a": "x"}]])
@example([[{"a": {"x": 1}}], [{"a": {"y": 1}}]], [[{"a": {"x": 1, "y": 2}}]])
def test_rows_are_those_of_inferred_types_or_the_report_differs(
    batches: list[list[Any]], before: list[list[Any]] | None
) -> None:
    expected = _types(batches if before is None else before)
    rows, report = _read(batches, expected)
    types = _types(batches)
    shown = {field.name: field.type for field in pa.ipc.read_schema(pa.py_buffer(report["types"]))}
    if report["bad"] or [*shown.items()] != [*expected.items()]:
        assert [*types.items()] != [*expected.items()] or any(row is None for batch in batches for row in batch)
        return
    assert [*types.items()] == [*expected.items()]
    good = [row for batch in batches for row in batch]
    assert report["rows"] == len(good) == rows.num_rows
    for name in expected:
        kind = rows.schema.field(name).type
        assert rows[name].combine_chunks().equals(as_type([row.get(name) for row in good], kind))


def _types(batches: list[list[Any]]) -> dict[str, pa.DataType]:
    """Return the types that rows show, batch by batch."""
    types: dict[str, pa.DataType] = {}
    for batch in batches:
        types = merged(types, inferred_types([row for row in batch if row is not None]))
    return types

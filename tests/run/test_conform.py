"""Rows made to fit the declared types: what does not fit is told apart, never bent."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ematix_flow.connect.base import StageColumn
from ematix_flow.declare.types import Float
from ematix_flow.run.conform import Rules, conform


@pytest.mark.parametrize("value", [1e300, -1e300])
def test_a_number_that_a_float_cannot_hold_is_a_bad_row(value: float) -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1.5, value, float("inf"), None]})
    good, bad = conform(batch, Rules((StageColumn("a", Float()),), frozenset()))
    assert good.column(0).to_pylist() == [1.5, float("inf"), None]
    assert bad is not None
    assert bad.column("column_name").to_pylist() == ["a"]

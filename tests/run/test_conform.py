"""Rows made to fit the declared types: what does not fit is told apart, never bent."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from ematix_flow.connect.base.stage import StageColumn
from ematix_flow.declare.table.types import Float, Text, Timestamp
from ematix_flow.run.stage.conform import Rules, conform


@pytest.mark.parametrize("value", [1e300, -1e300])
def test_a_number_that_a_float_cannot_hold_is_a_bad_row(value: float) -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1.5, value, float("inf"), None]})
    good, bad = conform(batch, Rules((StageColumn("a", Float()),), frozenset()))
    assert good.column(0).to_pylist() == [1.5, float("inf"), None]
    assert bad is not None
    assert bad.column("column_name").to_pylist() == ["a"]


def test_moments_that_orc_would_spoil_are_bad_rows_where_the_target_says_so() -> None:
    whole, half, early = (datetime(year, 1, 1, 0, 0, 0, micro) for year, micro in ((1960, 0), (1960, 5), (1, 0)))  # noqa: DTZ001
    late = datetime(9999, 12, 31, tzinfo=UTC).replace(tzinfo=None)
    kept = [whole, datetime(2026, 1, 1, 0, 0, 0, 123456), None]  # noqa: DTZ001
    batch = pa.RecordBatch.from_pydict({"a": pa.array([*kept, half, early, late], pa.timestamp("us"))})
    columns = (StageColumn("a", Timestamp()),)
    good, bad = conform(batch, Rules(columns, frozenset(), forbidden=("far_instant",)))
    assert good.column(0).to_pylist() == kept
    assert bad is not None
    reasons = bad.column("reason").to_pylist()
    assert "before 1970" in reasons[0]
    assert all("1678" in reason for reason in reasons[1:])
    assert conform(batch, Rules(columns, frozenset()))[1] is None


def test_texts_that_would_become_null_where_they_divide_a_table_are_bad_rows() -> None:
    batch = pa.RecordBatch.from_pydict({"a": ["x", "", None, "__HIVE_DEFAULT_PARTITION__"]})
    columns = (StageColumn("a", Text()),)
    good, bad = conform(batch, Rules(columns, frozenset(), filled=frozenset({"a"})))
    assert good.column(0).to_pylist() == ["x", None]
    assert bad is not None
    assert [reason.partition(",")[0] for reason in bad.column("reason").to_pylist()] == [
        "is empty",
        "is __HIVE_DEFAULT_PARTITION__",
    ]
    assert conform(batch, Rules(columns, frozenset()))[1] is None

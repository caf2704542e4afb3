"""Rows made to fit the declared types: what does not fit is told apart, never bent."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Context, Decimal

import pyarrow as pa
import pytest
from hypothesis import given as given_values
from hypothesis import strategies as st

from ematix_flow.connect.base.capabilities import FOUR_DIGITS
from ematix_flow.connect.base.stage import FAILED, UNREAD, StageColumn
from ematix_flow.connect.types.reject_rows import is_shaped
from ematix_flow.declare.table.types import Bytes, Date, Double, Float, Integer, Numeric, Text, Timestamp
from ematix_flow.plan.columns import RAW
from ematix_flow.run.stage.conform import Rules, conform


@pytest.mark.parametrize("value", [1e300, -1e300])
def test_a_number_that_a_float_cannot_hold_is_a_bad_row(value: float) -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1.5, value, float("inf"), None]})
    good, bad = conform(batch, Rules((StageColumn("a", Float()),), frozenset()))
    assert good.column(0).to_pylist() == [1.5, float("inf"), None]
    assert bad is not None
    assert bad.column("column_name").to_pylist() == ["a"]


WIDE = Context(prec=100)
# All bits set is where a division by two words can go wrong.
NEAR_POWERS = st.builds(lambda power, less: 2**power - less, st.integers(1, 120), st.integers(1, 4))
DECIMALS = st.builds(
    lambda digits, sign, scale: WIDE.scaleb(Decimal(digits * sign), -scale),
    NEAR_POWERS | st.integers(0, 10**37),
    st.sampled_from([1, -1]),
    st.integers(0, 20),
)


@pytest.mark.slow
@given_values(numbers=st.lists(DECIMALS, min_size=1, max_size=20), scale=st.integers(0, 18))
def test_decimals_are_rounded_exactly_and_halves_away_from_zero(numbers: list[Decimal], scale: int) -> None:
    column = StageColumn("a", Numeric(38, scale))
    exact = [number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, WIDE) for number in numbers]
    expected = [number for number in exact if len(number.as_tuple().digits) <= 38]
    for array in (pa.array([format(n, "f") for n in numbers]), pa.array(numbers, pa.decimal256(76, 20))):
        good, _ = conform(pa.RecordBatch.from_pydict({"a": array}), Rules((column,), frozenset()))
        assert good.column(0).to_pylist() == expected


@pytest.mark.slow
@given_values(numbers=st.lists(DECIMALS, min_size=1, max_size=20))
def test_decimals_become_the_nearest_doubles(numbers: list[Decimal]) -> None:
    numbers += [Decimal("1.505"), Decimal("56834724.12"), Decimal("1E-20")]
    batch = pa.RecordBatch.from_pydict({"a": pa.array(numbers, pa.decimal256(76, 20))})
    good, bad = conform(batch, Rules((StageColumn("a", Double()),), frozenset()))
    assert (good.column(0).to_pylist(), bad) == (list(map(float, numbers)), None)


def test_decimals_become_texts_without_an_exponent() -> None:
    numbers = [Decimal("1E-10"), Decimal("-0.0000001234"), Decimal("1.5"), None]
    batch = pa.RecordBatch.from_pydict({"a": pa.array(numbers, pa.decimal128(38, 10))})
    good, _ = conform(batch, Rules((StageColumn("a", Text()),), frozenset()))
    assert good.column(0).to_pylist() == ["0.0000000001", "-0.0000001234", "1.5000000000", None]


def test_moments_that_orc_would_spoil_are_bad_rows_where_the_target_says_so() -> None:
    whole, half, early = (datetime(year, 1, 1, 0, 0, 0, micro) for year, micro in ((1960, 0), (1960, 5), (1, 0)))  # noqa: DTZ001
    late = datetime(9999, 12, 31, tzinfo=UTC).replace(tzinfo=None)
    values = [whole, datetime(2026, 1, 1, 0, 0, 0, 123456), None]  # noqa: DTZ001
    batch = pa.RecordBatch.from_pydict({"a": pa.array([*values, half, early, late], pa.timestamp("us"))})
    columns = (StageColumn("a", Timestamp()),)
    good, bad = conform(batch, Rules(columns, frozenset(), forbidden=("far_instant",)))
    assert good.column(0).to_pylist() == values
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


def test_years_that_the_target_cannot_write_are_bad_rows() -> None:
    days = pa.array([-719_162, 2_932_896, None, -719_163, 2_932_897, 2**31 - 1], pa.int32()).cast(pa.date32())
    batch, columns = pa.RecordBatch.from_pydict({"a": days}), (StageColumn("a", Date()),)
    good, bad = conform(batch, Rules(columns, frozenset(), times=FOUR_DIGITS))
    assert [str(day) for day in good.column(0).to_pylist()] == ["0001-01-01", "9999-12-31", "None"]
    assert bad is not None
    assert [json.loads(row)["a"] for row in bad.column("row_json").to_pylist()] == [
        "0000-12-31",
        "10000-01-01",
        "5881580-07-11",
    ]
    assert conform(batch, Rules(columns, frozenset()))[1] is None


@pytest.mark.parametrize(("alters", "given"), [(False, False), (True, False), (True, True)])
def test_a_reject_has_the_row_of_the_source_or_says_that_it_has_not(alters: bool, given: bool) -> None:
    batch = pa.RecordBatch.from_pydict(
        {"a": pa.array([None, None], pa.int32()), "b": [b"\x00", b"\xff"], RAW: ['{"x": 1}', None]}
    )
    columns = (StageColumn("a", Integer()), StageColumn("b", Bytes()))
    _, bad = conform(batch, Rules(columns, frozenset({"a"}), alters=alters, given=given))
    assert bad is not None
    source, own = bad.column("row_json").to_pylist()
    assert (is_shaped(source), is_shaped(own)) == (given, alters)
    assert json.loads(source)["x"] == 1
    assert {name: value for name, value in json.loads(own).items() if name != "_flow_shaped"} == {
        "a": None,
        "b": {"_flow_bytes": "FF"},
    }


def test_a_reject_has_the_values_that_could_not_be_read() -> None:
    batch = pa.RecordBatch.from_pydict({
        "a": pa.array([None, 1], pa.int32()), FAILED: ["a: is odd", None], UNREAD: ['{"a": "odd"}', None],
    })  # fmt: skip
    good, bad = conform(batch, Rules((StageColumn("a", Integer()),), frozenset({"a"})))
    assert good.column(0).to_pylist() == [1]
    assert bad is not None
    assert bad.to_pylist() == [
        {"reason": "is odd", "column_name": "a", "source_position": None, "row_json": '{"a": "odd"}'}
    ]

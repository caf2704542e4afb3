"""Python functions for SQL: what `@udf` and `@udaf` accept, and what one batch gives."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ematix_flow import (
    PythonAggregateUdfHandle,
    PythonScalarUdfHandle,
    apply_udaf_to_batch,
    apply_udf_to_batch,
    udaf,
    udf,
)
from ematix_flow.errors import FlowError

BATCH = pa.record_batch({"price": [2.0, 4.0, None], "qty": pa.array([1, 3, 5], pa.int32()), "name": ["a", "b", "c"]})


@udf(args=("Float64", "Int64"), returns="Float64")
def value(price: Any, quantity: Any) -> Any:
    assert quantity.type == pa.int64()
    return pc.multiply(price, pc.cast(quantity, pa.float64()))


@udaf(args=["Float64"], state=["Float64"], returns="Float64", name="total")
class Total:
    def __init__(self) -> None:
        self.sum = 0.0

    def update_batch(self, values: Any) -> None:
        self.sum += pc.sum(values).as_py() or 0.0

    def merge_batch(self, states: Any) -> None:
        self.sum += pc.sum(states).as_py()

    def evaluate(self) -> Any:
        return pa.array([self.sum])

    def state(self) -> tuple[Any, ...]:
        return (pa.array([self.sum]),)


def test_a_decorated_function_is_a_handle_that_can_still_be_called() -> None:
    assert isinstance(value, PythonScalarUdfHandle)
    assert (value.name, value.args, value.returns) == ("value", ("Float64", "Int64"), "Float64")
    assert value(pa.array([2.0]), pa.array([3])).to_pylist() == [6.0]
    assert isinstance(Total, PythonAggregateUdfHandle)
    assert (Total.name, Total.state, Total().sum) == ("total", ("Float64",), 0.0)


def test_a_batch_goes_through_a_function_by_the_names_of_columns() -> None:
    assert apply_udf_to_batch(value, BATCH, ["price", "qty"]).to_pylist() == [2.0, 12.0, None]
    assert apply_udaf_to_batch(Total, BATCH, ["price"]).to_pylist() == [6.0]
    assert apply_udaf_to_batch(Total, BATCH, ["price"]).to_pylist() == [6.0]


@pytest.mark.parametrize(
    ("create", "error", "message"),
    [
        (lambda: udf(args=["Decimal"], returns="Int64"), ValueError, "unknown type 'Decimal'"),
        (lambda: udf(args=[], returns="int64"), ValueError, "did you mean 'Int64'?"),
        (lambda: udf(args="Int64", returns="Int64"), TypeError, "takes a list of types"),
        (lambda: udf(args=[], returns="Int64")(Total.accumulator), TypeError, "@udf takes a function"),
        (lambda: udf(args=[], returns="Int64")(lambda: 1), ValueError, "cannot be called in SQL"),
        (lambda: udaf(args=[], state=[], returns="Int64")(print), TypeError, "@udaf takes a class"),  # type: ignore[arg-type]
        (lambda: udaf(args=[], state=[], returns="Int64")(dict), TypeError, r"has no update_batch\(\)"),
        (lambda: apply_udf_to_batch(value, BATCH, ["price"]), ValueError, "takes 2 columns, not 1"),
        (lambda: apply_udf_to_batch(value, BATCH, ["prize", "qty"]), KeyError, "did you mean 'price'?"),
        (lambda: apply_udf_to_batch(value, BATCH, ["name", "qty"]), ValueError, "column 'name'"),
    ],
)
def test_what_cannot_be_called_is_refused(create: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        create()
    assert isinstance(caught.value, FlowError)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ([1.0, 2.0, 3.0], "gave list"),
        (pa.array([1, 2, 3]), "gave int64"),
        (pa.array([1.0]), "gave 1 value"),
    ],
)
def test_what_was_not_declared_is_not_given_back(result: Any, message: str) -> None:
    wrong = udf(args=["Float64"], returns="Float64", name="wrong")(lambda _: result)
    with pytest.raises(ValueError, match=message):
        apply_udf_to_batch(wrong, BATCH, ["price"])

"""Types of remembered values: those of earlier rows and of later ones together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructType,
)

from ematix_flow.run.streams.schemas import merged_schema, schema_of

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (IntegerType(), LongType(), LongType()),
        (LongType(), DoubleType(), DoubleType()),
        (FloatType(), FloatType(), FloatType()),
        (LongType(), DecimalType(20, 0), DecimalType(20, 0)),
        (IntegerType(), DecimalType(12, 4), DecimalType(14, 4)),
        (DecimalType(12, 4), DecimalType(20, 2), DecimalType(22, 4)),
        (DecimalType(38, 10), DecimalType(38, 20), DoubleType()),
        (DecimalType(20, 2), DoubleType(), DoubleType()),
        (ArrayType(LongType()), ArrayType(DecimalType(20, 0)), ArrayType(DecimalType(20, 0))),
        (LongType(), StringType(), StringType()),
    ],
)
def test_numbers_of_several_types_stay_numbers(one: DataType, other: DataType, both: DataType) -> None:
    schemas = [StructType().add("a0", kind).json() for kind in (one, other)]
    for first, second in (schemas, schemas[::-1]):
        assert schema_of(merged_schema(first, second))["a0"].dataType == both

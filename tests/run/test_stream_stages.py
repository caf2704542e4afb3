"""Several streams with SQL in one process: each sees its own batch, its own functions and its own lookups."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ematix_flow.declare.stream.udf import udf
from ematix_flow.run.read.infer_messages import TypedRows
from ematix_flow.run.transform.stream_sql import SqlStage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

SQL = "SELECT changed(s.id) AS id, n.word FROM source s JOIN names n ON n.id = s.id"


def stage(spark: SparkSession, factor: int, text: str) -> SqlStage:
    """Return the stage of one stream; all of them name their function and their lookup alike."""

    @udf(args=("Int64",), returns="Int64", name="changed")
    def changed(numbers: pa.Array) -> pa.Array:
        return pc.multiply(numbers, factor)

    names = pa.table({"id": [1, 2], "word": [text, text]})
    return SqlStage(lambda: spark, SQL, True, (changed,), (), {"names": lambda: names})


def answer(one: SqlStage, number: int) -> list[dict[str, object]]:
    """Return what a stage makes of a batch of one row."""
    return one.rows(TypedRows(pa.table({"id": [number]})), lenient=False).rows.to_pylist()  # type: ignore[no-any-return]


def test_streams_of_one_process_do_not_see_each_other(spark: SparkSession) -> None:
    first, second = stage(spark, 10, "ten"), stage(spark, 100, "hundred")
    for _ in range(2):
        assert answer(first, 1) == [{"id": 10, "word": "ten"}]
        assert answer(second, 2) == [{"id": 200, "word": "hundred"}]


def test_streams_that_run_side_by_side_do_not_see_each_other(spark: SparkSession) -> None:
    stages = [
        (stage(spark, 10, "ten"), 1, [{"id": 10, "word": "ten"}]),
        (stage(spark, 7, "seven"), 2, [{"id": 14, "word": "seven"}]),
    ]
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda turn: (answer(*stages[turn % 2][:2]), stages[turn % 2][2]), range(8)))
    assert all(result == expected for result, expected in answers)

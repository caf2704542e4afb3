"""Columns of Spark that no system has a type for: what of them is loaded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ematix_flow.run.read.frames import as_documents

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("value", "document"),
    [
        ("""parse_json('{"a":[1,"x",null]}')""", {"a": [1, "x", None]}),
        ("array(parse_json('1.50'))", [1.5]),
        ("map(DATE'2026-01-02', 1)", {"2026-01-02": 1}),
        ("array(named_struct('a.b', map(TIMESTAMP_NTZ'2026-01-02 03:04:05', NULL)))", [{"a.b": {"2026-01-02 03:04:05": None}}]),
        ("map(1, DATE'2026-01-02')", {"1": "2026-01-02"}),
    ],
)  # fmt: skip
def test_variants_and_nested_values_are_json(spark: SparkSession, value: str, document: object) -> None:
    frame = as_documents(spark.sql(f"SELECT 1 AS id, {value} AS `x.y` UNION ALL SELECT 2, NULL"))
    rows = {row["id"]: row["x.y"] for row in frame.collect()}
    assert (json.loads(rows[1]), rows[2]) == (document, None)


def test_intervals_without_a_length_are_texts(spark: SparkSession) -> None:
    frame = as_documents(spark.sql("SELECT INTERVAL '1-2' YEAR TO MONTH AS a, make_interval(1, 2, 0, 4) AS b"))
    assert frame.collect()[0].asDict() == {"a": "INTERVAL '1-2' YEAR TO MONTH", "b": "1 years 2 months 4 days"}

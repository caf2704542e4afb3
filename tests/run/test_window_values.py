"""The numbers of windows whose events came with several batches, without a stream."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as sf

from ematix_flow import Aggregation, Window
from ematix_flow.plan.stream.aggregates import comparable
from ematix_flow.run.streams.events import block_schema, timed, untimely, window_events
from ematix_flow.run.streams.results import window_rows
from ematix_flow.run.streams.schemas import merged_schema, schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

BEGIN = datetime(2026, 3, 1)  # noqa: DTZ001 - Spark's sessions are in UTC
BATCHES = [
    {"number int, big bigint, text string": [(9, 1, ""), (10, None, "a")]},
    {"number bigint, big decimal(20, 0), text string": [(2**60 + 1, Decimal(2**64), None), (None, Decimal(9), "")]},
    {"number bigint, big bigint, text bigint": [(None, 10, 7), (None, None, 7)]},
]
"""The last one has whole numbers where there were texts."""

EXACT: dict[str, Any] = {"mode": "exact", "max_distinct_values_per_group": 9}
WINDOW = Window(
    "tumbling",
    (
        *(Aggregation(agg, f"{agg}_{column}", column) for column in ("number", "big") for agg in ("sum", "min", "max")),
        Aggregation("count_distinct", "about", "text"),
        Aggregation("count_distinct", "exactly", "text", **EXACT),
    ),
    duration_ms=60_000,
    event_time_column="at",
)


def batch_of(spark: SparkSession, columns: str, rows: list[tuple[Any, ...]]) -> DataFrame:
    """Return rows with their times."""
    given = [(BEGIN + timedelta(seconds=second), *row) for second, row in enumerate(rows)]
    return timed(spark.createDataFrame(given, f"at timestamp, {columns}"), "at")


def closed(events: DataFrame) -> DataFrame:
    """Return events as what the state gives out of windows that are over."""
    return events.select(sf.lit("close").alias("kind"), "*", sf.lit(None).cast("string").alias("other"))


@pytest.mark.parametrize("keeps_rows", [False, True])
def test_values_of_several_batches_are_those_of_one(spark: SparkSession, *, keeps_rows: bool) -> None:
    batches = [batch_of(spark, *one) for given in BATCHES for one in given.items()]
    schemas = [block_schema(rows, WINDOW, keeps_rows=keeps_rows) for rows in batches]
    events = [window_events(rows, WINDOW, keeps_rows=keeps_rows) for rows in batches]
    rows = window_rows(
        closed(reduce(lambda one, other: one.union(other), events)),
        WINDOW,
        schema_of(reduce(merged_schema, schemas)),
        keeps_rows=keeps_rows,
    )
    [row] = rows.collect()
    assert row[2:8] == (19 + 2**60 + 1, 9, 2**60 + 1, 20 + 2**64, 1, 2**64)
    assert (row["about"], row["exactly"]) == (3, 3)


def test_a_time_of_day_is_no_time_of_an_event(spark: SparkSession) -> None:
    texts = ["2026-03-01T10:00:05Z", "2026-3-1 ", "12:30", " T1:30:05"]
    rows = timed(spark.createDataFrame([(text,) for text in texts], "at string"), "at")
    assert [row[0] for row in rows.where("_flow_ts IS NOT NULL").select("at").collect()] == texts[:2]
    reasons = [row["reason"] for row in untimely(rows, "at", requires_time=False).collect()]
    assert reasons == ["12:30 could not be parsed", " T1:30:05 could not be parsed"]


def test_rows_that_are_remembered_may_lack_a_column_that_a_new_aggregation_needs(spark: SparkSession) -> None:
    batch = batch_of(spark, "number int", [(1,), (2,)])
    added = Aggregation("max", "most", "price"), Aggregation("count_col", "prices", "price"), Aggregation("count", "n")
    window = replace(WINDOW, group_by=("shop",), aggregations=added)
    schema = schema_of(block_schema(batch, WINDOW, keeps_rows=True))
    rows = window_rows(closed(window_events(batch, WINDOW, keeps_rows=True)), window, schema, keeps_rows=True)
    assert [(row["prices"], row["n"]) for row in rows.collect()] == [(0, 2)]
    assert not {"most", "shop"} & set(rows.columns)


def test_rows_that_are_remembered_may_have_a_text_that_a_new_aggregation_cannot_sum(spark: SparkSession) -> None:
    batch = batch_of(spark, "number string", [("5",), ("many",), (None,), (" 2.5",)])
    added = Aggregation("sum", "total", "number"), Aggregation("avg", "mean", "number"), Aggregation("count", "n")
    window = replace(WINDOW, aggregations=(*added, Aggregation("max", "most", "number")))
    schema = schema_of(block_schema(batch, WINDOW, keeps_rows=True))
    rows = window_rows(closed(window_events(batch, WINDOW, keeps_rows=True)), window, schema, keeps_rows=True)
    assert [tuple(row)[2:6] for row in rows.collect()] == [(7.5, 3.75, 4, "many")]


@pytest.mark.parametrize("keeps_rows", [False, True])
def test_a_number_so_long_that_a_sum_may_have_no_room_for_it_is_not_summed(
    spark: SparkSession, *, keeps_rows: bool
) -> None:
    given = ["9" * 34, f"-{'9' * 38}", "9" * 38, None, "7"]
    batch = batch_of(spark, "big string, number int, text string", [(one, None, None) for one in given])
    batch = batch.withColumn("big", sf.col("big").cast("decimal(38, 0)"))
    summed = timed(batch, "at", ("big",))
    bad = untimely(summed, "at", requires_time=False, summed=("big",)).collect()
    assert [row["reason"] for row in bad] == [
        f"{sign}{'9' * 38} is no number that could be summed" for sign in ("-", "")
    ]
    # Those that an earlier version remembers add nothing.
    events = window_events(batch if keeps_rows else summed.where("_flow_ts IS NOT NULL"), WINDOW, keeps_rows=keeps_rows)
    schema = schema_of(block_schema(summed, WINDOW, keeps_rows=keeps_rows))
    [row] = window_rows(closed(events), WINDOW, schema, keeps_rows=keeps_rows).collect()
    assert row["sum_big"] == 10**34 + 6
    keys = batch.select(sf.expr(comparable("big")))
    assert [one[0] for one in keys.collect()] == given


def test_a_text_that_is_no_number_is_not_summed(spark: SparkSession) -> None:
    given = [("5", "x"), ("many", "y"), (" 2.5", "z"), (None, None)]
    rows = spark.createDataFrame([(BEGIN, *one) for one in given], "at timestamp, amount string, word string")
    summed = timed(rows, "at", ("amount",))
    assert [row[0] for row in summed.where("_flow_ts IS NOT NULL").select("amount").collect()] == ["5", " 2.5", None]
    [bad] = untimely(summed, "at", requires_time=False, summed=("amount",)).collect()
    assert (bad["column_name"], bad["reason"]) == ("amount", "many is no number that could be summed")
    assert '"word":"y"' in bad["row_json"]
    # Numbers are not read as texts.
    assert timed(rows.selectExpr("at", "1 AS amount"), "at", ("amount",)).where("_flow_ts IS NULL").isEmpty()


@pytest.mark.parametrize("keeps_rows", [False, True])
def test_truth_values_are_summed_and_nested_ones_are_bad_rows(spark: SparkSession, *, keeps_rows: bool) -> None:
    given = [(True, None, None), (False, None, None), (None, None, None), (True, (1,), None), (True, None, [2, 3])]
    columns = {"flag": "boolean", "object": "struct<x bigint>", "list": "array<bigint>"}
    aggregations = [Aggregation(agg, f"{agg}_{column}", column) for column in columns for agg in ("sum", "avg")]
    window = replace(WINDOW, aggregations=tuple(aggregations))
    types = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    timed_rows = [(BEGIN + timedelta(seconds=second), *row) for second, row in enumerate(given)]
    rows = timed(spark.createDataFrame(timed_rows, f"at timestamp, {types}"), "at", tuple(columns))
    assert rows.where("_flow_ts IS NULL").count() == 2
    bad = untimely(rows, "at", requires_time=False, summed=tuple(columns)).orderBy("column_name").collect()
    assert [(one["column_name"], one["reason"]) for one in bad] == [
        ("list", "[2, 3] is no number that could be summed"),
        ("object", "{1} is no number that could be summed"),
    ]
    good = rows.where("_flow_ts IS NOT NULL")
    events = closed(window_events(good, window, keeps_rows=keeps_rows))
    schema = schema_of(block_schema(good, window, keeps_rows=keeps_rows))
    [row] = window_rows(events, window, schema, keeps_rows=keeps_rows).collect()
    assert tuple(row[2:8]) == (1, 0.5, None, None, None, None)

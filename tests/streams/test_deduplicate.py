"""Rows that came before, within a time, are left out; how they are split into batches and runs does not matter."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from ematix_flow import Dedupe, Watermark, ematix, pk
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.state.contents import state_contents
from ematix_flow.engine.stream.state.folder import state_folder
from ematix_flow.errors import BadRowsError, DeclareError
from ematix_flow.types import BigInt, Text  # noqa: TC001 - read from the annotations
from tests.depth import STREAM_STATE
from tests.streams.feeds import at, drain, duckdb_at, rows_in

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ematix_flow.declare.stream.stream import Stream
    from tests.streams.feeds import Topic

pytestmark = [
    pytest.mark.service,
    pytest.mark.spark,
    pytest.mark.xdist_group(STREAM_STATE),
    pytest.mark.usefixtures("spark", "stateful"),
]


@ematix.table(schema="shop", name="seen_once")
class FirstOfKey:
    """Events by their number."""

    id: Annotated[BigInt, pk()]
    word: Text | None
    _offset: BigInt | None


def event(seconds: float, number: int, text: str) -> dict[str, Any]:
    """Return a message."""
    return {"id": number, "word": text, "at": at(seconds), "more": 1}


def test_only_the_first_of_a_key_is_loaded(topic: Topic, warehouse: Path) -> None:
    stream = topic.stream(
        duckdb_at(warehouse),
        target_table=FirstOfKey,
        deduplicate=Dedupe(keys=("id",), within=timedelta(minutes=1), event_time_column="at"),
    )
    topic.write([event(0, 1, "a"), event(1, 1, "b"), event(2, 2, "c")], partition=0)
    drain(stream)
    topic.write([event(30, 1, "d"), event(2, 2, "c"), event(3, 3, "e")], partition=0)
    drain(stream)
    rows = rows_in(warehouse, "SELECT id, word, _offset FROM shop.seen_once ORDER BY id")
    assert rows == [(1, "a", 0), (2, "c", 2), (3, "e", 5)]


@pytest.mark.deep
def test_an_older_row_that_comes_again_behind_a_newer_one_is_left_out(topic: Topic, warehouse: Path) -> None:
    stream = topic.stream(
        duckdb_at(warehouse),
        target_table=("shop", "older"),
        create_table=True,
        deduplicate=Dedupe(keys=("id",), within=10_000, event_time_column="at"),
        watermark=Watermark(lateness_ms=60_000),
    )
    topic.write([event(0, 1, "a"), event(30, 1, "b"), event(60, 1, "c")], partition=0)
    drain(stream)
    # Each of those that were let through counts, and so does what is let through between them.
    topic.write([event(0, 1, "a"), event(15, 1, "d"), event(100, 2, "x"), event(30, 1, "b")], partition=0)
    drain(stream)
    # The watermark is at 40, so that those of 0 and 15 are forgotten.
    topic.write([event(35, 1, "b"), event(15, 1, "d"), event(52, 1, "c")], partition=0)
    drain(stream)
    rows = rows_in(warehouse, "SELECT word, count(*) FROM shop.older GROUP BY word ORDER BY word")
    assert rows == [("a", 1), ("b", 1), ("c", 1), ("d", 2), ("x", 1)]


@pytest.mark.deep
def test_rows_without_a_time_that_calendars_have_are_bad_rows(topic: Topic, warehouse: Path) -> None:
    given = {"target_table": ("shop", "timely"), "create_table": True}
    dedupe = Dedupe(keys=("id",), within=timedelta(minutes=1), event_time_column="at")
    strange = "12026-03-01T00:00:00Z"
    topic.write(
        [
            event(1, 1, "a"),
            {**event(0, 2, "b"), "at": None},
            {"id": 3},
            {**event(0, 4, "d"), "at": strange},
            event(2, 5, "e"),
        ],
        partition=0,
    )
    with pytest.raises(BadRowsError, match="at: has no event time"):
        drain(topic.stream(duckdb_at(warehouse), deduplicate=dedupe, **given))
    drain(topic.stream(duckdb_at(warehouse), deduplicate=dedupe, transform_on_error="dlq", **given))
    assert rows_in(warehouse, "SELECT id FROM shop.timely ORDER BY id") == [(1,), (5,)]
    query = "SELECT row_json::JSON->>'id' AS id, column_name, reason FROM ematix_flow.rejects ORDER BY id"
    assert rows_in(warehouse, query) == [
        ("2", "at", "has no event time"),
        ("3", "at", "has no event time"),
        ("4", "at", f"{strange} is not in the years 1 to 9999"),
    ]


@pytest.mark.deep
def test_a_row_behind_the_horizon_is_not_taken_for_one_that_came_before(topic: Topic, warehouse: Path) -> None:
    stream = topic.stream(
        duckdb_at(warehouse),
        target_table=("shop", "again"),
        create_table=True,
        deduplicate=Dedupe(keys=("id",), within=10_000, event_time_column="at"),
    )
    topic.write([event(0, 1, "a"), event(10, 1, "b"), event(11, 1, "c"), event(40, 2, "x")], partition=0)
    drain(stream)
    topic.write([event(20, 1, "d"), event(50, 1, "e")], partition=0)
    drain(stream)
    rows = rows_in(warehouse, "SELECT word FROM shop.again ORDER BY word")
    # At 20 the row of 11 is not remembered any more: a row is loaded twice rather than lost.
    assert rows == [("a",), ("c",), ("d",), ("e",), ("x",)]


@pytest.mark.deep
def test_a_key_is_forgotten_by_a_time_that_has_grown(topic: Topic, warehouse: Path) -> None:
    def stream(seconds: int) -> Stream:
        dedupe = Dedupe(keys=("id",), within=timedelta(seconds=seconds), event_time_column="at")
        return topic.stream(
            duckdb_at(warehouse), target_table=("shop", "longer"), create_table=True, deduplicate=dedupe
        )

    topic.write([event(1, 1, "a")], partition=0)
    drain(stream(5))
    for second, number in ((8, 2), (40, 3)):
        topic.write([event(second, number, "b")], partition=0)
        drain(stream(20))
    (contents,) = state_contents(stream(20), StreamOptions(), 10, {})
    assert contents.oldest is not None
    assert [row.columns["id"] for row in contents.oldest.rows] == ["3"]


@pytest.mark.deep
def test_a_key_with_one_time_is_one_entry_and_nothing_is_removed_that_was_not_there(
    topic: Topic, warehouse: Path, spark: SparkSession
) -> None:
    stream = topic.stream(
        duckdb_at(warehouse),
        target_table=("shop", "entries"),
        create_table=True,
        deduplicate=Dedupe(keys=("id",), within=10_000, event_time_column="at"),
    )
    for first in (0, 100, 200):
        topic.write([event(first + number, number + first, "a") for number in range(3)], partition=0)
        drain(stream)
    (target,) = stream.targets
    reader = spark.read.format("statestore").option("path", f"{state_folder(stream, target, stream.name)}/query")
    reader = reader.option("readChangeFeed", value=True).option("changeStartBatchId", 0)
    changes = {
        name: Counter(row[0] for row in reader.option("stateVarName", name).load().select("change_type").collect())
        for name in ("seen", "earlier")
    }
    assert changes == {"seen": {"update": 9, "delete": 6}, "earlier": {}}


def test_what_it_needs_is_declared() -> None:
    with pytest.raises(DeclareError, match="within"):
        Dedupe(keys=("id",), within=0)

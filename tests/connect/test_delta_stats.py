from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ematix_flow.connect.delta.statistics import stats_of


def stats(*tables: dict[str, list[Any]], schema: pa.Schema | None = None) -> dict[str, Any]:
    """Return what is told of a file that has each of the tables as a group of rows."""
    with_schema = [pa.table(one, schema=schema) for one in tables]
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, with_schema[0].schema) as writer:
        for one in with_schema:
            writer.write_table(one)
    sink.seek(0)
    return dict(json.loads(stats_of(sink)))


def test_least_greatest_and_nulls_go_over_all_groups() -> None:
    statistics = stats({"id": [3, 1], "word": ["b", None]}, {"id": [7, 2], "word": ["a", "ä"]})
    assert statistics == {
        "numRecords": 4,
        "minValues": {"id": 1, "word": "a"},
        "maxValues": {"id": 7, "word": "ä"},
        "nullCount": {"id": 0, "word": 1},
    }


def test_instants_are_told_in_milliseconds_that_hold_them() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    plain = datetime(2026, 1, 2, 3, 4, 5, 999999)  # noqa: DTZ001 - a time without a zone is meant
    statistics = stats({"at": [at], "plain": [plain], "day": [date(2026, 1, 2)]})
    assert statistics["minValues"] == {
        "at": "2026-01-02T03:04:05.678Z",
        "plain": "2026-01-02T03:04:05.999",
        "day": "2026-01-02",
    }
    assert statistics["maxValues"] == {
        "at": "2026-01-02T03:04:05.679Z",
        "plain": "2026-01-02T03:04:06.000",
        "day": "2026-01-02",
    }


def test_what_cannot_be_written_exactly_is_left_out() -> None:
    long = "x" * 33
    statistics = stats({"long": [long], "share": [float("nan")], "ok": [True], "none": pa.array([None], pa.int64())})
    assert statistics["minValues"] == statistics["maxValues"] == {}
    assert statistics["nullCount"]["none"] == 1


def test_instants_at_the_ends_of_the_calendar_are_left_out() -> None:
    last = pa.array([datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)], pa.timestamp("us", tz="UTC"))
    beyond = pa.array([2**62], pa.int64()).cast(pa.timestamp("us"))
    statistics = stats({"last": last, "beyond": beyond})  # type: ignore[dict-item]
    assert statistics["minValues"] == {"last": "9999-12-31T23:59:59.999Z"}
    assert statistics["maxValues"] == {}


def test_an_empty_group_does_not_hide_the_others() -> None:
    schema = pa.schema({"id": pa.int64()})
    statistics = stats({"id": [None, None]}, {"id": [5]}, schema=schema)
    assert statistics["nullCount"] == {"id": 2}
    assert statistics["minValues"] in ({}, {"id": 5})

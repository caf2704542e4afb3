"""Watermarks of sources whose values are no plain ones: with offsets, nanoseconds, or of another type than promised."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.declare.table.types import BigInt, Double, Text, Timestamp, TimestampTZ
from ematix_flow.errors import PlanError, RunError
from tests.engine.watermarks import Arrivals

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

APPEND: dict[str, Any] = {"mode": "append"}
LOOKBACK: dict[str, Any] = {"mode": "merge", "lookback": timedelta(hours=1)}

in_and_out = pytest.mark.parametrize("inside", [False, True])


@in_and_out
def test_times_with_an_offset_are_looked_back_from_in_their_own(tmp_path: Path, inside: bool) -> None:
    flow = Arrivals(tmp_path, "sqlite", "TEXT", TimestampTZ(), LOOKBACK, inside)
    flow.add(["2026-01-01T22:00:00-05:00"])
    flow.run()
    flow.add(["2026-01-01T23:00:00-05:00", "2026-01-01T21:30:00-05:00", "2026-01-01T20:30:00-05:00"])
    result = flow.run()
    assert (result["rows_inserted"], result["rows_unchanged"]) == (2, 1)
    assert flow.ids() == [1, 2, 3], "the last one is older than the look-back"


@pytest.mark.parametrize(("native", "value"), [("TEXT", "v0001"), ("TIMESTAMP", 1767225600)])
def test_a_look_back_from_no_time_is_refused_before_the_first_load(tmp_path: Path, native: str, value: object) -> None:
    flow = Arrivals(tmp_path, "sqlite", native, Text(), LOOKBACK)
    flow.add([value])
    with pytest.raises(PlanError, match=f"lookback= cannot be subtracted from '{value}'"):
        flow.run()


@in_and_out
def test_text_of_duckdb_is_looked_back_from_as_it_is_written(tmp_path: Path, inside: bool) -> None:
    flow = Arrivals(tmp_path, "duckdb", "VARCHAR", Text(), LOOKBACK, inside)
    flow.add(["2026-01-01T22:00:00Z"])
    flow.run()
    flow.add(["2026-01-01T21:30:00Z", "2026-01-01T20:30:00Z"])
    assert flow.run()["rows_inserted"] == 1


@in_and_out
def test_nanoseconds_are_loaded_once(tmp_path: Path, inside: bool) -> None:
    flow = Arrivals(tmp_path, "duckdb", "TIMESTAMP_NS", Timestamp(), APPEND, inside)
    for nanosecond in ("000", "001", "789", "790", "999"):
        flow.add([f"2026-01-01 00:00:01.123456{nanosecond}"])
        assert flow.run()["rows_inserted"] == 1, nanosecond
    assert flow.run()["rows_inserted"] == 0


def test_nanoseconds_that_an_earlier_version_left_out_are_loaded(tmp_path: Path) -> None:
    flow = Arrivals(tmp_path, "duckdb", "TIMESTAMP_NS", Timestamp(), APPEND)
    flow.add(["2026-01-01 00:00:01.123456"])
    flow.run()
    # It remembered the highest value that it saw, and loaded what is up to its microsecond.
    flow.set_watermark("2026-01-01 00:00:01.123456789")
    flow.add(["2026-01-01 00:00:01.123456789"])
    assert flow.run()["rows_inserted"] == 1
    assert flow.run()["rows_inserted"] == 0


def test_a_look_back_from_nanoseconds_is_exact(tmp_path: Path) -> None:
    back = {"mode": "merge", "lookback": timedelta(microseconds=1)}
    flow = Arrivals(tmp_path, "duckdb", "TIMESTAMP_NS", Timestamp(), back)
    flow.add(["2026-01-01 00:00:01.000000700"])
    flow.run()
    flow.add(["2026-01-01 00:00:00.999999701", "2026-01-01 00:00:00.999999700"])
    assert flow.run()["rows_inserted"] == 1


@pytest.mark.parametrize("native", ["TIMESTAMP", "REAL", "NUMERIC", "INT", "DECIMAL(20,10)"])
@in_and_out
def test_a_double_of_sqlite_is_one_whatever_its_column_promises(tmp_path: Path, native: str, inside: bool) -> None:
    flow = Arrivals(tmp_path, "sqlite", native, Double(), APPEND, inside)
    for value in (1767225601.123456, 1767225601.123458, 1767225602.123454, 1767225603.0, 2.0**80):
        flow.add([value])
        assert flow.run()["rows_inserted"] == 1, value
    assert flow.run()["rows_inserted"] == 0


def test_text_in_a_column_of_numbers_is_refused(tmp_path: Path) -> None:
    flow = Arrivals(tmp_path, "sqlite", "INT", BigInt(), APPEND)
    flow.add([1, "1 OR 1 = 1"])
    with pytest.raises(RunError, match="the highest 'w' is '1 OR 1 = 1', which is no value of INT"):
        flow.run()

"""Random arrivals against a plain model: every row above the watermark is loaded once, and no other one."""

from __future__ import annotations

import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ematix_flow.declare.table.types import Double, Text
from tests.depth import quick_or_deep
from tests.engine.watermarks import Arrivals

pytestmark = pytest.mark.slow

BASE = datetime(2026, 3, 29, 1, 30)  # noqa: DTZ001 - in whatever offset the texts have

doubles = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(0, 10**7).map(lambda microseconds: 1767225601 + microseconds / 10**6),
)
loads = st.lists(st.lists(doubles, max_size=4), min_size=2, max_size=5)
time_offsets = st.integers(-7200 * 1000, 7200 * 1000).map(lambda part: timedelta(milliseconds=part))


def above(values: dict[int, Any], bound: Any) -> set[int]:
    """Return the rows that come after a bound."""
    return {key for key, value in values.items() if bound is None or value > bound}


@pytest.mark.parametrize(("kind", "native"), [("sqlite", "REAL"), ("duckdb", "DOUBLE")])
@settings(max_examples=quick_or_deep(12, 100))
@given(batches=loads, inside=st.booleans())
def test_doubles_are_loaded_once(kind: str, native: str, batches: list[list[float]], inside: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        flow = Arrivals(Path(folder), kind, native, Double(), {"mode": "append"}, inside)
        there: dict[int, float] = {}
        loaded: set[int] = set()
        watermark: float | None = None
        for batch in batches:
            flow.add(batch)
            there |= dict(enumerate(batch, len(there) + 1))
            new = above(there, watermark)
            assert flow.run()["rows_inserted"] == len(new)
            loaded |= new
            watermark = max((there[key] for key in new), default=watermark)
            assert flow.ids() == sorted(loaded)


@settings(max_examples=quick_or_deep(20, 200))
@given(
    batches=st.lists(st.lists(time_offsets, max_size=4), min_size=2, max_size=5),
    offset=st.sampled_from(["", "Z", "-05:00", "+05:30", " +0200"]),
    between=st.sampled_from(" T"),
    digits=st.sampled_from([3, 6, 9]),
    back=st.timedeltas(timedelta(milliseconds=1), timedelta(hours=2)),
)
def test_a_look_back_brings_what_came_late(
    batches: list[list[timedelta]], offset: str, between: str, digits: int, back: timedelta
) -> None:
    def spelled(at: datetime) -> str:
        return f"{at.strftime(f'%Y-%m-%d{between}%H:%M:%S')}.{at.microsecond:06}000"[: 20 + digits] + offset

    with tempfile.TemporaryDirectory() as folder:
        flow = Arrivals(Path(folder), "sqlite", "TEXT", Text(), {"mode": "merge", "lookback": back})
        there: dict[int, datetime] = {}
        loaded: set[int] = set()
        watermark: datetime | None = None
        for batch in batches:
            arrived = [BASE + part for part in batch]
            flow.add([spelled(at) for at in arrived])
            there |= dict(enumerate(arrived, len(there) + 1))
            read = above(there, None if watermark is None else watermark - back)
            assert flow.run()["rows_inserted"] == len(read - loaded)
            loaded |= read
            watermark = max((there[key] for key in read), default=watermark)
            assert flow.ids() == sorted(loaded)

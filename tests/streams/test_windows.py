"""Windows over topics: what their tables hold after any split of the same events into runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow import Aggregation, Window
from ematix_flow.declare.spark_settings import ENGINE_VARIABLE
from tests.streams.feeds import drain, duckdb_at, rows_in

if TYPE_CHECKING:
    from pathlib import Path

    from tests.streams.feeds import Topic

pytestmark = [
    pytest.mark.service,
    pytest.mark.spark,
    pytest.mark.xdist_group("streams"),
    pytest.mark.usefixtures("spark", "_stateful"),
]

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def _stateful(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Leave the engine to the product, and keep state below the folder of the test."""
    monkeypatch.delenv(ENGINE_VARIABLE)
    monkeypatch.setenv("EMATIX_FLOW_CHECKPOINT_ROOT", str(tmp_path / "checkpoints"))


def at(seconds: float) -> str:
    """Give an instant as messages write it."""
    return (BEGIN + timedelta(seconds=seconds)).isoformat()


def events(*given: tuple[float, Any, float]) -> list[dict[str, Any]]:
    """Give messages of (seconds, user, amount)."""
    return [{"at": at(seconds), "user": user, "amount": amount} for seconds, user, amount in given]


def tumbling(**more: Any) -> Window:
    """Give windows of ten seconds by user."""
    aggregations = (
        Aggregation(agg="count", as_="n"),
        Aggregation(agg="sum", column="amount", as_="total"),
        Aggregation(agg="avg", column="amount", as_="mean"),
        Aggregation(agg="first", column="amount", as_="first"),
        Aggregation(agg="last", column="amount", as_="last"),
    )
    given = {"kind": "tumbling", "duration_ms": 10_000, "event_time_column": "at", "group_by": ("user",)}
    return Window(**{"aggregations": aggregations, **given, **more})


def closed(warehouse: Path, columns: str = "user, n, total, mean, first, last") -> list[tuple[Any, ...]]:
    """Give the rows of the table of windows, with the seconds at which they begin."""
    sql = f"SELECT epoch(window_start) - epoch(TIMESTAMPTZ '2026-03-01 00:00:00Z') AS s, {columns} FROM shop.w"
    return sorted(rows_in(warehouse, sql), key=repr)


def test_windows_are_loaded_when_time_has_passed_their_end(topic: Topic, warehouse: Path) -> None:
    stream = topic.stream(duckdb_at(warehouse), target_table=("shop", "w"), create_table=True, window=tumbling())
    topic.write(events((1, "a", 5), (3, "b", 1), (2, "a", 7), (12, "a", 1)))
    drain(stream)
    assert closed(warehouse) == [(0.0, "a", 2, 12, 6.0, 5, 7), (0.0, "b", 1, 1, 1.0, 1, 1)]
    topic.write(events((15, "a", 2), (21, "b", 3)))
    drain(stream)
    assert closed(warehouse)[2:] == [(10.0, "a", 2, 3, 1.5, 1, 2)]

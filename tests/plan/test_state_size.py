"""How large a state may become, from the declaration alone, and from where on that is warned of."""

from __future__ import annotations

from typing import Any

import pytest

from ematix_flow import Aggregation, Dedupe, StateStore, Watermark, Window
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.errors import PlanError
from ematix_flow.plan.stream.state_size import VARIABLE, measured_warning, projection, readable_size, size_warning

COUNT = Aggregation(agg="count", as_="n")
EXACT = Aggregation(agg="count_distinct", column="u", as_="u", mode="exact", max_distinct_values_per_group=1_000)
TUMBLING: dict[str, Any] = {"kind": "tumbling", "duration_ms": 60_000, "group_by": ("page",)}
GAPS = {"gap_ms": 1_000, "max_session_duration_ms": 10_000}
SESSION: dict[str, Any] = {"kind": "session", "group_by": ("page",), **GAPS}
MEMORY = {"state_store": StateStore(kind="in_memory")}


def declared(window: Window | None, **more: Any) -> Any:
    """Declare a stream of windows."""
    given = {"name": "s", "source": "events", "source_query": "t", "target": "db", "target_table": ("a", "b")}
    return stream_from_keywords({**given, "window": window, **more}, None)


def windowed(*aggregations: Aggregation, **more: Any) -> Window:
    """Return a window of a thousand groups, unless more is said."""
    return Window(aggregations=aggregations, **{"max_groups_per_window": 1_000, **TUMBLING, **more})


def bytes_of(window: Window, **more: Any) -> int:
    """Return the size that is projected for windows."""
    projected = projection(declared(window, **more))
    assert projected is not None
    return projected.bytes


def test_it_grows_with_groups_windows_and_aggregations() -> None:
    one = bytes_of(windowed(COUNT))
    assert one == 1_000 * 2 * (64 + 2 * 24 + 24)
    assert bytes_of(windowed(COUNT, max_groups_per_window=5_000)) == 5 * one
    assert bytes_of(windowed(COUNT, group_by=())) < one / 500
    assert bytes_of(windowed(COUNT, kind="hopping", hop_ms=1_000)) == 61 * one / 2
    assert bytes_of(windowed(COUNT), watermark=Watermark(lateness_ms=120_000)) == 2 * one
    assert bytes_of(windowed(COUNT, late_data="reopen", allowed_lateness_ms=120_000)) == 2 * one
    assert bytes_of(windowed(COUNT, EXACT)) > 100 * one


@pytest.mark.filterwarnings("ignore:stream .* declares a state store in memory")
def test_a_session_has_as_many_moments_as_gaps_fit_into_it() -> None:
    session = Window(aggregations=(COUNT,), max_groups_per_window=1_000, **SESSION)
    assert bytes_of(session, **MEMORY) == 1_000 * 11 * (64 + 2 * 24 + 24)


def test_where_only_messages_decide_nothing_is_projected() -> None:
    assert projection(declared(windowed(COUNT, late_data="dlq"))) is None
    assert projection(declared(None, deduplicate=Dedupe(keys=("id",), within=1))) is None
    assert size_warning(declared(None)) == ""


def test_more_than_a_gibibyte_is_warned_of_unless_another_limit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = declared(windowed(COUNT)), declared(windowed(EXACT, max_groups_per_window=100_000))
    assert size_warning(small) == ""
    assert "the state of stream 's' may grow to 4.5 GiB: 100,000 groups" in size_warning(large)
    monkeypatch.setenv(VARIABLE, "1000")
    assert "may grow to" in size_warning(small)
    monkeypatch.setenv(VARIABLE, "0")
    assert size_warning(large) == ""
    monkeypatch.setenv(VARIABLE, "much")
    with pytest.raises(PlanError, match=f"{VARIABLE} is 'much'"):
        size_warning(small)


def test_sizes_are_written_for_people() -> None:
    assert [readable_size(size) for size in (0, 1023, 1536, 1 << 30)] == ["0 bytes", "1023 bytes", "1.5 KiB", "1.0 GiB"]
    assert measured_warning("s", 3 << 20, 1 << 20).startswith("the state of stream 's' has grown to 3.0 MiB;")

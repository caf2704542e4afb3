"""Which changes of a declaration a state survives, which need it built anew, and which are beyond that."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from ematix_flow import Aggregation, Dedupe, Window
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.engine.stream.state.manifest import MOST_ENTRIES, TimeIndex
from ematix_flow.plan.stream.state import LAYOUT, RETAINED_FOR, changes_of_state, last_end, remedy, state_definition

COUNT = Aggregation(agg="count", as_="n")
TOTAL = Aggregation(agg="sum", column="amount", as_="total")
DISTINCT = Aggregation(agg="count_distinct", column="user", as_="users")
FIXED = Window(kind="tumbling", duration_ms=10, event_time_column="at", group_by=("user",), aggregations=(COUNT, TOTAL))
REOPENED = replace(FIXED, late_data="reopen", allowed_lateness_ms=50)
SESSION = Window(
    kind="session",
    gap_ms=10,
    max_session_duration_ms=100,
    event_time_column="at",
    group_by=("user",),
    aggregations=(COUNT,),
)
DEDUPE = Dedupe(keys=("user",), within=timedelta(seconds=1))


def definition(**keywords: Any) -> dict[str, object]:
    """Return what of a stream with a window or a deduplication is in its state."""
    feed = connection_from_fields("feed", {"kind": "kafka", "bootstrap_servers": "nowhere"})
    connection = connection_from_fields("place", {"kind": "duckdb", "path": "nowhere"})
    given = {"name": "s", "source": feed, "source_query": "t", "target": connection, "target_table": ("main", "w")}
    store = {"state_store": {"kind": "postgres", "url": "x"}} if keywords.get("window") == SESSION else {}
    return state_definition(stream_from_keywords(given | keywords | store, None))


def names(before: Any, now: Any) -> list[str]:
    """Return the names of what has changed between two windows."""
    old, new = (_plain(one) for one in (before, now))
    return [change.name for change in changes_of_state(old, new)]


def _plain(window: Window) -> dict[str, object]:
    from types import SimpleNamespace

    return state_definition(SimpleNamespace(window=window, join=None, deduplicate=None))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "change", "changed"),
    [
        (FIXED, {"max_groups_per_window": 5}, []),
        (FIXED, {"window_start_column": "von"}, []),
        (FIXED, {"aggregations": (replace(COUNT, as_="rows"), TOTAL)}, []),
        (FIXED, {"aggregations": (COUNT,)}, []),
        (FIXED, {"aggregations": (TOTAL,)}, ["aggregations"]),
        (FIXED, {"aggregations": (COUNT, TOTAL, replace(TOTAL, agg="max", as_="most"))}, ["aggregations"]),
        (FIXED, {"duration_ms": 20}, ["duration_ms"]),
        (FIXED, {"hop_ms": 10}, []),
        (replace(FIXED, aggregations=(DISTINCT,)), {"aggregations": (replace(DISTINCT, mode="approximate"),)}, []),
        (FIXED, {"kind": "hopping", "hop_ms": 5}, ["window", "hop_ms"]),
        (FIXED, {"group_by": ()}, ["group_by"]),
        (FIXED, {"late_data": "dlq"}, ["rows are kept for late_data"]),
        (replace(FIXED, late_data="dlq"), {"aggregations": (TOTAL,), "group_by": ("shop",)}, []),
        (replace(SESSION, late_data="dlq"), {"aggregations": (TOTAL,), "group_by": ("shop",)}, ["group_by"]),
        (REOPENED, {"allowed_lateness_ms": 40}, []),
        (REOPENED, {"allowed_lateness_ms": 60}, ["allowed_lateness_ms"]),
        (FIXED, {"late_data": "reopen", "allowed_lateness_ms": 50}, ["windows are whole for late_data"]),
        (replace(SESSION, late_data="reopen", allowed_lateness_ms=50), {"allowed_lateness_ms": 60}, []),
        (SESSION, {"gap_ms": 20, "max_session_duration_ms": 200}, []),
        (SESSION, {"gap_ms": 5}, ["gap_ms"]),
    ],
)
def test_changes_that_a_state_survives_are_not_refused(
    before: Window, change: dict[str, Any], changed: list[str]
) -> None:
    assert names(before, replace(before, **change)) == changed


def test_the_remedy_is_a_redeployment_unless_nothing_can_be_compared() -> None:
    hint = remedy("s", changes_of_state(_plain(FIXED), _plain(replace(FIXED, duration_ms=20))))
    assert "flow stream redeploy s" in hint
    other_time = replace(FIXED, duration_ms=20, event_time_column="when")
    beyond = remedy("s", changes_of_state(_plain(FIXED), _plain(other_time)))
    assert beyond.startswith("with another event_time_column")
    assert "redeploy" not in beyond
    operator = changes_of_state(_plain(FIXED), definition(deduplicate=DEDUPE))
    assert "redeploy" not in remedy("s", operator)


def test_what_an_earlier_version_wrote_in_another_way_is_refused() -> None:
    now = _plain(SESSION)
    changes = changes_of_state({name: value for name, value in now.items() if name != LAYOUT}, now)
    assert [change.name for change in changes] == [LAYOUT]
    assert "redeploy" not in remedy("s", changes)
    assert not changes_of_state(now, now)


def test_how_long_windows_were_remembered_an_earlier_version_has_not_written_down() -> None:
    now = _plain(REOPENED)
    assert not changes_of_state({name: value for name, value in now.items() if name != RETAINED_FOR}, now)


def test_another_kind_of_window_can_be_rebuilt_though_its_state_is_written_in_another_way() -> None:
    for before, now in ((FIXED, SESSION), (SESSION, FIXED)):
        changes = changes_of_state(_plain(before), _plain(now))
        assert "window" in [change.name for change in changes]
        assert "flow stream redeploy s" in remedy("s", changes)


@pytest.mark.parametrize(
    ("window", "watermark", "end"),
    [
        (FIXED, 35, 30),
        (FIXED, 30, 30),
        (FIXED, -35, -40),
        (replace(FIXED, kind="hopping", duration_ms=25, hop_ms=10), 34, 25),
        (replace(FIXED, kind="hopping", duration_ms=25, hop_ms=10), 35, 35),
    ],
)
def test_windows_have_given_out_what_is_before_the_end_of_the_last_one(
    window: Window, watermark: int, end: int
) -> None:
    assert last_end(_plain(window), watermark * 1_000) == end * 1_000


def test_time_index_say_where_events_of_a_time_begin() -> None:
    time_index = TimeIndex()
    for number in range(10):
        time_index = time_index.after(number * 10 + 5, {"at": number}, number * 10 - 30)
    assert time_index.position(70) == {"at": 7}
    assert time_index.position(66) == {"at": 7}
    assert time_index.position(200) is None
    # Earlier ranges are forgotten, and that is known.
    assert time_index.since == 60
    assert time_index.position(59) is None
    assert time_index.position(60) == {"at": 6}
    assert TimeIndex().after(None, {"at": 1}, None).position(None) is None


def test_very_many_time_index_become_fewer_and_lose_no_event() -> None:
    time_index = TimeIndex()
    for number in range(300):
        time_index = time_index.after(number, {"at": number}, None)
    assert len(time_index.ranges) <= MOST_ENTRIES
    for time in (0, 17, 150, 299):
        position = time_index.position(time)
        assert position is not None
        assert position["at"] <= time
    assert time_index.position(None) == {"at": 0}

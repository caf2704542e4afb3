"""Declarations of streams with state that are warned of before anything is taken up."""

from __future__ import annotations

from ematix_flow import Dedupe
from ematix_flow.plan.stream.state_warnings import state_warnings
from tests.plan.test_state_size import COUNT, declared, windowed

FIRST = Dedupe(keys=("id",), within=1_000)


def test_late_rows_that_no_replay_can_count_are_warned_of() -> None:
    (text,) = state_warnings(declared(windowed(COUNT, late_data="dlq"), deduplicate=FIRST))
    assert "behind deduplicate= flow dlq replay cannot count them" in text
    assert state_warnings(declared(windowed(COUNT, late_data="dlq"))) == ()
    assert state_warnings(declared(windowed(COUNT), deduplicate=FIRST)) == ()
    assert state_warnings(declared(None, deduplicate=FIRST)) == ()


def test_a_large_state_is_warned_of_too() -> None:
    (text,) = state_warnings(declared(windowed(COUNT, max_groups_per_window=10**9)))
    assert "may grow to" in text

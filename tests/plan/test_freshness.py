from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ematix_flow.plan.schedule.freshness import BREACHED, HEALTHY, WARNING, Freshness, lag_of, state_of

NOW = datetime(2026, 1, 2, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("minutes", "state"),
    [(None, BREACHED), (-5, HEALTHY), (0, HEALTHY), (47, HEALTHY), (48, WARNING), (60, WARNING), (61, BREACHED)],
)
def test_the_state_follows_from_the_lag(minutes: int | None, state: str) -> None:
    last = None if minutes is None else NOW - timedelta(minutes=minutes)
    assert state_of(last, NOW, HOUR) == state


@pytest.mark.slow
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 10**6))
def test_time_alone_never_makes_anything_fresher(lag: int, later: int, sla: int) -> None:
    order = [HEALTHY, WARNING, BREACHED]
    last, limit = NOW - timedelta(seconds=lag), timedelta(seconds=sla)
    assert order.index(state_of(last, NOW + timedelta(seconds=later), limit)) >= order.index(state_of(last, NOW, limit))


def test_it_is_told_in_seconds() -> None:
    fields = Freshness("p", "", BREACHED, HOUR, lag_of(NOW - 2 * HOUR, NOW), NOW - 2 * HOUR, "last success").to_dict()
    assert (fields["sla_seconds"], fields["lag_seconds"], fields["state"]) == (3600, 7200, "breached")

"""Times of events as instants."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ematix_flow.plan.stream.state import instant_of, micros_of

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


@pytest.mark.parametrize("instant", [FIRST, datetime(1969, 7, 20, tzinfo=UTC), LAST])
def test_every_instant_comes_back(instant: datetime) -> None:
    assert instant_of(micros_of(instant)) == instant


def test_what_no_calendar_has_is_the_nearest_instant() -> None:
    assert instant_of(-(10**18)) == FIRST
    assert instant_of(10**18) == LAST

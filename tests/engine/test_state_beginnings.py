"""Where the messages of a time begin, by what a state has read and by what its source says."""

from __future__ import annotations

from typing import Any

import pytest

from ematix_flow.connect.base.stream_source import EARLIEST
from ematix_flow.engine.stream.state.manifest import TimeIndex
from ematix_flow.engine.stream.state.replay import beginning_of
from ematix_flow.plan.stream.state import instant_of


class Line:
    """A source whose messages have been sent at their numbers, in microseconds; the oldest one is given."""

    def __init__(self, oldest: int) -> None:
        self.oldest = oldest

    def start(self, where: str) -> dict[str, int]:
        times = {instant_of(number).isoformat(): number for number in range(100)}
        return {"at": self.oldest if where == EARLIEST else max(self.oldest, times[where])}

    def distance(self, begin: dict[str, int], end: dict[str, int]) -> int:
        return max(0, end["at"] - begin["at"])

    def ahead(self, *_: Any) -> None:
        """Find every message that is requested."""

    def gone_before(self, position: dict[str, int]) -> str | None:
        return "gone" if position["at"] == self.oldest > 0 else None


READ = TimeIndex(None, [(40, {"at": 30}), (60, {"at": 50})])
"""A state that began with message 30."""


@pytest.mark.parametrize(
    ("oldest", "time", "unread", "expected"),
    [
        (0, 20, True, (20, None)),
        (0, 20, False, (30, None)),
        (0, 35, True, (30, None)),
        (0, 55, True, (50, None)),
        (25, 20, True, (25, "gone")),
        (30, 20, True, (30, None)),
    ],
)
def test_messages_before_those_of_a_state_are_found_where_they_count(
    oldest: int, time: int, expected: tuple[int, str | None], *, unread: bool
) -> None:
    source: Any = Line(oldest)
    result = beginning_of(source, time, {"at": 70}, READ, unread=unread)
    assert (result.position["at"], result.gone) == expected

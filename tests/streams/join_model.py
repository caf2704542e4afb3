"""What a join of two streams has to give, in plain Python: every row is compared with every other one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ematix_flow import Join

    Event = dict[str, Any]
    """`side`, `k`, `n` and `at`, the time in milliseconds."""

LEFT, RIGHT = "left", "right"


@dataclass
class Expected:
    """What a target gets."""

    pairs: Counter[tuple[Any, Any]] = field(default_factory=Counter)
    """The numbers of both rows; None for the side that has none."""
    late: int = 0
    """How many rows came when nobody waited for them."""
    behind: int = 0
    """How many rows came when no other one in time could be theirs, and met one that still waited or came with them."""


@dataclass
class _Waiting:
    row: Event
    has_partner: bool


@dataclass
class _Joining:
    join: Join
    result: Expected = field(default_factory=Expected)
    waiting: list[_Waiting] = field(default_factory=list)

    def take(self, events: Sequence[Event], watermark: float) -> None:
        """Pair rows that are in time with each other and with those that wait, and then the others with all of these."""
        for event in events:
            if self._last(event) >= watermark:
                self.waiting.append(_Waiting(event, self._pair(event)))
        for event in events:
            if self._last(event) < watermark:
                met = self._pair(event)
                self.result.behind += met
                self.result.late += not met

    def pass_time(self, watermark: float) -> None:
        """Give out rows without a partner that none can come for any more."""
        for one in self.waiting:
            if self._last(one.row) < watermark and not one.has_partner:
                self._give_alone(one.row)
        self.waiting = [one for one in self.waiting if self._last(one.row) >= watermark]

    def _pair(self, event: Event) -> bool:
        partners = [one for one in self.waiting if self._fits(event, one.row)]
        for one in partners:
            one.has_partner = True
            left, right = (event, one.row) if event["side"] == LEFT else (one.row, event)
            self.result.pairs[left["n"], right["n"]] += 1
        return bool(partners)

    def _give_alone(self, row: Event) -> None:
        if self.join.kind in ("full_outer", f"{row['side']}_outer"):
            self.result.pairs[(row["n"], None) if row["side"] == LEFT else (None, row["n"])] += 1

    def _fits(self, event: Event, other: Event) -> bool:
        if event["side"] == other["side"] or event["k"] != other["k"]:
            return False
        delta = other["at"] - event["at"] if event["side"] == LEFT else event["at"] - other["at"]
        return self._bounds[0] <= delta <= self._bounds[1]

    def _last(self, event: Event) -> int:
        """Return the newest time at which a row of the other side can come that fits."""
        least, most = self._bounds
        return (event["at"] + most if event["side"] == LEFT else event["at"] - least) + (
            self.join.allowed_lateness_ms or 0
        )

    @property
    def _bounds(self) -> tuple[int, int]:
        join = self.join
        if join.min_delta_ms is None or join.max_delta_ms is None:
            return -join.time_window_ms, join.time_window_ms
        return join.min_delta_ms, join.max_delta_ms


def expected(chunks: Iterable[Sequence[Event]], join: Join, lateness: int = 0) -> Expected:
    """Return what a join makes of chunks of events of both sides that are taken up one after the other."""
    joining, newest, watermark = _Joining(join), dict[str, int](), float("-inf")
    for chunk in chunks:
        joining.take(chunk, watermark)
        for event in chunk:
            newest[event["side"]] = max(event["at"], newest.get(event["side"], event["at"]))
        watermark = max(watermark, min(newest.values()) - lateness)
        joining.pass_time(watermark)
    return joining.result

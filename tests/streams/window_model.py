"""What windows over a stream have to give, in plain Python: every event is remembered, and everything is worked out anew."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ematix_flow import Aggregation, Window

    Event = dict[str, Any]
    Span = tuple[int, int]

AT = "at"
"""The field of an event with its time in milliseconds; None where it has none."""


@dataclass
class Expected:
    """What a target gets."""

    emissions: list[dict[str, Any]] = field(default_factory=list)
    """Every row that was given out, in its order; bounds in milliseconds."""
    late: list[tuple[Span, Event]] = field(default_factory=list)
    """Events that came after their window was closed, with that window."""

    def appended(self) -> Counter[tuple[Any, ...]]:
        """Return the rows of a target that appends."""
        return Counter(tuple(row.values()) for row in self.emissions)

    def merged(self, keys: Sequence[str]) -> Counter[tuple[Any, ...]]:
        """Return the rows of a target that merges by keys: the last one of each."""
        last = {tuple(row[key] for key in keys): tuple(row.values()) for row in self.emissions}
        return Counter(last.values())


def expected(chunks: Iterable[Sequence[Event]], window: Window, lateness: int = 0) -> Expected:
    """Return what a window makes of chunks of events that are taken up one after the other."""
    result = Expected()
    model = _Sessions(window, result) if window.kind == "session" else _Fixed(window, result)
    watermark = float("-inf")
    for chunk in chunks:
        timed = [event for event in chunk if event[AT] is not None]
        model.take(timed, watermark)
        watermark = max([watermark, *(event[AT] - lateness for event in timed)])
        model.pass_time(watermark)
    return result


class _Fixed:
    """Tumbling and hopping windows."""

    def __init__(self, window: Window, result: Expected) -> None:
        self.window, self.result = window, result
        self.allowed = window.allowed_lateness_ms or 0
        self.inside: dict[Span, list[Event]] = defaultdict(list)
        self.changed: set[Span] = set()

    def take(self, events: Sequence[Event], watermark: float) -> None:
        for event in events:
            for span in self._spans(event[AT]):
                if span[1] + self.allowed <= watermark:
                    self.result.late.append((span, event))
                else:
                    self.inside[span].append(event)
                    self.changed.add(span)
        self.pass_time(watermark)

    def pass_time(self, watermark: float) -> None:
        for span in sorted(self.changed):
            if span[1] <= watermark:
                _emit(self.result, self.window, span, self.inside[span])
                self.changed.discard(span)

    def _spans(self, at: int) -> list[Span]:
        length, hop = self.window.duration_ms, self.window.hop_ms or self.window.duration_ms
        newest = at // hop * hop
        return [(start, start + length) for start in range(newest, at - length, -hop)]


class _Sessions:
    """Sessions, by key."""

    def __init__(self, window: Window, result: Expected) -> None:
        self.window, self.result = window, result
        self.allowed = window.allowed_lateness_ms or 0
        self.open_events: dict[tuple[Any, ...], list[Event]] = defaultdict(list)
        self.emitted: dict[tuple[tuple[Any, ...], int], list[Event]] = {}

    def take(self, events: Sequence[Event], watermark: float) -> None:
        for event in events:
            self.open_events[self._key(event)].append(event)
        new = {id(event) for event in events}
        for key in {self._key(event) for event in events}:
            while late := self._late(key, new, watermark):
                self.open_events[key] = [
                    event for event in self.open_events[key] if all(event is not other for other in late)
                ]
                self.result.late.extend(((e[AT], e[AT] + self._gap), e) for e in late)
        self.pass_time(watermark)

    def pass_time(self, watermark: float) -> None:
        for key in list(self.open_events):
            for session in self._sessions(key):
                span = (session[0][AT], session[-1][AT] + self._gap)
                if span[1] > watermark:
                    continue
                if self.emitted.get((key, span[0])) != session:
                    self.emitted[key, span[0]] = session
                    _emit(self.result, self.window, span, session)
                if span[1] + self.allowed <= watermark:
                    self.open_events[key] = [
                        event for event in self.open_events[key] if all(event is not e for e in session)
                    ]

    @property
    def _gap(self) -> int:
        return self.window.gap_ms or 0

    def _key(self, event: Event) -> tuple[Any, ...]:
        return tuple(event.get(name) for name in self.window.group_by)

    def _late(self, key: tuple[Any, ...], new: set[int], watermark: float) -> list[Event]:
        """Return new events of the first session that is over and may not be changed any more."""
        for session in self._sessions(key):
            late = [event for event in session if id(event) in new]
            if late and session[-1][AT] + self._gap + self.allowed <= watermark:
                return late
        return []

    def _sessions(self, key: tuple[Any, ...]) -> list[list[Event]]:
        sessions: list[list[Event]] = []
        for event in sorted(self.open_events[key], key=lambda one: int(one[AT])):
            if sessions:
                first, last = sessions[-1][0][AT], sessions[-1][-1][AT]
                longest = self.window.max_session_duration_ms or 0
                if event[AT] - last <= self._gap and event[AT] - first <= longest:
                    sessions[-1].append(event)
                    continue
            sessions.append([event])
        return sessions


def _emit(result: Expected, window: Window, span: Span, events: Sequence[Event]) -> None:
    groups: dict[tuple[Any, ...], list[Event]] = defaultdict(list)
    for event in events:
        groups[tuple(event.get(name) for name in window.group_by)].append(event)
    for group, members in groups.items():
        row = {"window_start": span[0], "window_end": span[1], **dict(zip(window.group_by, group, strict=True))}
        result.emissions.append(row | {one.as_: aggregated(one, members) for one in window.aggregations})


def aggregated(aggregation: Aggregation, events: Sequence[Event]) -> Any:
    """Return the value of an aggregation; of several values at the first or last time the least or greatest."""
    if aggregation.agg == "count":
        return len(events)
    name = str(aggregation.column)
    pairs = [(event[AT], event[name]) for event in events if event.get(name) is not None]
    values = [value for _, value in pairs]
    match aggregation.agg:
        case "count_col":
            return len(values)
        case "count_distinct":
            return len(set(values))
        case _ if not values:
            return None
        case "avg":
            return sum(values) / len(values)
        case "first":
            return min(pairs)[1]
        case "last":
            return max(pairs)[1]
        case plain:
            return {"sum": sum, "min": min, "max": max}[plain](values)

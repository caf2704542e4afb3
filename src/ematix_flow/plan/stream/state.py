"""What a stream remembers between batches, as a value: the operator and its times in microseconds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ematix_flow.declare.stream.windows import DLQ, REOPEN, SESSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ematix_flow.declare.stream.stream import Stream
    from ematix_flow.declare.stream.windows import Dedupe, Join, Window

MICROS = 1_000
"""Microseconds of a millisecond."""

LEFT, RIGHT = "left", "right"


@dataclass(frozen=True, slots=True)
class StatePlan:
    """The operator that remembers, with its times; those it does not use are 0."""

    operator: str
    """window, session, join or dedupe."""
    allowed: int = 0
    """How long after its end something can still be changed."""
    gap: int = 0
    longest: int = 0
    least: int = 0
    most: int = 0
    """The bounds of the time of the right row less that of the left one."""
    outer: str = ""
    keeps_rows: bool = False
    """Whether rows themselves are remembered, because one that is late is kept as a reject."""
    lateness: int = 0
    """How far the watermark stays behind the newest event."""
    idleness: int = 60_000_000
    """After which silence a source no longer holds the watermark back."""


def instant_of(micros: int) -> datetime:
    """Return the instant so many microseconds after 1970."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def state_plan(stream: Stream) -> StatePlan | None:
    """Return what a stream remembers; None for one that remembers nothing."""
    declared = stream.watermark
    lateness = ((declared.lateness_ms or 0) if declared is not None else 0) * MICROS
    silence = declared.source_idleness_ms if declared is not None else None
    idleness = (60_000 if silence is None else silence) * MICROS
    if stream.window is not None:
        return _of_window(stream.window, lateness, idleness)
    if stream.join is not None:
        return _of_join(stream.join, lateness, idleness)
    if stream.deduplicate is not None:
        return _of_keys(stream.deduplicate, lateness, idleness)
    return None


def front_plan(stream: Stream) -> StatePlan | None:
    """Return what a stream remembers in front of a window or a join; None where that is nothing."""
    if stream.deduplicate is None or (stream.window is None and stream.join is None):
        return None
    return _of_keys(stream.deduplicate, 0, 0)


def state_definition(stream: Stream) -> dict[str, object]:
    """Return what of a declaration is in the state: with another value of it, what is remembered means something else."""
    definition: dict[str, object] = {}
    if stream.deduplicate is not None:
        dedupe = stream.deduplicate
        definition |= {"deduplicate": list(dedupe.keys), "event_time_column": dedupe.event_time_column}
    if stream.window is not None:
        window = stream.window
        values = [[one.agg, one.column, one.mode] for one in window.aggregations]
        definition |= {
            "window": window.kind,
            "duration_ms": window.duration_ms,
            "hop_ms": window.hop_ms,
            "gap_ms": window.gap_ms,
            "max_session_duration_ms": window.max_session_duration_ms,
            "event_time_column": window.event_time_column,
            "group_by": list(window.group_by),
            "aggregations": values,
            "rows are kept for late_data": window.late_data == DLQ,
            "windows are whole for late_data": window.late_data == REOPEN,
        }
    if stream.join is not None:
        join = stream.join
        names = ("left_source", "right_source", "left_keys", "right_keys", "event_time_column")
        definition |= {name: _listed(getattr(join, name)) for name in names}
    return definition


def changes_of_state(before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """Return what of a declaration has changed so that the state of before cannot be used, for people."""
    return [
        f"{name} was {before.get(name)!r} and is {now.get(name)!r}"
        for name in dict.fromkeys((*before, *now))
        if before.get(name) != now.get(name)
    ]


MOST_WINDOWS = 10_000
"""Open windows that are written down."""


def open_windows(windows: Iterable[Sequence[int]], watermark: int | None) -> list[list[int]]:
    """Return the windows that a watermark has not closed, the oldest first."""
    still = {(start, end) for start, end in windows if watermark is None or end > watermark}
    return [list(one) for one in sorted(still)[:MOST_WINDOWS]]


def _listed(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _of_keys(dedupe: Dedupe, lateness: int, idleness: int) -> StatePlan:
    longest = dedupe.within * MICROS
    return StatePlan("dedupe", longest=longest, keeps_rows=True, lateness=lateness, idleness=idleness)


def _of_window(window: Window, lateness: int, idleness: int) -> StatePlan:
    return StatePlan(
        "session" if window.kind == SESSION else "window",
        allowed=(window.allowed_lateness_ms or 0) * MICROS,
        gap=(window.gap_ms or 0) * MICROS,
        longest=(window.max_session_duration_ms or 0) * MICROS,
        keeps_rows=window.late_data == DLQ,
        lateness=lateness,
        idleness=idleness,
    )


def _of_join(join: Join, lateness: int, idleness: int) -> StatePlan:
    least = -join.time_window_ms if join.min_delta_ms is None else join.min_delta_ms
    most = join.time_window_ms if join.max_delta_ms is None else join.max_delta_ms
    return StatePlan(
        "join",
        allowed=(join.allowed_lateness_ms or 0) * MICROS,
        least=least * MICROS,
        most=most * MICROS,
        outer=join.kind,
        keeps_rows=True,
        lateness=lateness,
        idleness=idleness,
    )

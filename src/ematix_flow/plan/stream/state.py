"""What a stream remembers between batches, as a value: the operator and its times in microseconds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ematix_flow.declare.stream.windows import DLQ, REOPEN, SESSION, TUMBLING

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
    length: int = 0
    """Of windows of a fixed length."""
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

    @property
    def closes_later(self) -> bool:
        """Return whether what is complete may be given out after the next rows are taken up, because they cannot change it.

        So it is with windows of a fixed length that stay closed. A session that is complete could still be merged with
        rows that are allowed to be late.
        """
        return self.operator == "window" and not self.allowed


def instant_of(micros: int) -> datetime:
    """Return the instant so many microseconds after 1970; of one before the year 1 or after 9999 the nearest that there is."""
    first, last = micros_of(datetime.min.replace(tzinfo=UTC)), micros_of(datetime.max.replace(tzinfo=UTC))
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=min(max(micros, first), last))


def micros_of(instant: datetime) -> int:
    """Return how many microseconds after 1970 an instant is."""
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


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
            RETAINS_ROWS: window.late_data == DLQ,
            "windows are whole for late_data": window.late_data == REOPEN,
        }
        if window.kind != SESSION:
            definition[RETAINED_FOR] = window.allowed_lateness_ms
    if stream.join is not None:
        join = stream.join
        names = ("left_source", "right_source", "left_keys", "right_keys", "event_time_column")
        definition |= {name: _listed(getattr(join, name)) for name in names}
    if _notes_rows(definition):
        definition[LAYOUT] = _LAYOUT
    return definition


def _notes_rows(definition: Mapping[str, object]) -> bool:
    """Return whether a state notes rows or moments of a key one by one, as those of joins and sessions do."""
    return definition.get("window") == SESSION or "left_source" in definition


@dataclass(frozen=True, slots=True)
class StateChange:
    """A difference between a declaration and the one that a state was built for, because of which the state is of no use."""

    name: str
    before: object
    now: object

    @property
    def text(self) -> str:
        """Return it for people."""
        return f"{self.name} was {self.before!r} and is {self.now!r}"

    @property
    def can_be_rebuilt(self) -> bool:
        """Return whether messages of the past give the state that the declaration of now needs.

        With another time of events, or other sources or keys of rows, nobody knows what was given out already.
        """
        operator = self.name == "window" and None in (self.before, self.now)
        return self.name not in _BEYOND and not operator


LAYOUT = "layout"
"""Part of the definition of joins and sessions that changes when what they remember is written in another way."""

_LAYOUT = 2
"""One text for each key; before, it was an entry for each time of a key."""

RETAINS_ROWS = "rows are kept for late_data"

RETAINED_FOR = "allowed_lateness_ms"
"""Part of the definition of windows that can be opened again: those that are forgotten would be given out with late rows alone."""

_BEYOND = ("deduplicate", "left_source", "right_source", "left_keys", "right_keys", "event_time_column", LAYOUT)
"""Parts of definitions without which nothing of what was given out can be compared with what would be."""

_MAY_GROW = ("gap_ms", "max_session_duration_ms")
"""Times of sessions: their moments are remembered one by one, and those that are longer make no session end earlier."""


def changes_of_state(before: Mapping[str, object], now: Mapping[str, object]) -> list[StateChange]:
    """Return what of a declaration has changed so that the state of before cannot be used as it is."""
    before, now = _without_defaults(before), _without_defaults(now)
    # Where rows themselves are remembered, they are grouped and aggregated when their window is over.
    later: tuple[str, ...] = (
        () if not (before.get(RETAINS_ROWS) and now.get(RETAINS_ROWS)) else ("aggregations", "group_by")
    )
    if now.get("window") == SESSION:
        later = later[:1]
    if not _notes_rows(before) or before.get(LAYOUT) == _LAYOUT:
        later = (*later, LAYOUT)
    return [
        StateChange(name, before.get(name), now.get(name))
        for name in dict.fromkeys((*before, *now))
        if name not in later and not _fits(name, before.get(name), now.get(name))
    ]


def _without_defaults(definition: Mapping[str, object]) -> dict[str, object]:
    """Return a definition in which what was written out and goes without saying is left out."""
    plain = dict(definition)
    if plain.get("window") == TUMBLING:
        plain["hop_ms"] = None
    values = plain.get("aggregations")
    if isinstance(values, list):
        plain["aggregations"] = [[*one[:2], None if one[2] == "approximate" else one[2]] for one in values]
    return plain


def _fits(name: str, before: object, now: object) -> bool:
    """Return whether what is remembered with one value of a definition can be used with another."""
    if before == now:
        return True
    if name == RETAINED_FOR:
        # An earlier version has not written it down.
        return not (isinstance(before, int) and isinstance(now, int) and now > before)
    if name in _MAY_GROW:
        return isinstance(before, int) and isinstance(now, int) and now > before
    # Aggregations are remembered by their number, so that those behind the last one of now are only ignored.
    return name == "aggregations" and isinstance(before, list) and isinstance(now, list) and before[: len(now)] == now


def remedy(name: str, changes: Sequence[StateChange]) -> str:
    """Return what a user can do about a declaration that does not go with the state of a stream."""
    beyond = [change.name for change in changes if not change.can_be_rebuilt]
    if LAYOUT in beyond:
        return (
            "an earlier version wrote the state, in another way: let that version finish what is open, or begin again:"
            f" flow stream reset {name} --from ... --confirm-state-reset."
        )
    if beyond:
        return (
            f"with another {beyond[0]} it is not known what was given out already: declare it as before, give the stream"
            f" another name, or begin again: flow stream reset {name} --from ... --confirm-state-reset."
        )
    return (
        f"the state cannot be kept: flow stream redeploy {name} builds it anew from the messages of what is open, gives"
        " nothing out twice, and goes on where the stream is; or declare it as before."
    )


def horizon(plan: StatePlan) -> int:
    """Return how far behind the watermark an event can be that matters for what is not given out yet, in microseconds."""
    match plan.operator:
        case "window":
            return plan.length + plan.allowed
        case "session":
            # Where a session begins depends on the one before, if both were cut by their longest duration.
            return 2 * (plan.gap + plan.longest) + plan.allowed
        case "join":
            # A row that waits, and the partner that it had.
            return max(abs(plan.least), abs(plan.most)) + (plan.most - plan.least) + plan.allowed
        case _:
            return plan.longest


def last_end(definition: Mapping[str, object], watermark: int) -> int:
    """Return the end of the last window of a fixed length that a watermark has closed: no later event was given out."""
    length, hop = (definition.get(name) for name in ("duration_ms", "hop_ms"))
    assert isinstance(length, int)  # noqa: S101 - windows of a fixed length have one
    every = hop if isinstance(hop, int) else length
    return watermark - (watermark - length * MICROS) % (every * MICROS)


def sessions_of(definition: Mapping[str, object]) -> StatePlan | None:
    """Return the sessions that a state was built for; None where it was built for something else."""
    gap, longest = (definition.get(name) for name in ("gap_ms", "max_session_duration_ms"))
    if definition.get("window") != SESSION or not isinstance(gap, int) or not isinstance(longest, int):
        return None
    return StatePlan("session", gap=gap * MICROS, longest=longest * MICROS)


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
        length=window.duration_ms * MICROS,
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

"""What the event times of the sources of a stream show: up to which time everything is complete, and who holds it back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ematix_flow.run.streams.input import TimeSpan

LINE = "\n"
"""Between a source and one of its lines, in the names of times."""


@dataclass
class SourceClock:
    """Up to which time the sources of a stream are complete, by what their ranges have shown."""

    sources: tuple[str, ...]
    ticks: Callable[[], float]
    lateness: int
    """How far the time stays behind the newest event, in microseconds."""
    idleness: int
    """After which silence a source no longer holds the others back, in microseconds."""
    _active: dict[str, float] = field(default_factory=dict)
    """When each source had a message."""
    _heard: frozenset[str] = frozenset()
    """Sources with a message in the last range, which are not idle however short a silence may be."""
    _held: dict[str, int | None] = field(default_factory=dict)
    """Sources with a line that is behind the others, and the newest time of that line, if it has one yet."""

    def __post_init__(self) -> None:
        """Begin to wait for every source now."""
        self._active = dict.fromkeys(self.sources, self.ticks())

    def note(self, heard: Iterable[str], waiting: Mapping[str, Mapping[str, int]], times: Mapping[str, int]) -> None:
        """Note which sources had messages with a time in a range, and which lines of them wait behind it."""
        self._heard = frozenset(heard)
        self._active |= dict.fromkeys(self._heard, self.ticks())
        self._held = held_back(waiting, times)

    def watermark(self, times: Mapping[str, int], before: int | None) -> int | None:
        """Return up to which time everything is complete: the least of the sources that are not idle; never less than before.

        Of a source with a backlog, partitions that are behind hold the time back: what they have is not late.
        """
        if None in self._held.values():
            return before
        alive = [
            min(newest, self._held.get(source) or newest)
            for source, newest in times.items()
            if LINE not in source and not self._is_idle(source)
        ]
        candidates = [] if not alive else [min(alive) - self.lateness]
        return max((one for one in (*candidates, before) if one is not None), default=None)

    def _is_idle(self, source: str) -> bool:
        if len(self.sources) == 1 or source in self._heard:
            return False
        # Not divided: a silence that means never may be a number that no float has.
        return (self.ticks() - self._active.get(source, 0.0)) * 1e6 >= self.idleness


def held_back(waiting: Mapping[str, Mapping[str, int]], times: Mapping[str, int]) -> dict[str, int | None]:
    """Return the sources with lines of which messages wait, and the least of the newest times of those lines.

    Without that, what a partition has that is read more slowly would be late. Where rows do not tell their line, as
    behind SQL that groups them, nothing is held back.
    """
    held: dict[str, int | None] = {}
    for source, lines in waiting.items():
        behind = [times.get(f"{source}{LINE}{line}") for line, count in lines.items() if count]
        if len(lines) > 1 and behind and any(name.startswith(f"{source}{LINE}") for name in times):
            held[source] = None if None in behind else min(time for time in behind if time is not None)
    return held


def newest_event(written: Iterable[TimeSpan]) -> int | None:
    """Return the newest event of what was written; None where there is none."""
    return max((shown.newest for shown in written if shown.newest is not None), default=None)

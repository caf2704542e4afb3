"""What the event times of the sources of a stream show: the newest one, and which source holds the others back."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ematix_flow.run.streams.input import TimeSpan

LINE = "\n"
"""Between a source and one of its lines, in the names of times."""


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

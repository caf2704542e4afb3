"""What is known of the ranges of a state besides their lines, as it is written next to them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from ematix_flow.run.streams.query import damaged
from ematix_flow.run.streams.ranges import NO_RANGE

if TYPE_CHECKING:
    from ematix_flow.connect.base.stream_source import Position
    from ematix_flow.run.streams.query import StateFolder


MOST_ENTRIES = 64
"""How many ranges are told apart; of more, neighbours are one."""


@dataclass(frozen=True, slots=True)
class TimeIndex:
    """Where in the source events of a time are: of each range its newest event, and where it begins."""

    since: int | None = None
    """Ranges whose newest event was before this are left out; None where none was."""
    ranges: list[tuple[int, Position]] = field(default_factory=list)

    def position(self, time: int | None) -> Position | None:
        """Return where the first range begins that may have events of a time or later; None where that is not known."""
        if self.since is not None and (time is None or time < self.since):
            return None
        return next((begin for newest, begin in self.ranges if time is None or newest >= time), None)

    def begins_at(self, position: Position) -> bool:
        """Return whether a position is where the state began to read."""
        return self.since is None and bool(self.ranges) and self.ranges[0][1] == position

    def after(self, newest: int | None, begin: Position, needed: int | None) -> TimeIndex:
        """Return the time_index behind one more range; `needed` is the oldest time that still matters."""
        ranges = list(self.ranges) if newest is None else [*self.ranges, (newest, begin)]
        since = self.since
        while needed is not None and ranges and ranges[0][0] < needed:
            ranges, since = ranges[1:], needed if since is None else max(since, needed)
        while len(ranges) > MOST_ENTRIES:
            pairs = [ranges[number : number + 2] for number in range(0, len(ranges), 2)]
            ranges = [(max(newest for newest, _ in pair), pair[0][1]) for pair in pairs]
        return TimeIndex(since, ranges)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What is known of a range besides its lines: where it ends, and what its events have shown."""

    begin: Position
    end: Position
    times: dict[str, int]
    """The newest event time of every source, in microseconds."""
    watermark: int | None
    schemas: dict[str, str]
    """The types of remembered values, by side of a join."""
    rejects: bool
    """Whether messages of it were no rows."""
    files: dict[str, int]
    """The files with its lines, and their sizes."""
    definition: dict[str, object]
    """What of the declaration is in the state."""
    windows: list[list[int]] = field(default_factory=list)
    """Beginning and end of windows of a fixed length that are open; of very many the oldest."""
    digests: dict[str, str] = field(default_factory=dict)
    """Of sources that are folders, the files that were read."""
    time_index: TimeIndex | None = None
    """Where events of a time are; None where an earlier version has not written it down."""

    def text(self) -> str:
        """Return it as it is written down."""
        return json.dumps(asdict(self))


NOTHING = Manifest({}, {}, {}, None, {}, rejects=False, files={}, definition={}, time_index=TimeIndex())
"""What is known before the first range."""


def manifest_of(folder: StateFolder, name: str) -> Manifest | None:
    """Return what is known of a range; None for the one before the first."""
    if name == NO_RANGE:
        return None
    text = folder.read(f"{folder.path}/ranges/{name}.json")
    if text is None:
        raise damaged(folder.path, f"ranges/{name}.json is gone")
    try:
        fields = json.loads(text)
        time_index = fields.pop("time_index", None)
        return Manifest(**fields, time_index=None if time_index is None else TimeIndex(**time_index))
    except (ValueError, TypeError):
        raise damaged(folder.path, f"ranges/{name}.json is cut") from None


def write_manifest(folder: StateFolder, name: str, manifest: Manifest) -> None:
    """Write down what is known of a range, after its lines."""
    folder.write(f"{folder.path}/ranges/{name}.json", manifest.text())


def refuse_missing_lines(folder: StateFolder, name: str, manifest: Manifest) -> None:
    """Refuse a range that is to be read again, and of which files are gone."""
    there = folder.sizes(f"{folder.input}/{name}")
    wrong = sorted(file for file, size in manifest.files.items() if there.get(file) != size)
    if wrong:
        raise damaged(folder.path, f"input/{name}/{wrong[0]} is gone or cut")

"""What is written down of a range that went into the state of a stream, besides its lines."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ematix_flow.run.streams.query import damaged
from ematix_flow.run.streams.ranges import NO_RANGE

if TYPE_CHECKING:
    from ematix_flow.connect.base.stream_source import Position
    from ematix_flow.run.streams.query import StateFolder


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

    def write(self, folder: StateFolder, name: str) -> None:
        """Write it down for a range."""
        text = json.dumps({name: getattr(self, name) for name in self.__slots__})
        folder.write(_path(folder, name), text)


NOTHING = Manifest({}, {}, {}, None, {}, rejects=False, files={}, definition={})
"""What is known before the first range."""


def manifest_of(folder: StateFolder, name: str) -> Manifest | None:
    """Return what was written down of a range; None before the first."""
    if name == NO_RANGE:
        return None
    text = folder.read(_path(folder, name))
    if text is None:
        raise damaged(folder.path, f"ranges/{name}.json is gone")
    try:
        return Manifest(**json.loads(text))
    except (ValueError, TypeError):
        raise damaged(folder.path, f"ranges/{name}.json is cut") from None


def refuse_missing_lines(folder: StateFolder, name: str, manifest: Manifest) -> None:
    """Refuse a range that is to be read again, and of which files are gone."""
    there = folder.sizes(f"{folder.input}/{name}")
    wrong = sorted(file for file, size in manifest.files.items() if there.get(file) != size)
    if wrong:
        raise damaged(folder.path, f"input/{name}/{wrong[0]} is gone or cut")


def _path(folder: StateFolder, name: str) -> str:
    return f"{folder.path}/ranges/{name}.json"

"""What a stream with state remembers, for people: read from its folder, without Spark."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.commit.stream_offsets import STATE
from ematix_flow.engine.stream.state.folder import state_folder
from ematix_flow.plan.stream.state import changes_of_state, instant_of, remedy, state_definition

if TYPE_CHECKING:
    from datetime import datetime

    from ematix_flow.connect.base.stream_source import Position
    from ematix_flow.declare.stream.stream import Stream, StreamTarget


@dataclass(frozen=True, slots=True)
class StateStatus:
    """The state of one target."""

    folder: str
    batch: int
    watermark: datetime | None
    """Up to which time everything is complete; None before the first event, or where the folder is not on this machine."""
    windows: int
    """Windows of a fixed length that are open."""
    oldest: datetime | None
    """The beginning of the oldest of them."""
    bytes: int
    """The size of the folder."""
    changes: tuple[str, ...] = ()
    """What of the declaration has changed so that the state cannot be kept."""
    remedy: str = ""
    """What can be done about that."""

    def to_dict(self) -> dict[str, Any]:
        """Return the state as plain data."""
        return {
            "watermark": None if self.watermark is None else self.watermark.isoformat(),
            "open_windows": self.windows,
            "oldest_open_window": None if self.oldest is None else self.oldest.isoformat(),
            "bytes": self.bytes,
            "batch": self.batch,
            "folder": self.folder,
            "changes": list(self.changes),
        }


def state_status(stream: Stream, target: StreamTarget, position: Position) -> StateStatus | None:
    """Return what a target remembers at its position; None for a stream without state, and before its first load."""
    known = position.get(STATE)
    if not stream.is_stateful or known is None:
        return None
    path = state_folder(stream, target, stream.name, position)
    if "://" in path:
        return StateStatus(path, known["batch"], None, 0, None, 0)
    folder = Path(path)
    manifest = folder / "ranges" / f"{known['range']}.json"
    written = json.loads(manifest.read_text("utf-8")) if manifest.is_file() else {}
    windows = written.get("windows", [])
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    oldest = _instant(windows[0][0]) if windows else None
    changes = changes_of_state(written["definition"], state_definition(stream)) if "definition" in written else []
    return StateStatus(
        path,
        known["batch"],
        _instant(written.get("watermark")),
        len(windows),
        oldest,
        size,
        tuple(change.text for change in changes),
        remedy(stream.name, changes) if changes else "",
    )


def _instant(micros: int | None) -> datetime | None:
    return None if micros is None else instant_of(micros)
